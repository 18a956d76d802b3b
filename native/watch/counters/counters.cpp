#include "watch/counters/counters.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm::watch {

std::vector<Pmu> find_pmus(const std::string& root) {
  const std::string folder = root + "/sys/bus/event_source/devices/";
  std::vector<Pmu> pmus;
  for (const std::string& name : names_in(folder)) {
    const auto type = number_in(folder + name + "/type", -1);
    if (type < 0 || type > 0xffffffffLL) continue;
    Pmu pmu{name, folder + name + "/", static_cast<std::uint32_t>(type),
            ids_of(first_line(folder + name + "/cpumask"))};
    if (pmu.cpus.empty()) pmu.cpus = ids_of(first_line(folder + name + "/cpus"));
    pmus.push_back(std::move(pmu));
  }
  // In numeric order: uncore_imc_10 after uncore_imc_9.
  const auto key = [](const Pmu& p) {
    return std::pair(std::string_view(p.name).substr(0, p.name.find_last_not_of("0123456789") + 1),
                     number_at_end(p.name));
  };
  std::stable_sort(pmus.begin(), pmus.end(), [&](const Pmu& a, const Pmu& b) { return key(a) < key(b); });
  return pmus;
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
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// Stores a value in the bits of a format: `config:0-7,32-35`, `config1:0-63`, or `config` for all of them.
bool store_bits(std::string_view format, std::uint64_t value, Encoding& into) {
  const std::size_t colon = format.find(':');
  const std::string_view word = format.substr(0, colon);
  const std::size_t index = word == "config" ? 0 : word == "config1" ? 1 : word == "config2" ? 2 : 3;
  if (index == 3) return false;
  if (colon == std::string_view::npos) {
    into.config[index] |= value;
    return true;
  }
  std::string_view fields = format.substr(colon + 1);
  while (!fields.empty()) {
    const std::size_t comma = std::min(fields.find(','), fields.size());
    const std::string_view field = fields.substr(0, comma);
    fields.remove_prefix(std::min(comma + 1, fields.size()));
    const std::size_t dash = field.find('-');
    const auto first = whole_number(field.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number(field.substr(dash + 1));
    if (first < 0 || last < first || last > 63) return false;
    for (auto bit = first; bit <= last; ++bit, value >>= 1) into.config[index] |= (value & 1) << bit;
  }
  return value == 0;  // otherwise the value has too many bits
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

}  // namespace

std::optional<Encoding> encode(const std::string& pmu_folder, std::string_view terms) {
  Encoding encoding;
  for (terms = trimmed(terms); !terms.empty();) {
    const std::size_t comma = std::min(terms.find(','), terms.size());
    const std::string_view term = trimmed(terms.substr(0, comma));
    terms.remove_prefix(std::min(comma + 1, terms.size()));
    const std::size_t equals = term.find('=');
    const std::string_view name = term.substr(0, equals);
    const auto value =
        equals == std::string_view::npos ? std::optional<std::uint64_t>(1) : bits(term.substr(equals + 1));
    if (!value || name.empty() || name.find('/') != std::string_view::npos) return std::nullopt;
    const std::string format = first_line(pmu_folder + "format/" + std::string(name));
    if (!store_bits(format.empty() ? name : std::string_view(format), *value, encoding)) return std::nullopt;
  }
  return encoding;
}

std::optional<Encoding> encode(const std::string& pmu_folder, const EventDefinition& event) {
  if (!event.use.empty() && event.use.find('/') == std::string::npos) {
    const std::string file = pmu_folder + "events/" + event.use, terms = first_line(file);
    if (!terms.empty()) {
      auto encoding = encode(pmu_folder, terms);
      if (!encoding) return std::nullopt;
      if (const std::string scale = first_line(file + ".scale"); !scale.empty())
        encoding->scale = std::strtod(scale.c_str(), nullptr);
      encoding->scale *= bytes_in(first_line(file + ".unit"));
      if (!(encoding->scale > 0)) return std::nullopt;
      return encoding;
    }
  }
  if (event.terms.empty()) return std::nullopt;
  auto encoding = encode(pmu_folder, event.terms);
  if (encoding) encoding->scale = event.scale;
  return encoding;
}

}  // namespace mm::watch
