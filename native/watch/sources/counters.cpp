/// Counters of the event_source tree: memory controllers, links and I/O stacks ("counters"), and CPUs ("core").
///
/// The definitions in `events/` say what is counted and what it means. An instance is a PMU on one CPU of its mask: a
/// separate component outside the cores, or that CPU. The sampler's thread of the instance's node reads it as a group,
/// since reading a counter of a remote CPU interrupts that CPU. Counters of CPUs are read at most once a second.
#include "watch/counters/counters.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <system_error>

#include "sys/files.hpp"
#include "sys/words.hpp"
#include "watch/counters/pmu_components.hpp"
#include "watch/source.hpp"
#include "watch/utilisation.hpp"

namespace mm::watch {
namespace {

/// Returns vendor, family and model as in definitions, such as GenuineIntel-6-143, or implementer and part, such as
/// 0x41-0xd40.
std::string processor_id(std::string_view cpuinfo) {
  std::string vendor, family, model, implementer, part;
  for (std::string_view text = cpuinfo; !text.empty();) {
    const std::string_view line = next_line(text);
    const std::size_t colon = line.find(':');
    if (line.empty() || colon == std::string_view::npos) {
      if (!vendor.empty() || !implementer.empty()) break;  // the first processor represents all
      continue;
    }
    std::string_view key = line.substr(0, colon), value = line.substr(std::min(colon + 2, line.size()));
    while (!key.empty() && (key.back() == '\t' || key.back() == ' ')) key.remove_suffix(1);
    for (const auto& [word, destination] : {std::pair{"vendor_id", &vendor},
                                            {"cpu family", &family},
                                            {"model", &model},
                                            {"CPU implementer", &implementer},
                                            {"CPU part", &part}})
      if (key == word) *destination = value;
  }
  return implementer.empty() ? vendor + "-" + family + "-" + model : implementer + "-" + part;
}

struct Absence {
  std::string text, hint;
};

Absence absence_for(int error) {
  if (error == EACCES || error == EPERM)
    return {"the Linux kernel permits counting only with CAP_PERFMON", "sysctl kernel.perf_event_paranoid=0"};
  if (error == EMFILE || error == ENFILE)
    return {"the limit of open files is too low for all counters", "ulimit -n 65536"};
  if (error == ENOENT || error == EOPNOTSUPP || error == ENXIO)
    return {"the PMU does not support this event here; hypervisors hide many", ""};
  return {"the counter cannot be opened: " + std::generic_category().message(error), ""};
}

/// Common base of both sources, which differ in their PMUs.
class Counters : public Source {
 public:
  explicit Counters(bool of_cpus) : of_cpus_(of_cpus) {}

  void open(const Host& host, Board& board) override {
    perf::allow_many_events();
    const std::map<std::string, Absence> absences = find_instances(host, board);
    add_metrics(board);
    for (const auto& [metric, absence] : absences)
      if (board.find(metric) == kNone && board.absence(metric) == nullptr)
        board.absent(metric, absence.text, absence.hint);
    if (!of_cpus_) add_utilisation(host, board);
    by_part_.resize(host.parts);
    for (std::size_t i = 0; i < instances_.size(); ++i)
      if (!instances_[i].metrics.empty()) by_part_[host.part_of_cpu(instances_[i].counts->cpu())].push_back(i);
  }

  bool has_parts() const override { return true; }

  void sample_part(Board& board, double now, std::size_t part) override {
    for (const std::size_t i : by_part_[part]) {
      Instance& instance = instances_[i];
      PmuCounts& counts = *instance.counts;
      counts.read(now);
      for (const auto& [m, id] : instance.metrics) {
        const double numerator = instance.weighted(m->sum);
        const double denominator = m->over.empty() ? instance.window(*m) : instance.weighted(m->over);
        // Skip an undefined share (0 / 0): several definitions may supply one metric of a component.
        const double value = denominator > 0 ? numerator / denominator : kUnknown;
        if (value == value) board.set(id, instance.component, value);
      }
      if (counts.counted() == counts.counted()) board.set(instance.counted, instance.component, counts.counted());
    }
  }

  void sample(Board& board, double) override {
    for (const Utilisation& class_use : utilisation_) class_use.sample(board);
  }

  double min_period() const override { return of_cpus_ ? 1.0 : 0.0; }

 private:
  struct Instance {
    const PmuDefinition* definition;
    std::size_t component;
    std::unique_ptr<PmuCounts> counts;
    std::vector<int> event_of;  ///< by event of the definition: its index in `counts`; -1: unavailable
    std::vector<std::pair<const MetricDefinition*, std::size_t>> metrics{};
    std::size_t counted = kNone;  ///< metric: share of the time in which it counted

    bool supports(const MetricDefinition& m) const {
      const auto available = [&](const auto& e) { return event_of[e.first] >= 0; };
      return std::all_of(m.sum.begin(), m.sum.end(), available) && std::all_of(m.over.begin(), m.over.end(), available);
    }
    double weighted(const WeightedSum& sum) const {
      double all = 0;
      for (const auto& [event, weight] : sum) all += weight * counts->grown(static_cast<std::size_t>(event_of[event]));
      return all;
    }
    double window(const MetricDefinition& m) const {
      return counts->window(static_cast<std::size_t>(event_of[m.sum.front().first]));
    }
  };

  /// Opens the counters of all defined PMUs. Returns the reasons of absence, by metric.
  std::map<std::string, Absence> find_instances(const Host& host, Board& board) {
    std::map<std::string, Absence> absences;
    const std::string id = processor_id(host.cpuinfo);
    const auto pmus = find_pmus(host.root);
    for (const PmuDefinition& definition : built_in_definitions()) {
      if ((definition.component == "cpu") != of_cpus_) continue;
      if (!definition.cpuid.empty() &&
          std::find(definition.cpuid.begin(), definition.cpuid.end(), id) == definition.cpuid.end())
        continue;
      for (const Pmu& pmu : pmus)
        if (matches(pmu.name, definition.device) &&
            (definition.except.empty() || !matches(pmu.name, definition.except)))
          add_instances(host, board, definition, pmu, absences);
    }
    return absences;
  }

  /// Called after all components have been added, so that metrics have a value for each.
  void add_metrics(Board& board) {
    for (Instance& instance : instances_)
      for (const MetricDefinition& m : instance.definition->metrics) {
        if (!instance.supports(m)) continue;
        std::size_t id = board.find(m.name);
        if (id == kNone) id = board.add({m.name, m.unit, m.what, m.of});
        instance.metrics.emplace_back(&m, id);
      }
    for (Instance& instance : instances_) {
      if (instance.metrics.empty()) continue;
      const std::string name = instance.definition->component + ".counted";
      instance.counted = board.find(name);
      if (instance.counted == kNone)
        instance.counted = board.add({name, "1", "time in which the counters of this component counted", "the window"});
    }
  }

  void add_utilisation(const Host& host, Board& board) {
    for (std::size_t c = 0; c < board.components("io") && board.find("io.busy") == kNone; ++c)
      board.absent("io.busy:" + board.component("io", c).at("name").get<std::string>(),
                   "its theoretical peak is unknown: the Linux kernel reports neither lanes nor clock of a stack");
    utilisation_.emplace_back(board, host, "memory",
                              std::vector<std::string>{"memory.read", "memory.write", "memory.traffic"});
    utilisation_.emplace_back(board, host, "link", std::vector<std::string>{"link.out"});
    json denominators = json::object();
    if (!utilisation_[0].denominator().is_null()) denominators["memory"] = utilisation_[0].denominator();
    if (!utilisation_[1].denominator().is_null()) denominators["link"] = utilisation_[1].denominator();
    if (!denominators.empty()) board.set_header("denominators", denominators);
    explain_unknown_use(host, board);
  }

  void add_instances(const Host& host, Board& board, const PmuDefinition& definition, const Pmu& pmu,
                     std::map<std::string, Absence>& absences) {
    std::vector<Encoding> encodings;
    std::vector<int> event_of(definition.events.size(), -1);
    for (std::size_t e = 0; e < definition.events.size(); ++e)
      if (const auto encoding = encode(pmu.folder, definition.events[e])) {
        event_of[e] = static_cast<int>(encodings.size());
        encodings.push_back(*encoding);
      }
    const auto add_absences = [&](const Absence& absence) {
      for (const MetricDefinition& m : definition.metrics) absences.emplace(m.name, absence);
    };
    if (encodings.empty()) {
      add_absences({"the Linux kernel's " + pmu.name + " does not have these events", "a newer Linux kernel"});
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
        component = components_.find_or_add(host, board, definition, pmu, place);
        if (component == kNone) {
          add_absences({"the Linux kernel does not report which link " + pmu.name + " counts", "a newer Linux kernel"});
          continue;
        }
      }
      if (host.kernel == nullptr) {
        add_absences({"a recorded tree has no counters to read", ""});
        continue;
      }
      Instance instance{&definition, component, nullptr, event_of, {}};
      instance.counts = std::make_unique<PmuCounts>(*host.kernel, pmu.type, cpu, encodings);
      if (const int error = instance.counts->open(); error != 0 && error != ENODEV) {  // ENODEV: the CPU is offline
        add_absences(absence_for(error));
        if (error == EACCES || error == EPERM || error == EMFILE) continue;
        for (int& e : instance.event_of)
          if (e >= 0 && !instance.counts->has(static_cast<std::size_t>(e))) e = -1;
      }
      instances_.push_back(std::move(instance));
    }
  }

  bool of_cpus_;
  PmuComponents components_;
  std::vector<Instance> instances_;
  std::vector<std::vector<std::size_t>> by_part_;
  std::vector<Utilisation> utilisation_;
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
