#include "counters.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "board.hpp"
#include "reading.hpp"

namespace mm::watch {

std::vector<Pmu> find_pmus(const std::string& root) {
  const std::string folder = root + "/sys/bus/event_source/devices/";
  std::vector<Pmu> found;
  for (const std::string& name : names_in(folder)) {
    const auto type = number_of(folder + name + "/type", -1);
    if (type < 0 || type > 0xffffffffLL) continue;
    Pmu pmu{name, folder + name + "/", static_cast<std::uint32_t>(type),
            list_of(read_once(folder + name + "/cpumask"))};
    if (pmu.cpus.empty()) pmu.cpus = list_of(read_once(folder + name + "/cpus"));
    found.push_back(std::move(pmu));
  }
  // uncore_imc_10 comes after uncore_imc_9.
  const auto key = [](const Pmu& p) {
    return std::pair(std::string_view(p.name).substr(0, p.name.find_last_not_of("0123456789") + 1),
                     number_at_end(p.name));
  };
  std::stable_sort(found.begin(), found.end(), [&](const Pmu& a, const Pmu& b) { return key(a) < key(b); });
  return found;
}

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> bits(std::string_view word) {
  int base = 10;
  if (word.starts_with("0x") || word.starts_with("0X")) word.remove_prefix(2), base = 16;
  std::uint64_t value = 0;
  const auto [end, wrong] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (wrong != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// Puts a value into the bits that a format names: `config:0-7,32-35`, `config1:0-63`, or `config` for all of them.
bool put(std::string_view format, std::uint64_t value, Encoding& into) {
  const std::size_t colon = format.find(':');
  const std::string_view word = format.substr(0, colon);
  const std::size_t which = word == "config" ? 0 : word == "config1" ? 1 : word == "config2" ? 2 : 3;
  if (which == 3) return false;
  if (colon == std::string_view::npos) {
    into.config[which] |= value;
    return true;
  }
  std::string_view fields = format.substr(colon + 1);
  while (!fields.empty()) {
    const std::size_t comma = std::min(fields.find(','), fields.size());
    const std::string_view field = fields.substr(0, comma);
    fields.remove_prefix(std::min(comma + 1, fields.size()));
    const std::size_t dash = field.find('-');
    const auto first = number(field.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(field.substr(dash + 1));
    if (first < 0 || last < first || last > 63) return false;
    for (auto bit = first; bit <= last; ++bit, value >>= 1) into.config[which] |= (value & 1) << bit;
  }
  return value == 0;  // else it does not fit
}

double bytes_in(std::string_view unit) {
  if (unit == "KiB") return 1024;
  if (unit == "MiB") return 1024.0 * 1024;
  if (unit == "GiB") return 1024.0 * 1024 * 1024;
  if (unit == "KB") return 1e3;
  if (unit == "MB") return 1e6;
  if (unit == "GB") return 1e9;
  return 1;
}

class RealKernel : public Kernel {
 public:
  int open(perf_event_attr& attributes, int cpu, int leader) override {
    const long got = ::syscall(SYS_perf_event_open, &attributes, -1, cpu, leader, PERF_FLAG_FD_CLOEXEC);
    return got < 0 ? -errno : static_cast<int>(got);
  }
  long read(int descriptor, void* into, std::size_t bytes) override { return ::read(descriptor, into, bytes); }
  void close(int descriptor) override { ::close(descriptor); }
};

}  // namespace

Kernel& real_kernel() {
  static RealKernel kernel;
  return kernel;
}

std::optional<Encoding> encode(const std::string& pmu_folder, std::string_view terms) {
  Encoding made;
  for (terms = trimmed(terms); !terms.empty();) {
    const std::size_t comma = std::min(terms.find(','), terms.size());
    const std::string_view term = trimmed(terms.substr(0, comma));
    terms.remove_prefix(std::min(comma + 1, terms.size()));
    const std::size_t equals = term.find('=');
    const std::string_view name = term.substr(0, equals);
    const auto value =
        equals == std::string_view::npos ? std::optional<std::uint64_t>(1) : bits(term.substr(equals + 1));
    if (!value || name.empty() || name.find('/') != std::string_view::npos) return std::nullopt;
    const std::string format = read_once(pmu_folder + "format/" + std::string(name));
    if (!put(format.empty() ? name : std::string_view(format), *value, made)) return std::nullopt;
  }
  return made;
}

std::optional<Encoding> encode(const std::string& pmu_folder, const EventDefinition& event) {
  if (!event.use.empty() && event.use.find('/') == std::string::npos) {
    const std::string file = pmu_folder + "events/" + event.use, terms = read_once(file);
    if (!terms.empty()) {
      auto made = encode(pmu_folder, terms);
      if (!made) return std::nullopt;
      if (const std::string scale = read_once(file + ".scale"); !scale.empty())
        made->scale = std::strtod(scale.c_str(), nullptr);
      made->scale *= bytes_in(read_once(file + ".unit"));
      if (!(made->scale > 0)) return std::nullopt;
      return made;
    }
  }
  if (event.terms.empty()) return std::nullopt;
  auto made = encode(pmu_folder, event.terms);
  if (made) made->scale = event.scale;
  return made;
}

Counts::Counts(Kernel& kernel, std::uint32_t type, int cpu, const std::vector<Encoding>& events)
    : kernel_(kernel), type_(type), cpu_(cpu) {
  for (const Encoding& e : events) events_.push_back({e, -1, 0, -1, 0, kUnknown, 0});
  buffer_.resize(3 + events_.size());
}

Counts::~Counts() { close(); }

void Counts::close() {
  for (Event& e : events_) {
    if (e.descriptor >= 0) kernel_.close(e.descriptor);
    e.descriptor = e.group = -1;
  }
  groups_.clear();
}

int Counts::open() {
  close();
  int wrong = 0;
  for (Event& e : events_) {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = type_;
    attributes.config = e.encoding.config[0];
    attributes.config1 = e.encoding.config[1];
    attributes.config2 = e.encoding.config[2];
    attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    int got = -1;
    if (!groups_.empty()) got = kernel_.open(attributes, cpu_, groups_.back().leader);
    if (groups_.empty() ||
        got == -EINVAL) {  // the PMU has no more counters for this group: another takes turns with it
      got = kernel_.open(attributes, cpu_, -1);
      if (got >= 0) groups_.push_back({got});
    }
    if (got < 0) {
      if (wrong == 0) wrong = -got;
      if (got == -EACCES || got == -EPERM || got == -EMFILE) break;  // no other event fares better
      continue;
    }
    e.descriptor = got;
    e.group = static_cast<int>(groups_.size()) - 1;
    e.place = groups_.back().size++;
  }
  return wrong;
}

bool Counts::read(double now) {
  bool alive = false;
  counted_ = 1;
  for (Event& e : events_) e.grown = kUnknown, e.window = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const std::size_t bytes = (3 + group.size) * sizeof(std::uint64_t);
    if (kernel_.read(group.leader, buffer_.data(), buffer_.size() * sizeof(std::uint64_t)) !=
            static_cast<long>(bytes) ||
        buffer_[0] != group.size)
      continue;
    const auto since = [](std::uint64_t now_ns, std::uint64_t then_ns) {
      return now_ns > then_ns ? now_ns - then_ns : 0;
    };
    const std::uint64_t enabled = since(buffer_[1], group.enabled), running = since(buffer_[2], group.running);
    const bool known = group.seen && enabled > 0 && running > 0;
    alive = alive || enabled > 0;
    if (group.seen && enabled > 0)
      counted_ = std::min(counted_, std::min(1.0, static_cast<double>(running) / static_cast<double>(enabled)));
    for (Event& e : events_) {
      if (e.group != static_cast<int>(g)) continue;
      const std::uint64_t value = buffer_[3 + e.place];
      if (known && value >= e.last) {
        // Extrapolated from the time that it counted to the time it was to count.
        e.grown = static_cast<double>(value - e.last) * e.encoding.scale *
                  (static_cast<double>(enabled) / static_cast<double>(running));
        e.window = static_cast<double>(enabled) * 1e-9;
      }
      e.last = value;
    }
    group.enabled = buffer_[1];
    group.running = buffer_[2];
    group.seen = true;
  }
  if (!alive) {
    counted_ = kUnknown;
    // A CPU that went offline takes its events with it; those that are opened when it is back count again.
    if (now - tried_ >= 1) {
      tried_ = now;
      open();
      if (!groups_.empty()) read(now);  // where it counts from
      counted_ = kUnknown;
    }
  }
  return alive;
}

}  // namespace mm::watch
