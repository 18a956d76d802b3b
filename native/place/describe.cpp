#include "place/describe.hpp"

#include "base/harness/output.hpp"
#include "base/harness/run_state.hpp"
#include "base/options/arguments.hpp"
#include "place/binding/bind.hpp"
#include "place/policy/policy.hpp"

namespace mm::place {
namespace {

json named(const std::vector<std::pair<std::string, std::string>>& entries) {
  json all = json::array();
  for (const auto& [name, help] : entries) all.push_back({{"name", name}, {"help", help}});
  return all;
}

}  // namespace

const std::vector<Metric>& run_metrics() {
  static const std::vector<Metric> all = {
      {"elapsed", "time from start to end", "s", Better::lower},
      {"user", "CPU time in the program, of all threads", "s", Better::lower},
      {"system", "CPU time in the Linux kernel, of all threads", "s", Better::lower},
      {"waiting", "time that threads were runnable but waited for a CPU, of all threads", "s", Better::lower},
  };
  return all;
}

int describe_verb(int argc, char** argv) {
  Arguments app{"List policies, memory policies, page sizes and metrics.\n\nexample: meshmark-place describe",
                "meshmark-place describe"};
  if (!app.read(argc, argv, "describe")) return 0;
  mm::emit(json{{"schema", 1},
                {"policies", named(policies())},
                {"modifiers", named(modifiers())},
                {"memory", memory_policies()},
                {"pages", page_sizes()},
                {"metrics", describe(run_metrics())}});
  return 0;
}

}  // namespace mm::place
