#include "place/machine.hpp"

#include <iostream>

#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "base/topology/topology.hpp"
#include "base/topology/topology_json.hpp"

namespace mm::place {

int machine_verb(int argc, char** argv) {
  std::string topology;
  Arguments app{
      "Describe the topology of a machine in JSON.\n\n"
      "example: meshmark-place machine 'pack:2 [numa] core:4 pu:1'",
      "meshmark-place machine"};
  app.add("TOPOLOGY", topology, "a synthetic description, or an XML file of hwloc").required();
  if (!app.read(argc, argv, "machine")) return 0;
  std::cout << to_line(topology_json(machine_of(topology))) << '\n' << std::flush;
  return 0;
}

}  // namespace mm::place
