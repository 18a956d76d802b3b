/// Kinds of cores: P and E cores, big.LITTLE. Sources, as the Linux kernel has them: PMUs of hybrid Intel processors,
/// `cpu_capacity` of Arm and RISC-V, the model of each CPU in /proc/cpuinfo or its register (Arm), and the highest
/// clocks.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/options/options.hpp"
#include "base/topology/kinds.hpp"
#include "sys/files.hpp"
#include "sys/id_sets.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

/// Cores whose clocks differ by at most this share are of one kind: favoured cores of a homogeneous processor (Turbo
/// Boost Max 3.0) reach a few percent more than other cores.
constexpr double kSameClock = 0.2;

/// Likewise for capacities, which include the clock: cores of one model with 997, 1017 and 1024 are of one kind.
constexpr double kSameCapacity = 0.1;

constexpr std::int64_t kImpossibleKilohertz = 1 << 30, kMaxPolicies = 65536;

#if defined(__x86_64__)
constexpr bool kCpuinfoInterruptsCpus = true;  // to read their clocks, and it does not state a model per CPU
#else
constexpr bool kCpuinfoInterruptsCpus = false;
#endif

void read_pmus(const std::string& root, TraitsByCpu& traits) {
  constexpr const char* kPmus[] = {"cpu_core", "cpu_atom", "cpu_lowpower"};
  for (int rank = 0; rank < 3; ++rank) {
    const std::string name = kPmus[rank];
    auto cpus = ids_in(root + "/sys/devices/" + name + "/", {{"cpus", "cpumask"}});
    if (!cpus) cpus = ids_in(root + "/sys/bus/event_source/devices/" + name + "/", {{"cpus", "cpumask"}});
    for (const int cpu : cpus.value_or(std::vector<int>{}))
      if (const auto at = traits.find(cpu); at != traits.end()) at->second.pmu = name, at->second.rank = rank;
  }
}

/// Reads the implementer and part of each CPU of an Arm processor from /proc/cpuinfo. Linux before 3.8 states them
/// once, after all CPUs, and LXCFS lists some CPUs under other numbers: then the model of each CPU stays unknown.
void read_models_of_cpuinfo(const std::string& root, TraitsByCpu& traits) {
  const std::string all = read_text(root + "/proc/cpuinfo");
  std::string_view text = all;
  if (all.find("CPU part") == std::string::npos) return;
  std::int64_t cpu = -1;
  std::string implementer;
  std::map<int, std::string> models;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    const std::string_view value = begin == std::string_view::npos ? "" : line.substr(begin);
    if (line.starts_with("processor")) cpu = whole_number(value);
    if (line.starts_with("CPU implementer")) implementer = value;
    if (!line.starts_with("CPU part") || cpu < 0) continue;
    models[static_cast<int>(cpu)] = implementer + ":" + std::string(value);
  }
  const bool every_cpu_is_stated =
      std::all_of(traits.begin(), traits.end(), [&](const auto& entry) { return models.contains(entry.first); });
  if (every_cpu_is_stated)
    for (auto& [number, cpu_traits] : traits) cpu_traits.model = models.at(number);
}

/// Returns the implementer and part in the main identification register of an Arm core, in the form of /proc/cpuinfo;
/// "" if the text is not such a number.
std::string model_in_register(const std::string& text) {
  std::uint64_t value = 0;
  if (!text.starts_with("0x")) return "";
  const char* const end = text.data() + text.size();
  const auto conversion = std::from_chars(text.data() + 2, end, value, 16);
  if (conversion.ec != std::errc() || conversion.ptr != end) return "";
  char model[16];
  std::snprintf(model, sizeof model, "0x%02x:0x%03x", static_cast<unsigned>(value >> 24 & 0xff),
                static_cast<unsigned>(value >> 4 & 0xfff));
  return model;
}

/// Reads the processor model of each CPU on Arm. On other architectures, one model describes all CPUs.
void read_models(const std::string& root, TraitsByCpu& traits) {
  read_models_of_cpuinfo(root, traits);
  std::map<int, std::string> models;
  for (const auto& [cpu, cpu_traits] : traits) {
    if (!cpu_traits.model.empty()) return;
    models[cpu] = model_in_register(
        first_line(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/regs/identification/midr_el1"));
    if (models[cpu].empty()) return;
  }
  for (auto& [cpu, cpu_traits] : traits) cpu_traits.model = models[cpu];
}

/// Sets the clocks that are still unknown from the folders of cpufreq policies: recorded trees may lack the links from
/// CPUs to these folders.
void read_clocks_of_policies(const std::string& root, TraitsByCpu& traits) {
  const std::string folder = root + "/sys/devices/system/cpu/cpufreq/";
  for (const int policy : numbered_names(folder, "policy", kMaxPolicies)) {
    const std::string at = folder + "policy" + std::to_string(policy) + "/";
    const std::int64_t khz = number_in(at + "cpuinfo_max_freq", -1);
    if (khz <= 0 || khz >= kImpossibleKilohertz) continue;
    const std::string cpus = first_line(at + "affected_cpus");
    std::string_view words = cpus;
    for (std::string_view word = next_word(words); !word.empty(); word = next_word(words))
      if (const auto entry = traits.find(static_cast<int>(whole_number(word))); entry != traits.end())
        if (entry->second.max_hz <= 0) entry->second.max_hz = khz * 1000;
  }
}

void read_speeds(const std::string& root, TraitsByCpu& traits) {
  for (auto& [cpu, cpu_traits] : traits) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
    cpu_traits.capacity = number_in(folder + "cpu_capacity", -1);
    if (const std::int64_t khz = number_in(folder + "cpufreq/cpuinfo_max_freq", -1);
        khz > 0 && khz < kImpossibleKilohertz)
      cpu_traits.max_hz = khz * 1000;
  }
  const bool some_have_none =
      std::any_of(traits.begin(), traits.end(), [](const auto& t) { return t.second.max_hz <= 0; });
  if (some_have_none) read_clocks_of_policies(root, traits);
}

using Similar = std::map<std::int64_t, std::int64_t>;

/// Maps each value to the highest value of its group. The other values of a group are lower than that by at most
/// `share`.
Similar highest_of_similar(const std::set<std::int64_t>& values, double share) {
  Similar highest_of;
  std::int64_t highest = -1;
  for (auto at = values.rbegin(); at != values.rend(); ++at) {
    if (highest < 0 || static_cast<double>(*at) < (1 - share) * static_cast<double>(highest)) highest = *at;
    highest_of[*at] = highest;
  }
  return highest_of;
}

Similar similar_clocks(const TraitsByCpu& traits) {
  std::set<std::int64_t> clocks;
  for (const auto& [cpu, cpu_traits] : traits) clocks.insert(cpu_traits.max_hz);
  return highest_of_similar(clocks, kSameClock);
}

/// Groups capacities by PMU and model, since cores of two models differ even if their capacities are similar.
std::map<std::pair<std::string, std::string>, Similar> similar_capacities(const TraitsByCpu& traits) {
  std::map<std::pair<std::string, std::string>, std::set<std::int64_t>> capacities;
  for (const auto& [cpu, cpu_traits] : traits)
    capacities[{cpu_traits.pmu, cpu_traits.model}].insert(cpu_traits.capacity);
  std::map<std::pair<std::string, std::string>, Similar> similar;
  for (const auto& [cores, values] : capacities) similar[cores] = highest_of_similar(values, kSameCapacity);
  return similar;
}

/// Names kinds by their rank, or by their model if nothing ranks them.
void name_kinds(std::vector<CoreKind>& kinds, bool are_ranked) {
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CoreKind& kind = kinds[i];
    if (kind.pmu == "cpu_lowpower")
      kind.name = "low-power";
    else if (!are_ranked)
      kind.name = "model " + (kind.model.empty() ? std::to_string(i) : kind.model);
    else if (i == 0)
      kind.name = "performance";
    else if (i + 1 == kinds.size() || kind.pmu == "cpu_atom")
      kind.name = "efficiency";
    else
      kind.name = "middle";
  }
  std::map<std::string, int> count;
  for (const CoreKind& kind : kinds) ++count[kind.name];
  std::map<std::string, int> number;
  for (CoreKind& kind : kinds)
    if (count[kind.name] > 1) kind.name += " " + std::to_string(++number[kind.name]);
}

}  // namespace

std::vector<CoreKind> kinds_by_traits(const TraitsByCpu& traits) {
  const bool all_have_clocks =
      std::all_of(traits.begin(), traits.end(), [](const auto& entry) { return entry.second.max_hz > 0; });
  const bool all_have_capacity =
      std::all_of(traits.begin(), traits.end(), [](const auto& entry) { return entry.second.capacity > 0; });
  const auto clocks = similar_clocks(traits);
  const auto capacities = similar_capacities(traits);

  // The scheduler's capacity includes the clock. If it is unknown, the clocks distinguish the kinds.
  using Key = std::tuple<int, std::int64_t, std::int64_t, std::string>;
  std::map<Key, CoreKind> groups;
  for (const auto& [cpu, cpu_traits] : traits) {
    const std::int64_t capacity =
        all_have_capacity ? capacities.at({cpu_traits.pmu, cpu_traits.model}).at(cpu_traits.capacity) : -1;
    const std::int64_t clock =
        all_have_clocks && !all_have_capacity && cpu_traits.pmu.empty() ? clocks.at(cpu_traits.max_hz) : -1;
    CoreKind& kind = groups[{cpu_traits.rank, -capacity, -clock, cpu_traits.model}];
    kind.cpus.push_back(cpu);
    kind.capacity = capacity;
    kind.max_hz = all_have_clocks ? std::max(kind.max_hz, cpu_traits.max_hz) : -1;
    kind.pmu = cpu_traits.pmu;
    kind.model = cpu_traits.model;
  }
  std::vector<CoreKind> kinds;
  if (groups.size() < 2) return kinds;
  std::set<std::tuple<int, std::int64_t, std::int64_t>> ranks;
  for (auto& [key, kind] : groups) {
    ranks.emplace(std::get<0>(key), std::get<1>(key), std::get<2>(key));
    kinds.push_back(std::move(kind));
  }
  name_kinds(kinds, ranks.size() > 1);
  return kinds;
}

std::vector<CoreKind> kinds_of_tree(const std::string& root, const Machine& machine) {
  TraitsByCpu traits;
  for (const Cpu& cpu : machine.cpus) traits[cpu.id] = {};
  read_pmus(root, traits);
  if (!root.empty() || !kCpuinfoInterruptsCpus) read_models(root, traits);
  read_speeds(root, traits);
  return kinds_by_traits(traits);
}

void set_kinds(Machine& machine, std::vector<CoreKind> kinds) {
  machine.kinds = std::move(kinds);
  std::map<int, int> kind_of;
  for (std::size_t i = 0; i < machine.kinds.size(); ++i)
    for (const int cpu : machine.kinds[i].cpus) kind_of[cpu] = static_cast<int>(i);
  for (Cpu& cpu : machine.cpus)
    if (const auto at = kind_of.find(cpu.id); at != kind_of.end()) cpu.kind = at->second;
}

std::vector<CoreKind> kinds_of(const Machine& machine, const std::vector<int>& cpus) {
  std::vector<CoreKind> kinds;
  const std::set<int> requested_cpus(cpus.begin(), cpus.end());
  for (const CoreKind& kind : machine.kinds) {
    CoreKind part = kind;
    std::erase_if(part.cpus, [&](int cpu) { return !requested_cpus.contains(cpu); });
    if (!part.cpus.empty()) kinds.push_back(std::move(part));
  }
  return kinds;
}

std::string kind_names(const Machine& machine, const std::vector<int>& cpus) {
  std::vector<std::string> names;
  for (const CoreKind& kind : kinds_of(machine, cpus)) names.push_back(kind.name);
  return joined(names);
}

}  // namespace mm
