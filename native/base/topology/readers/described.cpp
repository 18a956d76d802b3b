/// Machines from a synthetic description or a file of hwloc's XML.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/options/options.hpp"
#include "base/resources/child.hpp"
#include "base/resources/team.hpp"
#include "base/topology/readers/hwloc_reader.hpp"

namespace mm {
namespace {

constexpr const char* kTopologies = "host, a description such as 'pack:2 [numa] core:4 pu:1', or a file of hwloc's XML";

/// Discards standard error, on which hwloc and its XML library print complaints: Meshmark reports them on one line.
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

/// Returns whether the text looks like a description (`pack:2 core:4`, or hwloc's short form `2 4`) rather than the
/// name of a file.
bool is_synthetic(const std::string& text) {
  return text.size() <= 500 && text.find_first_of("0123456789") != std::string::npos &&
         (text.find(':') != std::string::npos || text.find_first_not_of("0123456789 ") == std::string::npos) &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:()[]=*, _.-") ==
             std::string::npos;
}

/// Returns how many CPUs a description has, so that `pack:99999 core:99999` is refused before hwloc allocates them.
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

/// Runs `all` in a child process, because hwloc trusts its input: some XML makes it abort, read out of bounds or run
/// forever, and it ends the process when memory is exhausted. Returns "" if the child succeeded, otherwise how it
/// ended.
std::string ending_of_trial(const std::function<void()>& all) {
  constexpr rlim_t kMax_s = 10;  // CPU time; 4 x 64 cores take 0.02 s
  const pid_t child = start_child();
  if (child == 0) {
    const rlimit no_core_dump{0, 0}, cpu_time{kMax_s, kMax_s};
    setrlimit(RLIMIT_CORE, &no_core_dump);
    setrlimit(RLIMIT_CPU, &cpu_time);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      std::signal(fault, SIG_DFL);  // removes handlers such as a sanitizer's
    const Hush hush;
    try {
      all();
    } catch (const std::exception&) {
      _exit(0);  // the parent gets and reports the same exception
    }
    _exit(0);
  }
  const int status = wait_for_child(child);
  if (WIFSIGNALED(status)) return std::string("it ended by signal: ") + strsignal(WTERMSIG(status)) + address_limit();
  return WEXITSTATUS(status) == 0 ? "" : "it ended with status " + std::to_string(WEXITSTATUS(status));
}

/// Returns the topology of a description; an empty handle if hwloc rejects it.
HwlocHandle handle_of_synthetic(const std::string& text, HwlocHandle handle = empty_hwloc()) {
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
  const HwlocHandle handle = handle_of_synthetic(text);
  if (!handle) throw UsageError("topology", "found " + quote(text) + ", which hwloc does not take", kTopologies);
  Machine machine = read_machine(handle.get(), "synthetic");
  machine.source = text;
  machine.allowed = machine.ids();
  for (Node& node : machine.nodes)
    if (node.bytes == 0) node.bytes.reset();  // the description of a node may omit its size
  describe_machine(handle.get(), machine);
  return machine;
}

/// Returns the topology of this XML; an empty handle if hwloc rejects it.
HwlocHandle handle_of_xml(const std::string& xml, HwlocHandle handle = empty_hwloc(true)) {
  hwloc_topology_set_io_types_filter(handle.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_icache_types_filter(handle.get(), HWLOC_TYPE_FILTER_KEEP_ALL);
  const Hush hush;
  if (hwloc_topology_set_xmlbuffer(handle.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) != 0 ||
      hwloc_topology_load(handle.get()) != 0)
    handle.reset();
  return handle;
}

Machine read_xml(const HwlocHandle& handle) {
  Machine machine = read_machine(handle.get(), "xml");
  machine.devices = read_devices(handle.get());
  describe_machine(handle.get(), machine);
  return machine;
}

/// Returns XML of format 3.0, which hwloc 3 writes, as format 2.0. Both describe CPUs, caches, nodes and distances
/// alike, but hwloc 2 refuses the number.
std::string as_format_2(std::string text) {
  constexpr std::string_view kFormat3 = "<topology version=\"3.";
  const std::size_t at = text.find(kFormat3);
  if (at == std::string::npos) return text;
  text[at + kFormat3.size() - 2] = '2';
  return text;
}

Machine from_xml(const std::string& path) {
  const std::string text = as_format_2(read_input_of("topology", path)), shown_name = shown_path(path);
  if (text.find("<topology") == std::string::npos)
    throw UsageError("topology", shown_name + ": found no <topology>", kTopologies);
  if (text.find("<!ENTITY") != std::string::npos)
    throw UsageError("topology", shown_name + ": found a declaration of an entity, which hwloc never writes",
                     kTopologies);
  const auto read_all = [&] {
    if (const HwlocHandle handle = handle_of_xml(text)) read_xml(handle);
  };
  if (const std::string ending = ending_of_trial(read_all); !ending.empty())
    throw UsageError("topology", shown_name + ": found XML that hwloc does not survive: " + ending, kTopologies);
  const HwlocHandle handle = handle_of_xml(text);
  if (!handle) throw UsageError("topology", shown_name + ": found no XML that hwloc takes", kTopologies);
  Machine machine = read_xml(handle);
  machine.source = text;
  machine.allowed = online_of(machine, ids(hwloc_topology_get_allowed_cpuset(handle.get())));
  const char* host = hwloc_obj_get_info_by_name(hwloc_get_root_obj(handle.get()), "HostName");
  char this_host[256] = {};
  gethostname(this_host, sizeof this_host - 1);
  if (host != nullptr && std::string(host) == this_host &&
      sysconf(_SC_NPROCESSORS_ONLN) == static_cast<long>(machine.cpus.size()))
    machine.allowed = online_of(machine, allowed_cpus());
  if (machine.allowed.empty()) throw UsageError("topology", shown_name + ": allows no CPU", kTopologies);
  return machine;
}

}  // namespace

HwlocHandle whole_hwloc(const Machine& machine) {
  if (machine.origin == "tree")
    throw UsageError("hwloc", "found a recorded tree of /sys, whose levels hwloc has not read",
                     "this host, a synthetic description, or a file of hwloc's XML");
  const auto load = [&] {
    HwlocHandle handle = empty_hwloc_without_plugins();
    hwloc_topology_set_flags(handle.get(), 0);
    hwloc_topology_set_all_types_filter(handle.get(), HWLOC_TYPE_FILTER_KEEP_ALL);
    if (machine.origin == "synthetic") return handle_of_synthetic(machine.source, std::move(handle));
    if (machine.origin == "xml") return handle_of_xml(machine.source, std::move(handle));
    if (has_empty_node_folder())
      hwloc_topology_set_components(handle.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux");
    if (hwloc_topology_load(handle.get()) != 0) handle.reset();
    return handle;
  };
  if (machine.origin == "xml")
    if (const std::string ending = ending_of_trial([&] { load(); }); !ending.empty())
      throw Failure("hwloc does not survive this XML: " + ending);
  HwlocHandle handle = load();
  if (!handle) throw Failure("hwloc cannot read the levels of this machine");
  if (machine.origin == "xml" || machine.origin == "host") return handle;
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> allowed(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (const int cpu : machine.allowed) hwloc_bitmap_set(allowed.get(), static_cast<unsigned>(cpu));
  hwloc_topology_restrict(handle.get(), allowed.get(), 0);
  return handle;
}

Machine machine_of(const std::string& topology) {
  if (topology == "host") return host_machine();
  std::error_code ignored;
  if (std::filesystem::exists(topology, ignored)) return from_xml(topology);
  if (is_synthetic(topology)) return from_synthetic(topology);
  throw UsageError("topology", "found " + quote(topology), kTopologies);
}

}  // namespace mm
