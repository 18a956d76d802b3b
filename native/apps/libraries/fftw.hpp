#pragma once
/// Fourier transforms through the installed FFTW library, loaded at run time.
#include <complex>
#include <memory>
#include <string>
#include <vector>

namespace mm {

class Fftw {
 public:
  using Complex = std::complex<double>;

  /// Loads the library for this number of threads. Throws Absent, with the packages to install, if FFTW is not
  /// installed, or if `threads` is above 1 and its library for threads is not installed.
  static std::shared_ptr<const Fftw> load(int threads);

  /// A plan of a complex transform between two arrays, in row-major order.
  class Plan {
   public:
    Plan(const Fftw& library, const std::vector<int>& shape, Complex* in, Complex* out, bool forward, bool measured);
    ~Plan();
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    void run() const;
    bool made() const { return plan_ != nullptr; }

   private:
    const Fftw& library_;
    void* plan_;
  };

  /// Limits the time, in s, that the library spends on trials when it makes a plan.
  void limit_planning(double seconds) const { set_timelimit_(seconds); }

  std::string version, path;

 private:
  void* (*plan_dft_)(int, const int*, void*, void*, int, unsigned) = nullptr;
  void (*execute_)(void*) = nullptr;
  void (*destroy_plan_)(void*) = nullptr;
  void (*set_timelimit_)(double) = nullptr;
};

}  // namespace mm
