#pragma once
/// The threads of a rank, among which a kernel divides its loops.
#include <cstddef>
#include <exception>
#include <new>
#include <vector>

namespace mm::mpi::npb {

/// Returns the first item of part `i` when n items are divided into `parts`.
constexpr std::size_t part(std::size_t n, std::size_t parts, std::size_t i) { return n * i / parts; }

/// Returns the number of threads of this rank, which is the same on all ranks.
std::size_t threads();
/// Starts a thread for each of these CPUs, and binds it. Once per process. Throws Absent if fewer threads start.
void start_threads(const std::vector<int>& cpus);
/// Returns the index of the calling thread.
std::size_t this_thread();
/// On a thread of the team: ends the job with a message if OpenMP started a smaller team, which would leave parts out.
void expect_all_threads();

/// Calls work(first, last) on all threads, each with its part of 0 … n, and waits for them.
template <class Work>
void in_parts(std::size_t n, const Work& work) {
  const std::size_t count = threads();
  std::exception_ptr error;
#pragma omp parallel num_threads(static_cast<int>(count))
  {
    expect_all_threads();
    const std::size_t thread = this_thread();
    try {
      work(part(n, count, thread), part(n, count, thread + 1));
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

/// Returns the sum of what work(first, last) returns for the parts of 0 … n. The order of the parts makes it equal in
/// every run.
template <class Work>
double sum_in_parts(std::size_t n, const Work& work) {
  struct alignas(64) Own {
    double sum;
  };
  std::vector<Own> partial_sums(threads());
  in_parts(n, [&](std::size_t first, std::size_t last) { partial_sums[this_thread()].sum = work(first, last); });
  double sum = 0;
  for (const Own& partial : partial_sums) sum += partial.sum;
  return sum;
}

/// Allocates memory without writing to it: a page belongs to the memory node of the thread that writes to it first.
template <class T>
struct Untouched {
  using value_type = T;
  Untouched() = default;
  template <class Other>
  explicit Untouched(const Untouched<Other>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T))); }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory); }
  template <class U>
  void construct(U*) {}
  bool operator==(const Untouched&) const { return true; }
};
/// An array whose elements are not initialised.
template <class T>
using Array = std::vector<T, Untouched<T>>;

/// Sets all elements, each on the thread that has the same part of a loop over the array.
template <class T>
void fill(Array<T>& all, T value) {
  in_parts(all.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) all[i] = value;
  });
}
template <class T>
Array<T> zeros(std::size_t n) {
  Array<T> array(n);
  fill(array, T{});
  return array;
}

}  // namespace mm::mpi::npb
