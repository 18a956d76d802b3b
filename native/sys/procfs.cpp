#include "sys/procfs.hpp"

#include <charconv>

namespace mm {
namespace {

template <class T>
bool parse_number(const char* begin, const char* end, T& number) {
  return std::from_chars(begin, end, number).ec == std::errc();
}

}  // namespace

std::optional<TaskStat> parse_stat(std::string_view text) {
  // The command may contain spaces and parentheses, so the last parenthesis ends it.
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open || close + 2 >= text.size())
    return {};
  TaskStat stat;
  stat.command = text.substr(open + 1, close - open - 1);
  stat.state = text[close + 2];
  const char* at = text.data() + close + 3;
  const char* const end = text.data() + text.size();
  for (int field = 4; field <= 39; ++field) {
    while (at != end && *at == ' ') ++at;
    // Field numbers of proc_pid_stat(5). The others are skipped: samplers parse this text for every thread.
    bool parsed = true;
    if (field == 4) parsed = parse_number(at, end, stat.parent);
    if (field == 14) parsed = parse_number(at, end, stat.user);
    if (field == 15) parsed = parse_number(at, end, stat.system);
    if (field == 20) parsed = parse_number(at, end, stat.threads);
    if (field == 22) parsed = parse_number(at, end, stat.started);
    if (field == 39) parsed = parse_number(at, end, stat.cpu);
    if (!parsed) return {};
    while (at != end && *at != ' ') ++at;
  }
  return stat;
}

}  // namespace mm
