#include "base/topology/locations.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "base/error.hpp"
#include "base/options/options.hpp"

namespace mm {
namespace {

constexpr const char* kExamples = "locations such as package:0.core:1, core:all.pu:0, ~pu:2 or 0x11";
constexpr const char* kIndexes = "indexes such as 2, 0-3, 2-, 6:4, all, odd or even";

[[noreturn]] void refuse(const std::string& location, const std::string& reason,
                         const std::string& allowed = kExamples) {
  throw UsageError("hwloc", "found " + quote(location) + reason, allowed);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Indexes of one step, in hwloc's grammar.
struct IndexRange {
  long first = 0, last = 0;  ///< `last` is used by X and X-Y
  long count = 1;            ///< N in X:N
  long step = 1;             ///< 2 for odd and even
  enum class Kind { listed, open, wrapped } kind = Kind::listed;
};

IndexRange range_of(const std::string& location, const std::string& text) {
  if (text == "all") return {.kind = IndexRange::Kind::open};
  if (text == "odd") return {.first = 1, .step = 2, .kind = IndexRange::Kind::open};
  if (text == "even") return {.step = 2, .kind = IndexRange::Kind::open};
  const auto number = [&](const std::string& digits) {
    if (digits.empty() || digits.size() > 7 || digits.find_first_not_of("0123456789") != std::string::npos)
      refuse(location, "", kIndexes);
    return std::stol(digits);
  };
  IndexRange range;
  if (const std::size_t dash = text.find('-'); dash != std::string::npos) {
    range.first = number(text.substr(0, dash));
    if (dash + 1 == text.size()) {
      range.kind = IndexRange::Kind::open;
      return range;
    }
    range.last = number(text.substr(dash + 1));
    if (range.last < range.first) refuse(location, ", a range that descends", kIndexes);
  } else if (const std::size_t colon = text.find(':'); colon != std::string::npos) {
    range.first = number(text.substr(0, colon));
    range.count = number(text.substr(colon + 1));
    range.kind = IndexRange::Kind::wrapped;
    if (range.count < 1) refuse(location, ", which selects no object", kIndexes);
  } else {
    range.first = range.last = number(text);
  }
  return range;
}

/// Returns the indexes of a range among `width` objects, in hwloc's order; empty if the range begins after the last
/// one.
std::vector<long> indexes_of(const IndexRange& range, long width) {
  std::vector<long> indexes;
  if (range.kind == IndexRange::Kind::listed) {
    for (long i = range.first; i <= range.last; ++i) indexes.push_back(i);
  } else if (range.kind == IndexRange::Kind::open) {
    for (long i = range.first; i < width; i += range.step) indexes.push_back(i);
  } else if (range.first < width) {
    for (long n = 0; n < std::min(range.count, width); ++n) indexes.push_back((range.first + n) % width);
  }
  return indexes;
}

void add(std::vector<int>& numbers, hwloc_const_bitmap_t set) {
  const std::vector<int> members = ids(set);
  numbers.insert(numbers.end(), members.begin(), members.end());
}

void sort(std::vector<int>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

void merge(std::vector<int>& so_far, const std::vector<int>& more, char prefix) {
  std::vector<int> result;
  const auto output = std::back_inserter(result);
  if (prefix == '~')
    std::set_difference(so_far.begin(), so_far.end(), more.begin(), more.end(), output);
  else if (prefix == 'x')
    std::set_intersection(so_far.begin(), so_far.end(), more.begin(), more.end(), output);
  else if (prefix == '^')
    std::set_symmetric_difference(so_far.begin(), so_far.end(), more.begin(), more.end(), output);
  else
    std::set_union(so_far.begin(), so_far.end(), more.begin(), more.end(), output);
  so_far = std::move(result);
}

/// Returns the end of a level's name, which may have a filter in brackets: the position of `:`, `=` or `.`, or npos.
std::size_t end_of_level(const std::string& text) {
  std::size_t end = text.find_first_of(":=.[");
  if (end != std::string::npos && text[end] == '[') end = text.find_first_of(":=.", text.find(']', end));
  return end;
}

}  // namespace

Locations::Locations(const Machine& machine) : handle_(whole_hwloc(machine)) {}

bool Locations::is_location(const std::string& word) {
  const std::size_t begin = word.find_first_not_of("~^x");
  const std::string text = word.substr(std::min<std::size_t>(begin == std::string::npos ? 0 : begin, 1));
  if (text == "all" || text == "root" || text.starts_with("0x") || text.starts_with("0X")) return true;
  const std::size_t end = end_of_level(text);
  return text.find('/') == std::string::npos && end != std::string::npos && end > 0 && text[end] != '.';
}

void Locations::combine(Located& so_far, const std::string& location, Indexes indexes, bool mask_of_nodes) {
  const char prefix = !location.empty() && std::string("~x^").find(location[0]) != std::string::npos ? location[0] : 0;
  const std::string text = location.substr(prefix != 0 ? 1 : 0);
  Located selection;
  if (text == "all" || text == "root") {
    add(selection.cpus, hwloc_topology_get_topology_cpuset(handle_.get()));
    add(selection.nodes, hwloc_topology_get_topology_nodeset(handle_.get()));
  } else if (text.starts_with("0x") || text.starts_with("0X")) {
    selection = mask(text, mask_of_nodes);
  } else if (const std::size_t end = end_of_level(text); end == std::string::npos || end == 0) {
    refuse(location, "");
  } else {
    selection = text[end] == '=' ? device(text) : select(text, indexes);
  }
  sort(selection.cpus);
  sort(selection.nodes);
  merge(so_far.cpus, selection.cpus, prefix);
  merge(so_far.nodes, selection.nodes, prefix);
}

Located Locations::select(const std::string& location, Indexes indexes) {
  std::vector<Step> steps;
  for (std::string rest = location;;) {
    const std::size_t end = end_of_level(rest);
    if (end == std::string::npos || end == 0 || rest[end] != ':') refuse(location, "");
    const std::size_t dot = rest.find('.', end);
    steps.push_back({level_of(location, rest.substr(0, end)),
                     rest.substr(end + 1, dot == std::string::npos ? dot : dot - end - 1)});
    if (dot == std::string::npos) break;
    rest = rest.substr(dot + 1);
  }
  for (const Step& step : steps) {
    if (high_bandwidth_only_ && !step.level.high_bandwidth && step.level.depth == HWLOC_TYPE_DEPTH_NUMANODE)
      refuse(location, " after hbm:, where versions of hwloc differ", "NUMA nodes before hbm:");
    high_bandwidth_only_ = high_bandwidth_only_ || step.level.high_bandwidth;
  }
  std::vector<hwloc_obj_t> parents = {nullptr};
  for (const Step& step : steps) {
    const IndexRange range = range_of(location, step.range);
    std::set<long> missing_indexes, present_indexes;
    long max_objects = 0;  // largest number of objects in one parent
    std::vector<hwloc_obj_t> objects;
    for (const hwloc_obj_t parent : parents) {
      const std::vector<hwloc_obj_t> level = inside(location, step.level, parent);
      const long width = static_cast<long>(level.size());
      max_objects = std::max(max_objects, width);
      for (const long index : indexes_of(range, width)) {
        const auto at = indexes == Indexes::logical ? level.begin() + std::min(index, width)
                                                    : std::find_if(level.begin(), level.end(), [&](hwloc_obj_t object) {
                                                        return object->os_index == static_cast<unsigned>(index);
                                                      });
        (at == level.end() ? missing_indexes : present_indexes).insert(index);
        if (at != level.end()) objects.push_back(*at);
      }
    }
    const std::string subject = std::string(&step == steps.data() ? "this machine" : "a parent") + " has ";
    const std::string count_text = subject + std::to_string(max_objects) + " of the level " + quote(step.level.name);
    for (const long index : missing_indexes)
      if (!present_indexes.contains(index) || (indexes == Indexes::physical && range.kind != IndexRange::Kind::listed))
        refuse(location,
               indexes == Indexes::logical ? ": " + count_text
                                           : ": no object of the level " + quote(step.level.name) +
                                                 " has the physical number " + std::to_string(index),
               indexes == Indexes::logical ? (max_objects > 1    ? "0-" + std::to_string(max_objects - 1)
                                              : max_objects == 1 ? "0"
                                                                 : "levels with objects there")
                                           : "physical numbers that exist, each or as X-Y");
    if (objects.empty()) refuse(location, ", which selects no object: " + count_text, kIndexes);
    parents = std::move(objects);
  }
  Located selection;
  for (const hwloc_obj_t object : parents) {
    add(selection.cpus, object->cpuset);
    add(selection.nodes, object->nodeset);
  }
  return selection;
}

std::vector<hwloc_obj_t> Locations::inside(const std::string& location, const Level& level, hwloc_obj_t parent) const {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_depth(handle_.get(), level.depth, o)) != nullptr;) {
    const bool no_cpus = hwloc_bitmap_iszero(o->cpuset) != 0, no_nodes = hwloc_bitmap_iszero(o->nodeset) != 0;
    if (no_cpus && no_nodes) continue;
    if (level.high_bandwidth && (o->subtype == nullptr || std::string(o->subtype) != "MCDRAM")) continue;
    if (!level.subtype.empty() && (o->subtype == nullptr || lower(o->subtype) != level.subtype)) continue;
    if (parent != nullptr) {
      if (!no_cpus && hwloc_bitmap_intersects(o->cpuset, parent->cpuset) == 0) continue;
      if (!no_nodes && hwloc_bitmap_intersects(o->nodeset, parent->nodeset) == 0) continue;
      if (hwloc_bitmap_isincluded(o->cpuset, parent->cpuset) == 0 ||
          hwloc_bitmap_isincluded(o->nodeset, parent->nodeset) == 0)
        refuse(location,
               ": an object of the level " + quote(level.name) +
                   " is only partly inside its parent; hwloc before 2.10 leaves it out, later versions take all of it",
               "levels that contain each other, the larger one first");
    }
    objects.push_back(o);
  }
  return objects;
}

Locations::Level Locations::level_of(const std::string& location, const std::string& name) const {
  const std::size_t bracket = name.find('[');
  const std::string plain = name.substr(0, bracket);
  Level level{name, HWLOC_TYPE_DEPTH_UNKNOWN, false, ""};
  hwloc_topology_t topology = handle_.get();
  hwloc_obj_type_t type = HWLOC_OBJ_MACHINE;
  if (lower(plain) == "hbm" || lower(plain) == "mcdram") {
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, o)) != nullptr;)
      if (o->subtype != nullptr && lower(o->subtype) == "hbm")
        refuse(location, ": hwloc 2.9 takes only nodes of the subtype MCDRAM, and some of this machine have HBM",
               "numanode[hbm]:N");
    level.high_bandwidth = true;
    level.depth = HWLOC_TYPE_DEPTH_NUMANODE;
  } else if (hwloc_type_sscanf_as_depth(plain.c_str(), &type, topology, &level.depth) != 0) {
    if (!plain.empty() && plain.find_first_not_of("0123456789") == std::string::npos)
      refuse(location, ": a level by its depth, which hwloc-bind takes and hwloc-calc 2.9 refuses", level_names());
    level.depth = HWLOC_TYPE_DEPTH_UNKNOWN;
  }
  if (level.depth == HWLOC_TYPE_DEPTH_MULTIPLE)
    refuse(location, ": this machine has several levels of the type " + quote(plain), level_names());
  if (level.depth == HWLOC_TYPE_DEPTH_UNKNOWN)
    refuse(location, ": this machine has no level " + quote(plain), level_names());
  if (level.depth < 0 && level.depth != HWLOC_TYPE_DEPTH_NUMANODE)
    refuse(location, ": devices are not selected by index", "os=NAME, pci=BUS-ID, or " + level_names());
  if (bracket == std::string::npos) return level;
  const std::size_t close = name.find(']', bracket);
  if (close == std::string::npos || close + 1 != name.size()) refuse(location, "");
  level.subtype = lower(name.substr(bracket + 1, close - bracket - 1));
  if (level.subtype.starts_with("subtype=")) level.subtype = level.subtype.substr(8);
  if (level.subtype.empty() || level.subtype.find('=') != std::string::npos)
    refuse(location, ", whose filter is not supported", "a subtype, such as numanode[mcdram]:0");
  return level;
}

std::string Locations::level_names() const {
  std::vector<std::string> names;
  for (int depth = 0; depth < hwloc_topology_get_depth(handle_.get()); ++depth) {
    char name[64];
    hwloc_obj_type_snprintf(name, sizeof name, hwloc_get_obj_by_depth(handle_.get(), depth, 0), 1);
    names.push_back(lower(name));
  }
  names.emplace_back("numanode");
  return joined(names);
}

Located Locations::device(const std::string& location) const {
  const std::size_t equals = location.find('=');
  const std::string type = location.substr(0, equals), name = location.substr(equals + 1);
  hwloc_obj_t object = nullptr;
  if (type == "pci" || type == "pcidev") {
    object = hwloc_get_pcidev_by_busidstring(handle_.get(), name.c_str());
  } else if (type == "os" || type == "osdev") {
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(handle_.get(), o)) != nullptr && object == nullptr;)
      if (o->name != nullptr && o->name == name) object = o;
  } else {
    refuse(location, "", "os=NAME, pci=BUS-ID, or " + std::string(kExamples));
  }
  if (object == nullptr) refuse(location, ", a device that this machine does not have", "a device that lstopo lists");
  object = hwloc_get_non_io_ancestor_obj(handle_.get(), object);
  Located selection;
  add(selection.cpus, object->cpuset);
  add(selection.nodes, object->nodeset);
  return selection;
}

Located Locations::mask(const std::string& text, bool of_nodes) const {
  // 0xf...f stands for all higher bits; other masks have groups of 32 bits.
  constexpr const char* kInfinite = "0xf...f";
  const bool infinite = lower(text).starts_with(kInfinite);
  std::string finite = infinite ? text.substr(std::string(kInfinite).size()) : text;
  if (infinite && !finite.empty() && finite[0] != ',') refuse(text, "", "0xf...f, or 0xf...f,0x1");
  const auto groups = static_cast<int>(std::count(finite.begin(), finite.end(), ','));
  if (infinite && !finite.empty()) finite = finite.substr(1);
  const hwloc_const_bitmap_t all_bits =
      of_nodes ? hwloc_topology_get_topology_nodeset(handle_.get()) : hwloc_topology_get_topology_cpuset(handle_.get());
  std::vector<int> bits;
  if (!finite.empty()) {
    const auto finite_bits = parse_mask(finite);
    if (!finite_bits) refuse(text, "");
    bits = *finite_bits;
  }
  for (const int bit : bits)
    if (hwloc_bitmap_isset(all_bits, static_cast<unsigned>(bit)) == 0)
      refuse(text, std::string(", whose bit ") + std::to_string(bit) + (of_nodes ? " is not a node" : " is not a CPU"),
             (of_nodes ? "nodes " : "CPUs ") + cpu_list(ids(all_bits)));
  if (infinite)
    for (const int bit : ids(all_bits))
      if (bit >= 32 * groups) bits.push_back(bit);
  sort(bits);
  Located selection;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(handle_.get(), HWLOC_OBJ_NUMANODE, o)) != nullptr;) {
    if (of_nodes && std::binary_search(bits.begin(), bits.end(), static_cast<int>(o->os_index)))
      add(selection.cpus, o->cpuset);
    if (!of_nodes && std::any_of(bits.begin(), bits.end(),
                                 [&](int cpu) { return hwloc_bitmap_isset(o->cpuset, static_cast<unsigned>(cpu)); }))
      selection.nodes.push_back(static_cast<int>(o->os_index));
  }
  (of_nodes ? selection.nodes : selection.cpus) = bits;
  return selection;
}

}  // namespace mm
