#include "place/ledger/format.hpp"

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/ledger/folder.hpp"

namespace mm::place::ledger {

namespace {

constexpr std::size_t kMaxParts = 1 << 16;

}  // namespace

std::string text_of(const json& line, const char* key) {
  const std::string text = line.value(key, "");
  if (text.size() > kMaxText) throw Failure(std::string(key) + " is too long");
  return text;
}

Reservation parse_reservation(const std::string& text, std::string& boot) {
  if (text.size() > kMaxBytes) throw Failure("longer than 1 MiB");
  Reservation reservation;
  bool first = true;
  for (const std::string& text_line : split(text, '\n')) {
    if (text_line.empty()) continue;
    const json line = parse_json(text_line);
    if (!line.is_object()) {
      if (first) throw Failure("not a JSON object");
      continue;
    }
    try {
      if (first) {
        boot = text_of(line, "boot");
        reservation.joined = 1;
        reservation.pid = line.at("pid").get<int>();
        reservation.since_s = line.at("since_s").get<double>();
        reservation.command = text_of(line, "command");
        reservation.policy = text_of(line, "policy");
        reservation.job = text_of(line, "job");
        reservation.exclusive = line.at("exclusive").get<bool>();
        const json& parts = line.at("parts");
        if (!parts.is_array() || parts.size() > kMaxParts) throw Failure("parts is not a list of at most 65536");
        for (const json& part : parts)
          reservation.layout.parts.push_back(parse_cpu_list("parts", part.get<std::string>()));
      }
      if (line.contains("joined")) reservation.joined += 1;
      if (line.contains("cgroup")) reservation.cgroup = text_of(line, "cgroup");
    } catch (const UsageError& e) {
      throw Failure(e.field + " " + e.what());
    } catch (const json::exception& e) {
      throw Failure(e.what());
    }
    first = false;
  }
  if (first) throw Failure("empty");
  return reservation;
}

std::string reservation_line(const Reservation& reservation) {
  json line{{"boot", boot_id()},
            {"pid", reservation.pid},
            {"since_s", reservation.since_s},
            {"command", reservation.command.substr(0, kMaxText)},
            {"policy", reservation.policy},
            {"job", reservation.job},
            {"exclusive", reservation.exclusive}};
  line["parts"] = json::array();
  for (const auto& part : reservation.layout.parts) line["parts"].push_back(cpu_list(part));
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void append(int fd, const json& line, const std::string& path) { write_text(fd, "\n" + line.dump() + "\n", path); }

}  // namespace mm::place::ledger
