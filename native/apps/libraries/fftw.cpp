#include "apps/libraries/fftw.hpp"

#include <dlfcn.h>

#include "base/error.hpp"

namespace mm {
namespace {

// Constants of fftw3.h, https://www.fftw.org/fftw3_doc/ (API of FFTW 3).
constexpr int kForward = -1, kBackward = +1;
constexpr unsigned kMeasure = 0, kEstimate = 1U << 6;

template <class F>
bool get(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

std::shared_ptr<const Fftw> Fftw::load(int threads) {
  void* handle = dlopen("libfftw3.so.3", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr)
    throw Absent("FFTW is not installed (looked for libfftw3.so.3)",
                 "Debian and Ubuntu: libfftw3-double3; Fedora: fftw-libs-double; Spack: fftw");
  auto library = std::make_shared<Fftw>();
  if (!get(handle, "fftw_plan_dft", library->plan_dft_) || !get(handle, "fftw_execute", library->execute_) ||
      !get(handle, "fftw_destroy_plan", library->destroy_plan_) ||
      !get(handle, "fftw_set_timelimit", library->set_timelimit_))
    throw Failure("libfftw3.so.3 lacks functions of FFTW 3");
  if (const auto* text = static_cast<const char*>(dlsym(handle, "fftw_version"))) library->version = text;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(library->execute_), &info) != 0 && info.dli_fname != nullptr)
    library->path = info.dli_fname;
  if (threads > 1) {
    int (*init)() = nullptr;
    void (*set)(int) = nullptr;
    for (const char* file : {"libfftw3_omp.so.3", "libfftw3_threads.so.3"})
      if (void* threads_library = dlopen(file, RTLD_NOW | RTLD_GLOBAL))
        if (get(threads_library, "fftw_init_threads", init) && get(threads_library, "fftw_plan_with_nthreads", set))
          break;
    if (init == nullptr || set == nullptr || init() == 0)
      throw Absent("FFTW has no threads here (looked for libfftw3_omp.so.3 and libfftw3_threads.so.3)",
                   "Debian and Ubuntu: libfftw3-double3");
    set(threads);
  }
  return library;
}

Fftw::Plan::Plan(const Fftw& library, const std::vector<int>& shape, Complex* in, Complex* out, bool forward,
                 bool measured)
    : library_(library),
      plan_(library.plan_dft_(static_cast<int>(shape.size()), shape.data(), in, out, forward ? kForward : kBackward,
                              measured ? kMeasure : kEstimate)) {}

Fftw::Plan::~Plan() {
  if (plan_ != nullptr) library_.destroy_plan_(plan_);
}

void Fftw::Plan::run() const { library_.execute_(plan_); }

}  // namespace mm
