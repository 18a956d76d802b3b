#include "base/libraries/blas.hpp"

#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/resources/child.hpp"

namespace mm {
namespace {

/// The functions of a library whose integers are `Int`.
template <class Int>
struct Functions {
  using Gemm = void (*)(const char*, const char*, const Int*, const Int*, const Int*, const double*, const double*,
                        const Int*, const double*, const Int*, const double*, double*, const Int*);
  using Gesv = void (*)(const Int*, const Int*, double*, const Int*, Int*, double*, const Int*, Int*);
  using Syevd = void (*)(const char*, const char*, const Int*, double*, const Int*, double*, double*, const Int*, Int*,
                         const Int*, Int*);
};

struct Candidate {
  std::string which, name;
  std::vector<std::string> files;
  bool optimised = true;  ///< an optimised implementation, neither a wrapper nor the reference
};

const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"mkl", "MKL", {"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"}},
      {"openblas", "OpenBLAS", {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"}},
      {"flexiblas", "FlexiBLAS", {"libflexiblas.so.3"}, false},
      {"blis", "BLIS", {"libblis-mt.so.5", "libblis-mt.so", "libblis.so.4", "libblis.so.3"}},
      {"reference", "reference BLAS", {"libblas.so.3"}, false}};
  return all;
}

/// Returns the libraries that MESHMARK_BLAS names, which Python packages contain. Each line is the value of
/// `--library`, the path, and the name for records, separated by tabs.
std::vector<Candidate> bundled() {
  std::vector<Candidate> named;
  const char* variable = std::getenv("MESHMARK_BLAS");
  std::istringstream lines(variable == nullptr ? "" : variable);
  for (std::string which, path, name;
       std::getline(lines, which, '\t') && std::getline(lines, path, '\t') && std::getline(lines, name);)
    named.push_back({which, name, {path}});
  return named;
}

class Loaded final : public Blas {
 public:
  void multiply(int n, const double* a, const double* b, double* c) const override {
    is_wide_ ? multiply_as<std::int64_t>(n, a, b, c) : multiply_as<int>(n, a, b, c);
  }
  int solve(int n, double* a, std::int64_t* pivots, double* b) const override {
    return is_wide_ ? solve_as<std::int64_t>(n, a, pivots, b) : solve_as<int>(n, a, pivots, b);
  }
  bool can_solve() const override { return gesv_ != nullptr; }
  int eigen(int n, double* a, double* values, EigenWork& work) const override {
    return is_wide_ ? eigen_as<std::int64_t>(n, a, values, work) : eigen_as<int>(n, a, values, work);
  }
  bool can_eigen() const override { return syevd_ != nullptr; }

  bool own_lapack = false;

  bool open(const std::string& file, int threads) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    // Default names first, then the names in the libraries of NumPy and SciPy. A suffix stands for wide integers.
    for (const auto& [prefix, suffix] : std::initializer_list<std::pair<const char*, const char*>>{
             {"", ""}, {"scipy_", ""}, {"scipy_", "64_"}, {"", "64_"}})
      if (gemm_ == nullptr) {
        prefix_ = prefix, suffix_ = suffix;
        gemm_ = find(handle, "dgemm_");
      }
    if (gemm_ == nullptr) return false;
    is_wide_ = !suffix_.empty();
    gesv_ = find(handle, "dgesv_");
    syevd_ = find(handle, "dsyevd_");
    own_lapack = gesv_ != nullptr;
    if (gesv_ == nullptr && !is_wide_)
      if (void* lapack = dlopen("liblapack.so.3", RTLD_NOW | RTLD_LOCAL)) {
        gesv_ = find(lapack, "dgesv_");
        syevd_ = find(lapack, "dsyevd_");
      }
    Dl_info info{};
    path = dladdr(gemm_, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
    describe(handle);
    limit_threads(handle, threads);
    return true;
  }

 private:
  void* gemm_ = nullptr;
  void* gesv_ = nullptr;
  void* syevd_ = nullptr;
  bool is_wide_ = false;         ///< its integers have 64 bits (ILP64)
  std::string prefix_, suffix_;  ///< of the names of its functions

  void* find(void* handle, const char* called) const { return dlsym(handle, (prefix_ + called + suffix_).c_str()); }
  template <class F>
  F function(void* handle, const char* called) const {
    return reinterpret_cast<F>(find(handle, called));
  }

  void describe(void* handle) {
    if (auto f = function<char* (*)()>(handle, "openblas_get_config")) name = "OpenBLAS", version = f();
    if (auto f = function<char* (*)()>(handle, "openblas_get_corename")) kernel = f();
    if (auto f = function<const char* (*)()>(handle, "bli_info_get_version_str"))
      version = f(), name = version.find("AOCL") == std::string::npos ? "BLIS" : "AOCL BLIS";
    if (auto f = function<void (*)(char*, int)>(handle, "MKL_Get_Version_String")) {
      char text[200] = {};
      f(text, sizeof text - 1);
      name = "MKL", version = text;
    }
  }
  void limit_threads(void* handle, int threads) const {
    for (const char* setter : {"openblas_set_num_threads", "bli_thread_set_num_threads", "MKL_Set_Num_Threads"})
      if (auto f = function<void (*)(int)>(handle, setter)) f(threads);
  }

  template <class Int>
  void multiply_as(Int n, const double* a, const double* b, double* c) const {
    const double one = 1, zero = 0;
    reinterpret_cast<typename Functions<Int>::Gemm>(gemm_)("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
  }
  template <class Int>
  int solve_as(Int n, double* a, std::int64_t* pivots, double* b) const {
    const Int one = 1;
    Int info = 0;
    reinterpret_cast<typename Functions<Int>::Gesv>(gesv_)(&n, &one, a, &n, reinterpret_cast<Int*>(pivots), b, &n,
                                                           &info);
    return static_cast<int>(info);
  }
  template <class Int>
  int eigen_as(Int n, double* a, double* values, EigenWork& work) const {
    const auto call = reinterpret_cast<typename Functions<Int>::Syevd>(syevd_);
    Int info = 0;
    if (work.numbers.empty()) {  // ask the library how much it needs
      const Int query = -1;
      double numbers = 0;
      Int integers = 0;
      call("V", "U", &n, a, &n, values, &numbers, &query, &integers, &query, &info);
      if (info != 0) return static_cast<int>(info);
      work.numbers.resize(static_cast<std::size_t>(numbers));
      work.integers.resize(static_cast<std::size_t>(integers));
    }
    const Int numbers = static_cast<Int>(work.numbers.size()), integers = static_cast<Int>(work.integers.size());
    call("V", "U", &n, a, &n, values, work.numbers.data(), &numbers, reinterpret_cast<Int*>(work.integers.data()),
         &integers, &info);
    return static_cast<int>(info);
  }
};

/// Returns the rate of a small product in flop/s; 0 if the product is wrong.
double trial_rate(const Blas& blas) {
  constexpr int n = 384;
  constexpr auto size = static_cast<std::size_t>(n);
  std::vector<double> a(size * size), b(size * size), c(size * size);
  for (std::size_t j = 0; j < size; ++j)
    for (std::size_t i = 0; i < size; ++i) {
      a[j * size + i] = static_cast<double>((7 * i + 3 * j) % 11);  // integers: sums are exact
      b[j * size + i] = static_cast<double>((2 * i + 5 * j) % 13);
    }
  blas.multiply(n, a.data(), b.data(), c.data());
  for (std::size_t at = 0; at < size; at += 37) {
    const std::size_t i = at, j = size - 1 - at;
    double expected = 0;
    for (std::size_t k = 0; k < size; ++k) expected += a[k * size + i] * b[j * size + k];
    if (c[j * size + i] != expected) return 0;
  }
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const Ticks begin = ticks();
    blas.multiply(n, a.data(), b.data(), c.data());
    best = std::max(best, 2.0 * n * n * n / seconds(ticks() - begin));
  }
  return best;
}

/// Result of the trial of a library in a child process.
struct Tried {
  char kernel[64], path[512];
  double flop_rate;  ///< flop/s; 0 if the product was wrong
  bool solves;       ///< the library contains LAPACK
};

/// Loads a library with one of its kernels ("": its default) in a child process, because a library reads the choice of
/// its kernel only once, when it is loaded, and may crash. Returns nothing if the library is missing, crashes or
/// rejects the kernel.
std::optional<Tried> try_library(const std::string& file, const std::string& kernel) {
  Pipe pipe;
  const pid_t child = start_child();
  if (child == 0) {
    alarm(10);
    close(STDERR_FILENO);  // hides the library's warnings about unknown names
    if (!kernel.empty()) setenv("OPENBLAS_CORETYPE", kernel.c_str(), 1);
    limit_library_threads(1);
    Loaded blas;
    if (!blas.open(file, 1)) _exit(1);
    if (!kernel.empty() && strcasecmp(blas.kernel.c_str(), kernel.c_str()) != 0)
      _exit(1);  // it fell back to another kernel
    Tried trial{};
    blas.kernel.copy(trial.kernel, sizeof trial.kernel - 1);
    std::error_code ignored;
    const std::string path = std::filesystem::weakly_canonical(blas.path, ignored).string();
    path.copy(trial.path, sizeof trial.path - 1);
    trial.flop_rate = trial_rate(blas);
    trial.solves = blas.own_lapack;
    _exit(write(pipe.writer.get(), &trial, sizeof trial) == sizeof trial ? 0 : 1);
  }
  pipe.writer.close();
  Tried trial{};
  const bool complete = read(pipe.reader.get(), &trial, sizeof trial) == sizeof trial;
  wait_for_child(child);
  return complete ? std::optional(trial) : std::nullopt;
}

std::vector<const char*> runnable_kernels() {
#if defined(__x86_64__)
  std::vector<const char*> names;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    names.push_back("SkylakeX");
    names.push_back("Cooperlake");
    names.push_back("SapphireRapids");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    names.push_back("Haswell");
    names.push_back("Zen");
  }
  return names;
#else
  return {};
#endif
}

/// A library with one of its kernels.
struct BlasKernel {
  const Candidate* library;
  std::string file, kernel;
  double flop_rate;
};

/// Appends the installed libraries with their default kernels, in the order of `candidates`.
void add_installed(const std::vector<Candidate>& candidates, bool solve, std::vector<BlasKernel>& choices) {
  std::set<std::string> paths;  // one library may have several names
  for (const Candidate& c : candidates)
    for (const std::string& file : c.files) {
      const auto trial = try_library(file, "");
      // A library without LAPACK would solve systems with the LAPACK of another library.
      if (!trial || (solve && !trial->solves && candidates.size() > 1)) continue;
      if (paths.insert(trial->path).second) choices.push_back({&c, file, trial->kernel, trial->flop_rate});
      break;
    }
}

}  // namespace

void limit_library_threads(int threads) {
  for (const char* variable : {"OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS"})
    setenv(variable, std::to_string(threads).c_str(), 1);
}

std::unique_ptr<Blas> Blas::load(const std::string& which, const std::string& kernel, int threads, bool solve) {
#ifdef MM_STATIC
  throw Absent("this program is static and cannot load a BLAS library", "install Meshmark as a Python package");
#endif
  const auto is_requested = [&](const Candidate& c) { return which == "auto" || which == c.which; };
  std::vector<Candidate> requested_libraries, bundled_libraries;
  std::ranges::copy_if(candidates(), std::back_inserter(requested_libraries), is_requested);
  std::ranges::copy_if(bundled(), std::back_inserter(bundled_libraries), is_requested);
  if (which.find('/') != std::string::npos) {
    if (access(which.c_str(), R_OK) != 0)
      throw UsageError("library", "cannot read " + quote(which), "a shared library");
    requested_libraries = {{"path", "BLAS", {which}}};
  }
  if (requested_libraries.empty())
    throw UsageError("library", "found " + quote(which), "auto, mkl, openblas, flexiblas, blis, reference, or a path");
  std::vector<BlasKernel> choices;
  add_installed(requested_libraries, solve, choices);
  if (std::ranges::none_of(choices, [](const BlasKernel& c) { return c.library->optimised; }))
    add_installed(bundled_libraries, solve, choices);
  if (choices.empty())
    throw Absent("no BLAS library is installed (looked for " + which + ")",
                 "Debian and Ubuntu: libopenblas0-pthread; Fedora: openblas-threads; Spack: openblas; "
                 "pip: numpy or mkl");
  if (kernel != "auto") {
    std::erase_if(choices, [](const BlasKernel& c) { return c.kernel.empty(); });
    if (choices.empty()) throw UsageError("coretype", "found " + quote(kernel) + " without OpenBLAS", "auto");
  }
  const bool is_forced = std::getenv("OPENBLAS_CORETYPE") != nullptr;
  if (kernel == "auto" && !is_forced)
    for (const BlasKernel& c : std::vector<BlasKernel>(choices))
      if (!c.kernel.empty())  // OpenBLAS: its kernel can be set
        for (const char* name : runnable_kernels())
          if (name != c.kernel) {
            const auto trial = try_library(c.file, name);
            choices.push_back({c.library, c.file, name, trial ? trial->flop_rate : 0});
          }
  // Switch only for a clear gain, because the default rests on more than a short trial.
  const auto best = std::max_element(choices.begin(), choices.end(), [](const BlasKernel& a, const BlasKernel& b) {
    return a.flop_rate < b.flop_rate;
  });
  const bool switches = best->flop_rate > 1.1 * choices.front().flop_rate;
  const BlasKernel selection = switches ? *best : choices.front();

  auto blas = std::make_unique<Loaded>();
  blas->name = selection.library->name;
  blas->chosen_by = switches ? "trial" : "library";
  if (!selection.kernel.empty() && kernel != "auto") {
    setenv("OPENBLAS_CORETYPE", kernel.c_str(), 1);
    blas->chosen_by = "user";
  } else if (!selection.kernel.empty() && is_forced) {
    blas->chosen_by = "environment";
  } else if (!selection.kernel.empty() && switches) {
    setenv("OPENBLAS_CORETYPE", selection.kernel.c_str(), 1);
  }
  if (choices.size() > 1)
    for (const BlasKernel& c : choices)
      blas->trials.push_back({c.kernel.empty() ? c.library->name : c.kernel, c.flop_rate});
  for (const Candidate& c : requested_libraries)
    if (c.optimised && std::ranges::none_of(choices, [&](const BlasKernel& x) { return x.library->which == c.which; }))
      blas->missing.push_back(c.name);
  limit_library_threads(threads);
  if (!blas->open(selection.file, threads)) throw Failure(selection.file + " cannot be loaded");
  if (std::ranges::any_of(bundled_libraries, [&](const Candidate& c) { return selection.library == &c; }))
    blas->name = selection.library->name;
  return blas;
}

}  // namespace mm
