#include "base/libraries/blas.hpp"

#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/resources/child.hpp"

namespace mm {
namespace {

using Dgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                       const int*, const double*, const int*, const double*, double*, const int*);
using Dgesv = void (*)(const int*, const int*, double*, const int*, int*, double*, const int*, int*);

using Dsyevd = void (*)(const char*, const char*, const int*, double*, const int*, double*, double*, const int*, int*,
                        const int*, int*);

struct Candidate {
  const char *which, *name;
  std::vector<const char*> files;
  bool optimised = true;  ///< an optimised implementation, neither a wrapper nor the reference
};

const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"mkl", "MKL", {"libmkl_rt.so.2", "libmkl_rt.so"}},
      {"openblas", "OpenBLAS", {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"}},
      {"flexiblas", "FlexiBLAS", {"libflexiblas.so.3"}, false},
      {"blis", "BLIS", {"libblis-mt.so.5", "libblis-mt.so", "libblis.so.4", "libblis.so.3"}},
      {"reference", "reference BLAS", {"libblas.so.3"}, false}};
  return all;
}

template <class F>
F symbol(void* handle, const char* name) {
  return reinterpret_cast<F>(dlsym(handle, name));
}

class Loaded final : public Blas {
 public:
  void multiply(int n, const double* a, const double* b, double* c) const override {
    const double one = 1, zero = 0;
    gemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
  }
  int solve(int n, double* a, int* pivots, double* b) const override {
    const int one = 1;
    int info = 0;
    gesv_(&n, &one, a, &n, pivots, b, &n, &info);
    return info;
  }
  bool can_solve() const override { return gesv_ != nullptr; }
  int eigen(int n, double* a, double* values, EigenWork& work) const override {
    int info = 0;
    if (work.numbers.empty()) {  // ask the library how much it needs
      const int query = -1;
      double numbers = 0;
      int integers = 0;
      syevd_("V", "U", &n, a, &n, values, &numbers, &query, &integers, &query, &info);
      if (info != 0) return info;
      work.numbers.resize(static_cast<std::size_t>(numbers));
      work.integers.resize(static_cast<std::size_t>(integers));
    }
    const int numbers = static_cast<int>(work.numbers.size()), integers = static_cast<int>(work.integers.size());
    syevd_("V", "U", &n, a, &n, values, work.numbers.data(), &numbers, work.integers.data(), &integers, &info);
    return info;
  }
  bool can_eigen() const override { return syevd_ != nullptr; }

  bool own_lapack = false;

  bool open(const std::string& file, int threads) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    gemm_ = symbol<Dgemm>(handle, "dgemm_");
    gesv_ = symbol<Dgesv>(handle, "dgesv_");
    if (gemm_ == nullptr) return false;
    syevd_ = symbol<Dsyevd>(handle, "dsyevd_");
    own_lapack = gesv_ != nullptr;
    if (gesv_ == nullptr)
      if (void* lapack = dlopen("liblapack.so.3", RTLD_NOW | RTLD_LOCAL)) {
        gesv_ = symbol<Dgesv>(lapack, "dgesv_");
        syevd_ = symbol<Dsyevd>(lapack, "dsyevd_");
      }
    Dl_info info{};
    path = dladdr(reinterpret_cast<void*>(gemm_), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
    if (auto f = symbol<char* (*)()>(handle, "openblas_get_config")) name = "OpenBLAS", version = f();
    if (auto f = symbol<char* (*)()>(handle, "openblas_get_corename")) kernel = f();
    if (auto f = symbol<const char* (*)()>(handle, "bli_info_get_version_str"))
      version = f(), name = version.find("AOCL") == std::string::npos ? "BLIS" : "AOCL BLIS";
    if (auto f = symbol<void (*)(int)>(handle, "openblas_set_num_threads")) f(threads);
    if (auto f = symbol<void (*)(int)>(handle, "bli_thread_set_num_threads")) f(threads);
    if (auto f = symbol<void (*)(int)>(handle, "MKL_Set_Num_Threads")) name = "MKL", f(threads);
    if (auto f = symbol<void (*)(char*, int)>(handle, "MKL_Get_Version_String")) {
      char text[200] = {};
      f(text, sizeof text - 1);
      version = text;
    }
    return true;
  }

 private:
  Dgemm gemm_ = nullptr;
  Dgesv gesv_ = nullptr;
  Dsyevd syevd_ = nullptr;
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
  std::string library, file, kernel;
  double flop_rate;
};

/// Returns the installed libraries with their default kernels, in the order of `candidates`.
std::vector<BlasKernel> installed(const std::vector<Candidate>& candidates, bool solve) {
  std::vector<BlasKernel> choices;
  std::set<std::string> paths;  // one library may have several names
  for (const Candidate& c : candidates)
    for (const char* file : c.files) {
      const auto trial = try_library(file, "");
      // A library without LAPACK would solve systems with the LAPACK of another library.
      if (!trial || (solve && !trial->solves && candidates.size() > 1)) continue;
      if (paths.insert(trial->path).second) choices.push_back({c.name, file, trial->kernel, trial->flop_rate});
      break;
    }
  return choices;
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
  std::vector<Candidate> requested_libraries;
  for (const Candidate& c : candidates())
    if (which == "auto" || which == c.which) requested_libraries.push_back(c);
  if (which.find('/') != std::string::npos) {
    if (access(which.c_str(), R_OK) != 0)
      throw UsageError("library", "cannot read " + quote(which), "a shared library");
    requested_libraries = {{"path", "BLAS", {which.c_str()}}};
  }
  if (requested_libraries.empty())
    throw UsageError("library", "found " + quote(which), "auto, mkl, openblas, flexiblas, blis, reference, or a path");
  std::vector<BlasKernel> choices = installed(requested_libraries, solve);
  if (choices.empty())
    throw Absent("no BLAS library is installed (looked for " + which + ")",
                 "Debian and Ubuntu: libopenblas0-pthread; Fedora: openblas-threads; Spack: openblas");
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
  blas->name = selection.library;
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
    for (const BlasKernel& c : choices) blas->trials.push_back({c.kernel.empty() ? c.library : c.kernel, c.flop_rate});
  for (const Candidate& c : requested_libraries)
    if (c.optimised &&
        std::none_of(choices.begin(), choices.end(), [&](const BlasKernel& x) { return x.library == c.name; }))
      blas->missing.emplace_back(c.name);
  limit_library_threads(threads);
  if (!blas->open(selection.file, threads)) throw Failure(selection.file + " cannot be loaded");
  return blas;
}

}  // namespace mm
