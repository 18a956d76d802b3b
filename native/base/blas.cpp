#include "blas.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "clock.hpp"
#include "error.hpp"

namespace mm {
namespace {

using Dgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                       const int*, const double*, const int*, const double*, double*, const int*);
using Dgesv = void (*)(const int*, const int*, double*, const int*, int*, double*, const int*, int*);

struct Candidate {
  const char *which, *name;
  std::vector<const char*> files;
};

const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"mkl", "MKL", {"libmkl_rt.so.2", "libmkl_rt.so"}},
      {"openblas", "OpenBLAS", {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"}},
      {"flexiblas", "FlexiBLAS", {"libflexiblas.so.3"}},
      {"blis", "BLIS", {"libblis.so.4", "libblis.so.3", "libblis-mt.so"}},
      {"reference", "reference BLAS", {"libblas.so.3"}}};
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

  bool open(const std::string& file, int threads) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    gemm_ = symbol<Dgemm>(handle, "dgemm_");
    gesv_ = symbol<Dgesv>(handle, "dgesv_");
    if (gemm_ == nullptr) return false;
    if (gesv_ == nullptr)
      if (void* lapack = dlopen("liblapack.so.3", RTLD_NOW | RTLD_LOCAL)) gesv_ = symbol<Dgesv>(lapack, "dgesv_");
    Dl_info info{};
    path = dladdr(reinterpret_cast<void*>(gemm_), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
    if (auto f = symbol<char* (*)()>(handle, "openblas_get_config")) name = "OpenBLAS", version = f();
    if (auto f = symbol<char* (*)()>(handle, "openblas_get_corename")) kernel = f();
    if (auto f = symbol<const char* (*)()>(handle, "bli_info_get_version_str")) name = "BLIS", version = f();
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
};

double trial_rate(const Blas& blas) {
  constexpr int n = 384;
  std::vector<double> a(n * n, 1.0), b(n * n, 2.0), c(n * n);
  blas.multiply(n, a.data(), b.data(), c.data());
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const Ticks begin = ticks();
    blas.multiply(n, a.data(), b.data(), c.data());
    best = std::max(best, 2.0 * n * n * n / seconds(ticks() - begin));
  }
  return best;
}

/// Returns the rate of that kernel, measured in a child process; 0 if the child crashed (illegal instruction …) or the
/// library rejected the name. A child is needed because the library reads the variable only once, when it is loaded.
double try_kernel(const std::string& file, const std::string& kernel) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(10);
    close(STDERR_FILENO);  // hides the library's warnings about unknown names
    setenv("OPENBLAS_CORETYPE", kernel.c_str(), 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Loaded blas;
    double rate = blas.open(file, 1) ? trial_rate(blas) : 0;
    std::string actual = blas.kernel;
    const auto lower = [](std::string s) {
      std::transform(s.begin(), s.end(), s.begin(),
                     [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
      return s;
    };
    if (lower(actual) != lower(kernel)) rate = 0;  // the library fell back to another kernel
    const ssize_t written = write(pipe_ends[1], &rate, sizeof rate);
    _exit(written == sizeof rate ? 0 : 1);
  }
  close(pipe_ends[1]);
  double rate = 0;
  if (child < 0 || read(pipe_ends[0], &rate, sizeof rate) != sizeof rate) rate = 0;
  close(pipe_ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return rate;
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

/// The kernel that the library selects by default, read in a child process.
std::string default_kernel_of(const std::string& file) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    Loaded blas;
    if (blas.open(file, 1) && write(pipe_ends[1], blas.kernel.data(), blas.kernel.size()) < 0) _exit(1);
    _exit(0);
  }
  close(pipe_ends[1]);
  char text[100] = {};
  const ssize_t n = child > 0 ? read(pipe_ends[0], text, sizeof text - 1) : 0;
  close(pipe_ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
}

}  // namespace

std::unique_ptr<Blas> Blas::load(const std::string& which, const std::string& kernel, int threads) {
  std::vector<Candidate> wanted;
  for (const Candidate& c : candidates())
    if (which == "auto" || which == c.which) wanted.push_back(c);
  const bool is_path = which.find('/') != std::string::npos;
  if (is_path) wanted = {{"path", "BLAS", {which.c_str()}}};
  if (wanted.empty())
    throw UsageError("library", "found " + quote(which), "auto, mkl, openblas, flexiblas, blis, reference, or a path");
  for (const Candidate& c : wanted)
    for (const char* file : c.files) {
      // Probed in a child process too: once the library is loaded here, its kernel is fixed.
      if (access(file, R_OK) != 0 && is_path)
        throw UsageError("library", "cannot read " + quote(which), "a shared library");
      const std::string default_kernel = default_kernel_of(file);
      auto blas = std::make_unique<Loaded>();
      blas->name = c.name;
      if (!default_kernel.empty()) {  // OpenBLAS: it reports its kernel, and the kernel can be set
        if (kernel != "auto") {
          setenv("OPENBLAS_CORETYPE", kernel.c_str(), 1);
          blas->chosen_by = "user";
        } else if (std::getenv("OPENBLAS_CORETYPE") != nullptr) {
          blas->chosen_by = "environment";
        } else {
          blas->trials.push_back({default_kernel, try_kernel(file, default_kernel)});
          for (const char* name : runnable_kernels())
            if (name != default_kernel) blas->trials.push_back({name, try_kernel(file, name)});
          const auto best = std::max_element(blas->trials.begin(), blas->trials.end(),
                                             [](auto& a, auto& b) { return a.flop_rate < b.flop_rate; });
          // Switch only for a clear gain: the library's own choice rests on more than a short trial.
          if (best->flop_rate > 1.1 * blas->trials.front().flop_rate) {
            setenv("OPENBLAS_CORETYPE", best->kernel.c_str(), 1);
            blas->chosen_by = "trial";
          } else {
            blas->chosen_by = "library";
          }
        }
      } else {
        blas->chosen_by = "library";
      }
      setenv("OPENBLAS_NUM_THREADS", std::to_string(threads).c_str(), 1);
      setenv("BLIS_NUM_THREADS", std::to_string(threads).c_str(), 1);
      setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
      if (blas->open(file, threads)) return blas;
    }
  throw Absent("no BLAS library is installed (looked for " + which + ")",
               "Debian and Ubuntu: libopenblas0-pthread; Fedora: openblas-threads; Spack: openblas");
}

}  // namespace mm
