#include "load/describe.hpp"

#include <cstdio>
#include <iostream>

#include "base/harness/output.hpp"
#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "base/resources/counts.hpp"
#include "workloads/kernel.hpp"

namespace mm::load {

int kernels_verb(int argc, char** argv) {
  Arguments app{"List the load kernels of synthetic programs.\n\nexample: meshmark-load kernels --json",
                "meshmark-load kernels"};
  bool as_json = false;
  app.flag("--json", as_json, "print one JSON object per line");
  if (!app.read(argc, argv, "kernels")) return 0;
  for (const workloads::KernelEntry& e : workloads::kernels()) {
    if (as_json)
      emit({{"name", e.info.name},
            {"kind", e.info.kind},
            {"summary", e.info.summary},
            {"source", e.info.source},
            {"parity", e.info.parity},
            {"sized", e.info.sized},
            {"strided", e.info.strided},
            {"team", e.info.team},
            {"type", e.info.stands_for}});
    else
      std::printf("%-22s %-10s %s\n", e.info.name.c_str(), e.info.kind.c_str(), e.info.summary.c_str());
  }
  return 0;
}

int describe_verb(int argc, char** argv) {
  Arguments app{"Describe the counts of load kernels in JSON.\n\nexample: meshmark-load describe",
                "meshmark-load describe"};
  if (!app.read(argc, argv, "describe")) return 0;
  json counts = json::array(), counters = json::array();
  for (const workloads::CountColumn& c : workloads::kCountColumns)
    counts.push_back({{"name", c.name}, {"unit", c.unit}, {"help", c.meaning}});
  for (const perf::ThreadEvent& e : perf::thread_events())
    counters.push_back({{"name", e.name}, {"unit", e.unit}, {"help", e.meaning}});
  emit({{"schema", 1}, {"name", "load"}, {"counts", counts}, {"counters", counters}});
  return 0;
}

}  // namespace mm::load
