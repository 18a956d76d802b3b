/// Counters of the event_source tree: memory controllers, links and I/O stacks ("counters"), and CPUs ("core").
///
/// What is counted, and what it means, is in the definitions of `events/`. An instance is a PMU on one CPU of its mask:
/// a component of its own outside the cores, or that CPU. Every instance is read as a group by the sampler's thread of
/// its own node, since reading a counter of another CPU interrupts it. Counters of CPUs are read once a second at most.
#include "watch/counters.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <set>
#include <system_error>

#include "watch/reading.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

/// Vendor, family and model as definitions name them: GenuineIntel-6-143, or implementer and part: 0x41-0xd40.
std::string processor_id(std::string_view cpuinfo) {
  std::string vendor, family, model, implementer, part;
  for (std::string_view text = cpuinfo; !text.empty();) {
    const std::string_view line = next_line(text);
    const std::size_t colon = line.find(':');
    if (line.empty() || colon == std::string_view::npos) {
      if (!vendor.empty() || !implementer.empty()) break;  // the first processor speaks for all
      continue;
    }
    std::string_view key = line.substr(0, colon), value = line.substr(std::min(colon + 2, line.size()));
    while (!key.empty() && (key.back() == '\t' || key.back() == ' ')) key.remove_suffix(1);
    for (const auto& [word, into] : {std::pair{"vendor_id", &vendor},
                                     {"cpu family", &family},
                                     {"model", &model},
                                     {"CPU implementer", &implementer},
                                     {"CPU part", &part}})
      if (key == word) *into = value;
  }
  return implementer.empty() ? vendor + "-" + family + "-" + model : implementer + "-" + part;
}

std::string filled(std::string form, const std::string& device, std::int64_t package, std::size_t index) {
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"{device}", device},
                                   {"{package}", std::to_string(std::max<std::int64_t>(package, 0))},
                                   {"{index}", std::to_string(index)}})
    for (std::size_t at = form.find(key); at != std::string::npos; at = form.find(key, at + value.size()))
      form.replace(at, key.size(), value);
  return form;
}

struct Why {
  std::string text, hint;
};

Why why_not(int error) {
  if (error == EACCES || error == EPERM)
    return {"the kernel lets only those with CAP_PERFMON count", "sysctl kernel.perf_event_paranoid=0"};
  if (error == EMFILE || error == ENFILE) return {"too many files are open for all counters", "ulimit -n 65536"};
  if (error == ENOENT || error == EOPNOTSUPP || error == ENXIO)
    return {"the PMU does not count this event here; hypervisors hide many", ""};
  return {"the counter cannot be opened: " + std::generic_category().message(error), ""};
}

/// Both sources are this one with other PMUs.
class Counters : public Source {
 public:
  explicit Counters(bool of_cpus) : of_cpus_(of_cpus) {}

  void open(const Host& host, Board& board) override {
    host_ = &host;
    perf::allow_many_events();
    const std::string id = processor_id(host.cpuinfo);
    std::map<std::string, Why> lost;  // by metric
    std::set<std::string> used;
    const auto pmus = find_pmus(host.root);
    for (const PmuDefinition& definition : built_in_definitions()) {
      if ((definition.component == "cpu") != of_cpus_) continue;
      if (!definition.cpuid.empty() &&
          std::find(definition.cpuid.begin(), definition.cpuid.end(), id) == definition.cpuid.end())
        continue;
      for (const Pmu& pmu : pmus)
        if (has_form(pmu.name, definition.device) &&
            (definition.except.empty() || !has_form(pmu.name, definition.except)))
          add_instances(host, board, definition, pmu, lost, used);
    }
    // Metrics come after all components are there, so that they have a place for each.
    for (Instance& instance : instances_)
      for (const MetricDefinition& m : instance.definition->metrics) {
        if (!instance.can(m)) continue;
        std::size_t id_of = board.find(m.name);
        if (id_of == kNone) id_of = board.add({m.name, m.unit, m.what, m.of});
        instance.metrics.emplace_back(&m, id_of);
      }
    for (const Instance& instance : instances_) {
      const std::string name = instance.definition->component + ".counted";
      if (!instance.metrics.empty() && board.find(name) == kNone)
        board.add({name, "1", "time in which the counters of this component counted", "the window"});
    }
    for (const auto& [metric, why] : lost)
      if (board.find(metric) == kNone && board.absence(metric) == nullptr) board.absent(metric, why.text, why.hint);
    if (!of_cpus_) {
      for (std::size_t c = 0; c < board.components("io") && board.find("io.busy") == kNone; ++c)
        board.absent("io.busy:" + board.component("io", c).at("name").get<std::string>(),
                     "what it can carry is not known: the kernel says neither lanes nor clock of a stack");
      uses_.push_back(share_of(board, "memory", {"memory.read", "memory.write", "memory.traffic"}));
      uses_.push_back(share_of(board, "link", {"link.out"}));
      say_why_unknown(host, board);
    }
    by_part_.resize(host.parts);
    for (std::size_t i = 0; i < instances_.size(); ++i)
      if (!instances_[i].metrics.empty()) by_part_[host.part_of_cpu(instances_[i].counts->cpu())].push_back(i);
    counted_ids_.resize(instances_.size(), kNone);
    for (std::size_t i = 0; i < instances_.size(); ++i)
      counted_ids_[i] = board.find(instances_[i].definition->component + ".counted");
  }

  bool has_parts() const override { return true; }

  void sample_part(Board& board, double now, std::size_t part) override {
    for (const std::size_t i : by_part_[part]) {
      Instance& instance = instances_[i];
      Counts& counts = *instance.counts;
      counts.read(now);
      for (const auto& [m, id] : instance.metrics) {
        const double above = instance.weighed(m->sum);
        const double below = m->over.empty() ? instance.window(*m) : instance.weighed(m->over);
        // Nothing over nothing is no share; and several definitions may serve one metric of a component.
        const double value = below > 0 ? above / below : kUnknown;
        if (value == value) board.set(id, instance.component, value);
      }
      if (counted_ids_[i] != kNone && counts.counted() == counts.counted())
        board.set(counted_ids_[i], instance.component, counts.counted());
    }
  }

  void sample(Board& board, double) override {
    for (const Use& use : uses_) {
      if (use.share == kNone || use.of_hardware) continue;
      for (std::size_t c = 0; c < use.attained.size(); ++c) {
        double moved = 0, read = 0;
        for (std::size_t k = 0; k < use.moved.size(); ++k) {
          const double one = board.at(use.moved[k], c);
          moved += one;
          if (k == 0) read = one;
        }
        const double wire = use.wire == kNone ? use.wire_by_firmware : board.at(use.wire, c);
        const double most = use.attained[c].empty() ? wire : at_mix(use.attained[c], moved > 0 ? read / moved : 1);
        board.set(use.share, c, most > 0 ? moved / most : kUnknown);
      }
    }
  }

  double least_period() const override { return of_cpus_ ? 1.0 : 0.0; }

 private:
  struct Instance {
    const PmuDefinition* definition;
    std::size_t component;
    std::unique_ptr<Counts> counts;
    std::vector<int> event_of;  ///< by event of the definition its number in `counts`; -1: it is not there
    std::vector<std::pair<const MetricDefinition*, std::size_t>> metrics;

    bool can(const MetricDefinition& m) const {
      const auto there = [&](const auto& e) { return event_of[e.first] >= 0; };
      return std::all_of(m.sum.begin(), m.sum.end(), there) && std::all_of(m.over.begin(), m.over.end(), there);
    }
    double weighed(const WeightedSum& sum) const {
      double all = 0;
      for (const auto& [event, weight] : sum) all += weight * counts->grown(static_cast<std::size_t>(event_of[event]));
      return all;
    }
    double window(const MetricDefinition& m) const {
      return counts->window(static_cast<std::size_t>(event_of[m.sum.front().first]));
    }
  };
  using Mix = std::vector<std::pair<double, double>>;  ///< share of reads, B/s; by growing share
  /// How a class' share of use comes of what its components moved.
  struct Use {
    std::size_t share = kNone, wire = kNone;
    bool of_hardware = false;
    std::vector<std::size_t> moved;
    std::vector<Mix> attained;           ///< by component
    double wire_by_firmware = kUnknown;  ///< B/s of a component, where no clock of it is counted
  };

  void add_instances(const Host& host, Board& board, const PmuDefinition& definition, const Pmu& pmu,
                     std::map<std::string, Why>& lost, std::set<std::string>& used) {
    std::vector<Encoding> encodings;
    std::vector<int> event_of(definition.events.size(), -1);
    for (std::size_t e = 0; e < definition.events.size(); ++e)
      if (const auto encoding = encode(pmu.folder, definition.events[e])) {
        event_of[e] = static_cast<int>(encodings.size());
        encodings.push_back(*encoding);
      }
    const auto lose = [&](const Why& why) {
      for (const MetricDefinition& m : definition.metrics) lost.emplace(m.name, why);
    };
    if (encodings.empty()) {
      lose({"the kernel's " + pmu.name + " does not offer these events", "a newer kernel"});
      return;
    }
    std::vector<int> cpus = pmu.cpus;
    if (cpus.empty()) cpus = of_cpus_ ? host.cpus : std::vector<int>{host.cpus.empty() ? 0 : host.cpus.front()};
    for (const int cpu : cpus) {
      const auto at = std::find(host.cpus.begin(), host.cpus.end(), cpu);
      if (at == host.cpus.end()) continue;
      const auto place = static_cast<std::size_t>(at - host.cpus.begin());
      std::size_t component = place;
      if (!of_cpus_) {
        component = component_of(host, board, definition, pmu, place, used);
        if (component == kNone) {
          lose({"which link " + pmu.name + " counts is not said by the kernel", "a newer kernel"});
          continue;
        }
      }
      if (host.kernel == nullptr) {
        lose({"a recorded tree has no counters to read", ""});
        continue;
      }
      Instance made{&definition, component, nullptr, event_of, {}};
      made.counts = std::make_unique<Counts>(*host.kernel, pmu.type, cpu, encodings);
      if (const int wrong = made.counts->open(); wrong != 0 && wrong != ENODEV) {  // ENODEV: the CPU is offline
        lose(why_not(wrong));
        if (wrong == EACCES || wrong == EPERM || wrong == EMFILE) continue;
        for (int& e : made.event_of)
          if (e >= 0 && !made.counts->has(static_cast<std::size_t>(e))) e = -1;
      }
      instances_.push_back(std::move(made));
    }
  }

  /// The component that an instance is: made where it is new. kNone: a link whose ends are not known.
  std::size_t component_of(const Host& host, Board& board, const PmuDefinition& definition, const Pmu& pmu,
                           std::size_t place, std::set<std::string>& used) {
    const json& cpu = board.component("cpu", place);
    const std::int64_t package = cpu.value("package", std::int64_t{0});
    const std::string group = definition.component + " " + definition.label + " " + std::to_string(package);
    // Definitions of one PMU on one CPU with one label are one component.
    const std::string key = group + " " + pmu.name + " " + std::to_string(host.cpus[place]);
    if (const auto known = made_.find(key); known != made_.end()) return known->second;
    json about{{"name", ""}, {"package", package}, {"pmu", pmu.name}};
    if (host.node_of[place] >= 0) about["node"] = host.node_of[place];
    if (definition.component == "link") {
      const int to = other_end(host, board, pmu, package);
      if (to < 0 || host.node_of[place] < 0) return made_[key] = kNone;
      about.erase("node");
      about["from"] = first_node(host, board, package);
      about["to"] = to;
      about["kind"] = "socket";
    }
    if (definition.component == "io") about["kind"] = "stack";
    std::string name = filled(definition.label, pmu.name, package, index_of_[group]++);
    while (!used.insert(definition.component + name).second) name += "'";
    about["name"] = name;
    return made_[key] = board.add(definition.component, std::move(about));
  }

  /// The first node of a package: its place in `nodes`; -1 where it has none.
  static int first_node(const Host& host, const Board& board, std::int64_t package) {
    int first = -1;
    for (std::size_t i = 0; i < host.cpus.size(); ++i)
      if (board.component("cpu", i).value("package", std::int64_t{-1}) == package && host.node_of[i] >= 0 &&
          (first < 0 || host.node_of[i] < first))
        first = host.node_of[i];
    return first;
  }

  /// The node at the other end of a link between sockets, by /sys/devices/uncore_upi_X/dieY, which says `upi_Z,die_W`;
  /// with two sockets it is the other. -1: it is not known, or the link leads nowhere.
  static int other_end(const Host& host, const Board& board, const Pmu& pmu, std::int64_t package) {
    std::vector<std::int64_t> packages;  // dies are numbered as packages are sorted
    for (std::size_t i = 0; i < host.cpus.size(); ++i)
      packages.push_back(board.component("cpu", i).value("package", std::int64_t{0}));
    std::sort(packages.begin(), packages.end());
    packages.erase(std::unique(packages.begin(), packages.end()), packages.end());
    const auto die = std::lower_bound(packages.begin(), packages.end(), package) - packages.begin();
    const std::string folder = host.root + "/sys/devices/uncore_upi_" + std::to_string(number_at_end(pmu.name)) + "/";
    const std::string said = read_once(folder + "die" + std::to_string(die));
    const std::size_t at = said.find("die_");
    if (at != std::string::npos) {
      const auto other = number(std::string_view(said).substr(at + 4));
      if (other < 0 || static_cast<std::size_t>(other) >= packages.size() || other == die) return -1;
      return first_node(host, board, packages[static_cast<std::size_t>(other)]);
    }
    if (packages.size() == 2 && names_in(folder).empty()) return first_node(host, board, packages[die == 0 ? 1 : 0]);
    return -1;
  }

  Use share_of(Board& board, const std::string& klass, const std::vector<std::string>& moved) {
    Use use;
    const std::string name = klass + ".busy";
    use.attained.resize(board.components(klass));
    if (board.find(name) != kNone) {
      use.of_hardware = true;
      return use;
    }
    for (const std::string& one : moved)
      if (const std::size_t id = board.find(one); id != kNone) use.moved.push_back(id);
    if (use.moved.empty()) return use;
    use.wire = board.find(klass + ".wire");
    bool any = false;
    const json& said = host_->attained;
    if (said.is_object() && said.contains(klass)) any = read_attained(board, klass, said.at(klass), use);
    if (use.wire == kNone && said.is_object() && said.contains("wire") && said.at("wire").contains(klass))
      use.wire_by_firmware = said.at("wire").at(klass).get<double>() / static_cast<double>(board.components(klass));
    const bool by_firmware = use.wire_by_firmware == use.wire_by_firmware;
    if (use.wire == kNone && !any && !by_firmware) {
      board.absent(name, "what these can carry is not known: no clock is counted and no survey was made",
                   "meshmark survey");
      return use;
    }
    json attained = json::array();
    for (const Mix& mix : use.attained) attained.push_back(mix.empty() ? json() : json(mix.back().second));
    json about{{"used", any ? "attained" : "wire"}, {"from", json::object()}};
    if (any) {
      about["attained"] = attained;
      about["from"]["attained"] = said.value("from", std::string("a survey"));
    }
    if (use.wire != kNone) about["from"]["wire"] = board.metrics()[use.wire].what;
    if (by_firmware) {
      about["from"]["wire"] = "channels, rate and width of the modules, by the firmware";
      about["wire"] = std::vector<double>(board.components(klass), use.wire_by_firmware);
    }
    denominators_[klass] = about;
    board.say("denominators", denominators_);
    use.share = board.add({name, "1", "moved, of what it can carry",
                           any ? "attained here by " + said.value("from", std::string("a survey")) : "wire"});
    return use;
  }

  /// Of each component its share of what its node attained, by mix of reads and writes.
  bool read_attained(const Board& board, const std::string& klass, const json& by_node, Use& use) {
    std::map<std::int64_t, std::size_t> channels;
    for (std::size_t c = 0; c < use.attained.size(); ++c)
      ++channels[board.component(klass, c).value("node", std::int64_t{-1})];
    bool any = false;
    for (std::size_t c = 0; c < use.attained.size(); ++c) {
      const auto node = board.component(klass, c).value("node", std::int64_t{-1});
      if (node < 0 || static_cast<std::size_t>(node) >= host_->nodes.size()) continue;
      const std::string key = std::to_string(host_->nodes[static_cast<std::size_t>(node)]);
      if (!by_node.contains(key)) continue;
      for (const json& point : by_node.at(key))
        use.attained[c].emplace_back(point.at(0).get<double>(),
                                     point.at(1).get<double>() / static_cast<double>(channels[node]));
      std::sort(use.attained[c].begin(), use.attained[c].end());
      any = any || !use.attained[c].empty();
    }
    return any;
  }

  static double at_mix(const Mix& mix, double read_share) {
    for (std::size_t i = 0; i < mix.size(); ++i) {
      if (read_share > mix[i].first) continue;
      if (i == 0) return mix[0].second;
      const double t = (read_share - mix[i - 1].first) / (mix[i].first - mix[i - 1].first);
      return mix[i - 1].second + t * (mix[i].second - mix[i - 1].second);
    }
    return mix.empty() ? kUnknown : mix.back().second;
  }

  static void say_why_unknown(const Host& host, Board& board) {
    const bool guest = host.cpuinfo.find(" hypervisor") != std::string::npos;
    for (const char* const name : {"memory.busy", "link.busy"}) {
      if (board.find(name) != kNone || board.absence(name) != nullptr) continue;
      const std::string klass = std::string(name).substr(0, std::string(name).find('.'));
      if (klass == "link" && host.nodes.size() < 2) continue;  // there are none
      // What spoils its ingredients spoils it.
      const json* spoilt = board.absence(klass + ".read");
      if (spoilt == nullptr) spoilt = board.absence(klass + ".out");
      if (spoilt != nullptr) {
        // By value: the list that it lies in grows.
        const std::string why = spoilt->at("why"), hint = spoilt->value("hint", std::string());
        board.absent(name, why, hint);
        continue;
      }
      const std::string what = klass == "memory" ? "memory controllers" : "links";
      board.absent(name,
                   guest ? "a virtual machine: the hypervisor shows no counters of " + what
                         : "no counters of " + what + " that the kernel shows are known to meshmark",
                   guest ? "" : "meshmark doctor");
    }
  }

  bool of_cpus_;
  const Host* host_ = nullptr;
  std::vector<Instance> instances_;
  std::vector<std::vector<std::size_t>> by_part_;
  std::vector<std::size_t> counted_ids_;
  std::vector<Use> uses_;
  json denominators_ = json::object();
  std::map<std::string, std::size_t> made_, index_of_;
};

class OutsideCores : public Counters {
 public:
  OutsideCores() : Counters(false) {}
};

class OfCores : public Counters {
 public:
  OfCores() : Counters(true) {}
};

const Registration<OutsideCores> outside("counters", "counters of memory controllers, links and I/O, perf_event", true);
const Registration<OfCores> core("core", "counters of every CPU, perf_event");

}  // namespace
}  // namespace mm::watch
