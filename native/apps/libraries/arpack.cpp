#include "apps/libraries/arpack.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/error.hpp"
#include "base/libraries/blas.hpp"

namespace mm {
namespace {

constexpr int kMaxRestarts = 1000;

std::string file_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace

std::shared_ptr<const Arpack> Arpack::load(int threads) {
  limit_library_threads(threads);
  void* handle = dlopen("libarpack.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw Absent("ARPACK is not installed (looked for libarpack.so.2)",
                 "Debian and Ubuntu: libarpack2; Fedora: arpack; Spack: arpack-ng");
  auto library = std::make_shared<Arpack>();
  library->step_ = reinterpret_cast<Step>(dlsym(handle, "dsaupd_"));
  library->extract_ = reinterpret_cast<Extract>(dlsym(handle, "dseupd_"));
  if (library->step_ == nullptr || library->extract_ == nullptr) throw Failure("libarpack.so.2 lacks dsaupd or dseupd");
  library->path = file_of(reinterpret_cast<void*>(library->step_));
  if (void* blas = dlsym(handle, "dgemv_"))
    library->blas_path = file_of(blas);  // also searches the libraries that it depends on
  return library;
}

std::size_t Arpack::words(std::size_t rows, int basis) {
  const auto m = static_cast<std::size_t>(basis);
  return rows * (4 + m) + m * (m + 8);
}

Arpack::Solution Arpack::solve(const Problem& p, double* memory) const {
  const auto rows = static_cast<std::size_t>(p.rows), m = static_cast<std::size_t>(p.basis);
  double* const residual = memory;
  double* const work = residual + rows;  // three vectors
  double* const basis = work + 3 * rows;
  double* const small = basis + m * rows;
  const int small_size = p.basis * (p.basis + 8);
  int parameters[11] = {1, 0, kMaxRestarts, 1, 0, 0, 1}, pointers[14] = {};
  int request = 0, info = 1;  // 1: start with `residual`
  Solution solution;
  for (;;) {
    step_(&request, "I", &p.rows, "LA", &p.values, &p.tolerance, residual, &p.basis, basis, &p.rows, parameters,
          pointers, work, small, &small_size, &info, 1, 2);
    if (request != -1 && request != 1) break;
    p.multiply(work + pointers[0] - 1, work + pointers[1] - 1);
    ++solution.products;
  }
  solution.info = info;
  if (info != 0) return solution;
  const int vectors = 1;
  const double unused = 0;
  std::vector<int> selection(m);
  std::vector<double> values(static_cast<std::size_t>(p.values));
  extract_(&vectors, "A", selection.data(), values.data(), basis, &p.rows, &unused, "I", &p.rows, "LA", &p.values,
           &p.tolerance, residual, &p.basis, basis, &p.rows, parameters, pointers, work, small, &small_size, &info, 1,
           1, 2);
  solution.info = info;
  if (info != 0) return solution;
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  for (const std::size_t i : order) {
    solution.values.push_back(values[i]);
    solution.vectors.push_back(basis + i * rows);
  }
  return solution;
}

}  // namespace mm
