#pragma once
/// Locations of hwloc(7) such as `package:1.core:odd`, `~core:0` and `0xff`, resolved as hwloc-calc resolves them.
#include <string>
#include <vector>

#include "base/topology/readers/hwloc_reader.hpp"

namespace mm {

/// How the indexes of locations number objects: in hwloc's order, or as the operating system does (`--physical`).
enum class Indexes { logical, physical };

/// CPUs and NUMA nodes by OS index, ascending.
struct Located {
  std::vector<int> cpus, nodes;
};

/// Resolves locations on one machine, with the same levels and the same order as hwloc's own tools.
class Locations {
 public:
  /// Throws UsageError if hwloc did not read the machine (a recorded tree).
  explicit Locations(const Machine& machine);

  /// Adds the CPUs and nodes that `location` selects to `so_far`; the prefixes `~`, `x` and `^` remove, intersect and
  /// exclude them instead. With `mask_of_nodes`, a bit mask lists NUMA nodes, not CPUs. Throws UsageError for a
  /// location that selects nothing, and if hwloc-calc would leave out a missing object or versions of it differ.
  void combine(Located& so_far, const std::string& location, Indexes indexes, bool mask_of_nodes = false);

  /// Returns whether a word has the form of a location, so that it does not begin the command of hwloc-bind.
  static bool is_location(const std::string& word);

 private:
  struct Level {
    std::string name;  ///< as written, with its filter
    int depth;
    bool high_bandwidth;  ///< `hbm`: only NUMA nodes of the subtype MCDRAM
    std::string subtype;  ///< in lower case; "" without a filter
  };
  struct Step {
    Level level;
    std::string range;
  };

  Located select(const std::string& location, Indexes indexes);
  Located device(const std::string& location) const;
  Located mask(const std::string& text, bool of_nodes) const;
  Level level_of(const std::string& location, const std::string& name) const;
  std::string level_names() const;
  /// Returns the objects of a level inside `parent`; the whole level if `parent` is null.
  std::vector<hwloc_obj_t> inside(const std::string& location, const Level& level, hwloc_obj_t parent) const;

  HwlocHandle handle_;
  bool high_bandwidth_only_ = false;  ///< after `hbm:`, which hwloc 2.9 applies to all later locations
};

}  // namespace mm
