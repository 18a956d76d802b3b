#include "load/scenario/processes/pages.hpp"

#include <unistd.h>

#include <string>
#include <string_view>

#include "place/binding/pages.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {

PageCounter::PageCounter() : nodes_(ids_of(read_text("/sys/devices/system/node/online"))) {}

std::optional<std::map<int, std::uint64_t>> PageCounter::count(pid_t pid) const {
  if (nodes_.size() > 1) return place::count_pages(pid).own;
  // With one node the total suffices, which is cheaper than a walk over all mappings.
  const std::string text = read_text("/proc/" + std::to_string(pid) + "/statm");
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  const std::uint64_t pages = leading_number(std::string_view(text).substr(space + 1));
  return std::map<int, std::uint64_t>{
      {nodes_.empty() ? 0 : nodes_[0], pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
}

}  // namespace mm::load
