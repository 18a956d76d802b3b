#include "place/mix/work.hpp"

#include <ctime>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/options/arguments.hpp"

namespace mm::place::mix {
namespace {

void use_cpu_time(double time_s) {
  volatile unsigned counter = 0;
  while (static_cast<double>(kernel_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9 < time_s)
    for (int i = 0; i < 10'000; ++i) counter = counter + 1;
}

}  // namespace

int work_verb(int argc, char** argv) {
  int threads = 1;
  double cpu_time_s = 1;
  Arguments app{
      "Use CPU time in several threads, as a job of a mix that has no command.\n\n"
      "example: meshmark-place work --threads 2 --cpu-time 5s",
      "meshmark-place work"};
  app.add("--threads", threads, "number of threads").from(1, 4096).show_default();
  app.time("--cpu-time", cpu_time_s, "CPU time of each thread [1s]", 1e-3);
  if (!app.read(argc, argv, "")) return 0;
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(use_cpu_time, cpu_time_s);
  use_cpu_time(cpu_time_s);
  return 0;
}

}  // namespace mm::place::mix
