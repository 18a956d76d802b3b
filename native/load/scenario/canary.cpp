#include "load/scenario/canary.hpp"

#include <cstdint>
#include <exception>

#include "base/harness/output.hpp"
#include "watch/traffic/paced.hpp"

namespace mm::load {

void Canary::prepare() {
  if (!watch::can_flush()) return;
  try {
    walker_ = std::make_unique<watch::Walker>(0, false, 1);
  } catch (const std::exception&) {  // the run then lacks memory latency but is otherwise complete
  }
}

void Canary::sample(const char* when) {
  if (!walker_) return;
  const double before_s = own_cpu_s();
  const double load_s = walker_->walk();
  const Ticks begin = ticks();
  [[maybe_unused]] const volatile std::uint64_t sum = dependent_adds(20'000);
  const double adds_s = seconds(ticks() - begin);
  emit({{"type", "canary"},
        {"t_s", rounded(clock_.now())},
        {"when", when},
        {"load_latency_s", load_s},
        {"adds_s", adds_s}});
  cost_s += own_cpu_s() - before_s;
}

}  // namespace mm::load
