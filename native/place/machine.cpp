/// Machines from hwloc: this host, a synthetic description or a file of XML.
#include <fcntl.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>

#include "error.hpp"
#include "input_file.hpp"
#include "json.hpp"
#include "options.hpp"
#include "team.hpp"
#include "types.hpp"

namespace mm::place {
namespace {

constexpr std::size_t kMaxCpus = 65536, kMaxNodes = 1024;
constexpr const char* kTopologies = "host, a description such as 'pack:2 [numa] core:4 pu:1', or a file of hwloc's XML";

using Handle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// hwloc and the XML library behind it write on standard error what they do not like; we say it in one line of our own.
class Hush {
 public:
  Hush() : saved_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (saved_ >= 0 && null >= 0) dup2(null, STDERR_FILENO);
    if (null >= 0) close(null);
  }
  ~Hush() {
    if (saved_ < 0) return;
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }
  Hush(const Hush&) = delete;
  Hush& operator=(const Hush&) = delete;

 private:
  int saved_;
};

/// An hwloc that is not loaded yet; numbers stay absolute and CPUs outside the cgroup are known.
Handle empty_handle() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Failure("hwloc cannot start");
  Handle handle(raw, hwloc_topology_destroy);
  hwloc_topology_set_flags(
      raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
  return handle;
}

/// This host, as sysfs tells it: every job starts through here, so only what placement needs is looked for.
Handle load_host(bool devices) {
  // hwloc's plugins (OpenCL, CUDA …) load their vendors' libraries before one can say that they are not wanted.
  constexpr const char* kPlugins = "HWLOC_PLUGINS_PATH";
  const char* before = std::getenv(kPlugins);
  const std::optional<std::string> saved = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
  setenv(kPlugins, "/proc/nonexistent", 1);
  Handle handle = empty_handle();
  saved ? setenv(kPlugins, saved->c_str(), 1) : unsetenv(kPlugins);

  hwloc_topology_t t = handle.get();
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  for (const auto type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE})
    hwloc_topology_set_type_filter(t, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);  // NUMA nodes hang at them
  if (devices) hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Binds this thread to every CPU in turn to ask each for its CPUID; sysfs says the same.
  hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(t) != 0) throw Failure("hwloc cannot read this machine's topology");
  return handle;
}

std::vector<int> ids(hwloc_const_bitmap_t set) {
  std::vector<int> found;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) found.push_back(i);
  return found;
}

std::vector<Device> read_devices(hwloc_topology_t t) {
  std::vector<Device> devices;
  const auto add = [&](const std::string& name, hwloc_obj_t object) {
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(t, object);
    if (near != nullptr && near->cpuset != nullptr) devices.push_back({name, ids(near->cpuset)});
  };
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(t, o)) != nullptr;)
    if (o->name != nullptr) add(o->name, o);
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_pcidev(t, o)) != nullptr;) {
    const auto& a = o->attr->pcidev;
    char name[32];
    std::snprintf(name, sizeof name, "%04x:%02x:%02x.%01x", static_cast<unsigned>(a.domain),
                  static_cast<unsigned>(a.bus), static_cast<unsigned>(a.dev), static_cast<unsigned>(a.func));
    add(name, o);
  }
  return devices;
}

/// Numbers objects densely in the order in which they are met.
class Dense {
 public:
  int of(const void* object) { return numbers_.emplace(object, static_cast<int>(numbers_.size())).first->second; }

 private:
  std::map<const void*, int> numbers_;
};

void read_nodes(hwloc_topology_t t, Machine& machine) {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o)) != nullptr;)
    objects.push_back(o);
  if (objects.size() > kMaxNodes)
    throw UsageError("topology", "found " + std::to_string(objects.size()) + " NUMA nodes", "up to 1024");
  std::sort(objects.begin(), objects.end(), [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  for (const hwloc_obj_t o : objects)
    machine.nodes.push_back({static_cast<int>(o->os_index), o->attr->numanode.local_memory, {}});

  // Memory of another kind (CXL, HBM) hangs at the same CPUs as the node that owns them, so each CPU belongs to the
  // smallest node around it, and among equals to the first.
  std::vector<std::size_t> order(objects.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return hwloc_bitmap_weight(objects[a]->cpuset) < hwloc_bitmap_weight(objects[b]->cpuset);
  });
  std::map<int, int> owner;
  for (const std::size_t i : order)
    for (const int cpu : ids(objects[i]->cpuset))
      if (owner.emplace(cpu, machine.nodes[i].id).second) machine.nodes[i].cpus.push_back(cpu);
  int default_value = machine.nodes.empty() ? 0 : machine.nodes.front().id;
  for (auto n = machine.nodes.rbegin(); n != machine.nodes.rend(); ++n)
    if (!n->cpus.empty()) default_value = n->id;
  for (Cpu& cpu : machine.cpus) {
    const auto at = owner.find(cpu.id);
    cpu.node = at != owner.end() ? at->second : default_value;  // its node has no memory: the kernel's matrix lacks it
  }

  const std::size_t count = machine.nodes.size();
  machine.distance.assign(count, std::vector<double>(count, 20));
  for (std::size_t i = 0; i < count; ++i) machine.distance[i][i] = 10;
  unsigned found = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_name(t, "NUMALatency", &found, &matrix, 0) != 0 || found == 0) return;
  if (matrix->nbobjs == count) {
    std::vector<int> at(count);
    bool complete = true;
    for (std::size_t i = 0; i < count; ++i) {
      at[i] = hwloc_distances_obj_index(matrix, objects[i]);
      complete = complete && at[i] >= 0;
    }
    if (complete) {
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < count; ++j)
          machine.distance[i][j] = static_cast<double>(
              matrix->values[static_cast<std::size_t>(at[i]) * count + static_cast<std::size_t>(at[j])]);
      machine.distance_from = "firmware";
    }
  }
  hwloc_distances_release(t, matrix);
}

Machine read(hwloc_topology_t t, const std::string& origin) {
  Machine machine;
  machine.origin = origin;
  Dense cores, packages, l3s;
  std::map<int, int> met;  // CPUs of a core so far
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_PACKAGE, pu);
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_CORE, pu);
    const hwloc_obj_t l3 = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_L3CACHE, pu);
    Cpu cpu{static_cast<int>(pu->os_index),
            cores.of(core != nullptr ? core : pu),
            packages.of(package),
            l3s.of(l3 != nullptr ? l3 : package),
            0,
            0};
    cpu.smt = met[cpu.core]++;
    machine.cpus.push_back(cpu);
  }
  if (machine.cpus.empty() || machine.cpus.size() > kMaxCpus)
    throw UsageError("topology", "found " + std::to_string(machine.cpus.size()) + " CPUs", "1 to 65536");
  std::sort(machine.cpus.begin(), machine.cpus.end(), [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  read_nodes(t, machine);
  return machine;
}

std::vector<int> online_of(const Machine& machine, const std::vector<int>& cpus) {
  std::vector<int> both;
  for (const Cpu& c : machine.cpus)
    if (std::binary_search(cpus.begin(), cpus.end(), c.id)) both.push_back(c.id);
  return both;
}

/// Whether this reads like a description (`pack:2 core:4`, or hwloc's short form `2 4`) rather than a file's name.
bool is_synthetic(const std::string& text) {
  return text.size() <= 500 && text.find_first_of("0123456789") != std::string::npos &&
         (text.find(':') != std::string::npos || text.find_first_not_of("0123456789 ") == std::string::npos) &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:()[]=*, _.-") ==
             std::string::npos;
}

/// CPUs that a description would make, so that `pack:99999 core:99999` is refused before hwloc allocates them.
double cpus_of_synthetic(const std::string& text) {
  double product = 1;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    const bool starts = i == 0 || text[i - 1] == ':' || text[i - 1] == ' ';
    if (depth == 0 && starts && std::isdigit(static_cast<unsigned char>(text[i])) != 0)
      product *= std::strtod(text.c_str() + i, nullptr);
  }
  return product;
}

std::string read_file(const std::string& field, const std::string& path) {
  Input input = read_input(path);
  if (!input.wrong.empty()) throw UsageError(field, shown_path(path) + ": " + input.wrong, input.allowed);
  return std::move(input.text);
}

Machine from_host() {
  const Handle handle = load_host(false);
  Machine machine = read(handle.get(), "host");
  machine.allowed = online_of(machine, allowed_cpus());
  if (machine.allowed.empty()) throw Failure("hwloc shows no CPU that this process may use: HWLOC_* variables set?");
  return machine;
}

/// hwloc trusts what it is given: some XML makes it abort, some makes it read where nothing is, some never lets it end,
/// and where memory ends so does it. A child of our own tries all that we will do. "" or how that one ended.
std::string ending_of_trial(const std::function<void()>& all) {
  constexpr rlim_t kMax_s = 10;  // of CPU time; 4 x 64 cores take 0.02 s
  const pid_t child = fork();
  if (child < 0) throw Failure(std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0) {
    const rlimit none{0, 0}, time{kMax_s, kMax_s};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &time);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      std::signal(fault, SIG_DFL);  // a sanitizer's, say
    const Hush hush;
    try {
      all();
    } catch (const std::exception&) {
      _exit(0);  // that one can be said by the parent
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFSIGNALED(status)) return std::string("it ended by signal: ") + strsignal(WTERMSIG(status)) + address_limit();
  return WEXITSTATUS(status) == 0 ? "" : "it ended with status " + std::to_string(WEXITSTATUS(status));
}

/// Empty where hwloc does not take the description.
Handle handle_of_synthetic(const std::string& text) {
  Handle handle = empty_handle();
  const Hush hush;
  if (hwloc_topology_set_synthetic(handle.get(), text.c_str()) != 0 || hwloc_topology_load(handle.get()) != 0)
    handle.reset();
  return handle;
}

Machine from_synthetic(const std::string& text) {
  if (cpus_of_synthetic(text) > static_cast<double>(kMaxCpus))
    throw UsageError("topology", "found " + quote(text), "up to 65536 CPUs");
  if (const std::string ending = ending_of_trial([&] { handle_of_synthetic(text); }); !ending.empty())
    throw Failure("topology: found " + quote(text) + ", which hwloc does not survive: " + ending);
  const Handle handle = handle_of_synthetic(text);
  if (!handle) throw UsageError("topology", "found " + quote(text) + ", which hwloc does not take", kTopologies);
  Machine machine = read(handle.get(), "synthetic");
  for (const Cpu& c : machine.cpus) machine.allowed.push_back(c.id);
  return machine;
}

/// An hwloc with this XML in it; none where hwloc does not take it.
Handle handle_of_xml(const std::string& xml) {
  Handle handle = empty_handle();
  hwloc_topology_set_io_types_filter(handle.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  const Hush hush;
  if (hwloc_topology_set_xmlbuffer(handle.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) != 0 ||
      hwloc_topology_load(handle.get()) != 0)
    handle.reset();
  return handle;
}

Machine read_xml(const Handle& handle) {
  Machine machine = read(handle.get(), "xml");
  machine.devices = read_devices(handle.get());
  return machine;
}

Machine from_xml(const std::string& path) {
  const std::string text = read_file("topology", path), named = shown_path(path);
  if (text.find("<topology") == std::string::npos)
    throw UsageError("topology", named + ": found no <topology>", kTopologies);
  const auto all = [&] {
    if (const Handle handle = handle_of_xml(text)) read_xml(handle);
  };
  if (const std::string ending = ending_of_trial(all); !ending.empty())
    throw UsageError("topology", named + ": found XML that hwloc does not survive: " + ending, kTopologies);
  const Handle handle = handle_of_xml(text);
  if (!handle) throw UsageError("topology", named + ": found no XML that hwloc takes", kTopologies);
  Machine machine = read_xml(handle);
  machine.allowed = online_of(machine, ids(hwloc_topology_get_allowed_cpuset(handle.get())));
  const char* host = hwloc_obj_get_info_by_name(hwloc_get_root_obj(handle.get()), "HostName");
  char here[256] = {};
  gethostname(here, sizeof here - 1);
  if (host != nullptr && std::string(host) == here &&
      sysconf(_SC_NPROCESSORS_ONLN) == static_cast<long>(machine.cpus.size()))
    machine.allowed = online_of(machine, allowed_cpus());
  if (machine.allowed.empty()) throw UsageError("topology", named + ": allows no CPU", kTopologies);
  return machine;
}

}  // namespace

Machine machine_of(const std::string& topology) {
  if (topology == "host") return from_host();
  std::error_code none;
  if (std::filesystem::exists(topology, none)) return from_xml(topology);
  if (is_synthetic(topology)) return from_synthetic(topology);
  throw UsageError("topology", "found " + quote(topology), kTopologies);
}

std::vector<Device> host_devices() {
  const Handle handle = load_host(true);
  return read_devices(handle.get());
}

void use_matrix(Machine& machine, const std::string& file) {
  const auto wrong = [&](const std::string& what, const std::string& allowed) -> UsageError {
    return {"matrix", shown_path(file) + ": " + what, allowed};
  };
  const json given = parse_json(read_file("matrix", file));
  if (!given.is_object())
    throw wrong("found no JSON object", R"({"nodes": […], "unit": …, "what": …, "values": [[…]]})");
  for (const char* key : {"nodes", "unit", "what", "values"})
    if (!given.contains(key)) throw wrong(std::string("found no '") + key + "'", "nodes, unit, what, values, better");
  for (const char* key : {"unit", "what"})
    if (!given[key].is_string()) throw wrong(std::string(key) + ": found " + shown_json(given[key]), "a text");
  const bool higher = given.contains("better") && given["better"] == "higher";
  if (given.contains("better") && !higher && given["better"] != "lower")
    throw wrong("better: found " + shown_json(given["better"]), "lower, higher");
  const json &nodes = given["nodes"], &values = given["values"];
  if (!nodes.is_array() || !values.is_array() || nodes.size() != values.size())
    throw wrong("found " + std::to_string(nodes.size()) + " nodes and " + std::to_string(values.size()) + " rows",
                "a row and a column a node");

  std::map<int, std::size_t> row;  // OS index → row of the file
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].is_number_integer()) throw wrong("nodes: found " + shown_json(nodes[i]), "OS indices of nodes");
    const int id = nodes[i].get<int>();
    machine.node_at(id);
    if (!row.emplace(id, i).second) throw wrong("nodes: found " + std::to_string(id) + " twice", "each node once");
  }
  const double unknown = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> distance(machine.nodes.size(), std::vector<double>(machine.nodes.size(), unknown));
  for (std::size_t i = 0; i < machine.nodes.size(); ++i)
    for (std::size_t j = 0; j < machine.nodes.size(); ++j) {
      const Node &from = machine.nodes[i], &to = machine.nodes[j];
      const auto a = row.find(from.id), b = row.find(to.id);
      const std::string pair = "node " + std::to_string(from.id) + " to " + std::to_string(to.id);
      const bool needed = !from.cpus.empty() && !to.cpus.empty();
      const json* value = nullptr;
      if (a != row.end() && b != row.end()) {
        const json& line = values[a->second];
        if (!line.is_array() || line.size() != nodes.size())
          throw wrong("row of node " + std::to_string(from.id) + " has not " + std::to_string(nodes.size()) + " values",
                      "a row and a column a node");
        value = &line[b->second];
      }
      if (value == nullptr || value->is_null()) {
        if (needed) throw wrong(pair + ": found no value", "one for each two nodes that have CPUs");
        continue;
      }
      if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0)
        throw wrong(pair + ": found " + shown_json(*value), "numbers above 0");
      distance[i][j] = higher ? 1 / value->get<double>() : value->get<double>();
    }
  machine.distance = std::move(distance);
  machine.distance_from =
      (higher ? "1 / " : "") + given["what"].get<std::string>() + " (" + given["unit"].get<std::string>() + ")";
}

const Cpu& Machine::cpu(int id) const {
  const auto at = std::lower_bound(cpus.begin(), cpus.end(), id, [](const Cpu& c, int i) { return c.id < i; });
  if (at != cpus.end() && at->id == id) return *at;
  std::vector<int> online;
  for (const Cpu& c : cpus) online.push_back(c.id);
  throw UsageError("cpus", "found cpu " + std::to_string(id) + ", which is not online", cpu_list(online));
}

std::size_t Machine::node_at(int id) const {
  std::vector<int> there;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].id == id) return i;
    there.push_back(nodes[i].id);
  }
  throw UsageError("node", "found node " + std::to_string(id), cpu_list(there));
}

int Machine::hops(int from_node, int to_node) const {
  const std::size_t from = node_at(from_node), to = node_at(to_node);
  if (from == to) return 0;
  std::vector<double> values;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (std::size_t j = 0; j < nodes.size(); ++j)
      if (i != j) values.push_back(distance[i][j]);
  std::sort(values.begin(), values.end());
  int rank = 0;
  double group = -1;
  for (const double v : values) {  // measured values are never quite equal: those within 2 % are one
    if (group < 0 || v > group * 1.02) {
      group = v;
      ++rank;
    }
    if (v >= distance[from][to]) break;
  }
  return rank;
}

std::vector<int> Layout::cpus() const {
  std::vector<int> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace mm::place
