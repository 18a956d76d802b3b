#include "model/memory/directory.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace mm::model {
namespace {

bool contains(const std::vector<std::uint32_t>& list, std::uint32_t endpoint) {
  return std::find(list.begin(), list.end(), endpoint) != list.end();
}

}  // namespace

bool Directory::hits(std::uint64_t line, std::uint32_t endpoint, Op op) const {
  const auto entry = lines_.find(line);
  if (entry == lines_.end()) return false;
  return entry->second.owner == endpoint || (op == Op::read && contains(entry->second.sharers, endpoint));
}

bool Directory::occupy(std::uint32_t t, Transaction& x) {
  Line& line = lines_[x.line];
  if (line.busy) {
    line.waiting.push_back(t);
    return false;
  }
  line.busy = true;
  x.owner = line.owner != x.requester ? line.owner : kNone;
  x.state = x.owner != kNone ? State::dirty : line.sharers.empty() ? State::clean : State::shared;
  return true;
}

std::uint32_t Directory::release(const Transaction& x) {
  Line& line = lines_[x.line];
  if (x.op == Op::read) {
    if (line.owner != kNone) line.sharers.push_back(line.owner);
    line.owner = kNone;
    if (!contains(line.sharers, x.requester)) line.sharers.push_back(x.requester);
  } else {
    line.owner = x.requester;
    line.sharers.clear();
  }
  line.busy = false;
  if (line.waiting.empty()) return kNone;
  const std::uint32_t next = line.waiting.front();
  line.waiting.erase(line.waiting.begin());
  return next;
}

void SingleWriterCheck::probed(std::uint64_t line, std::uint32_t endpoint, Op op) {
  if (op == Op::own)
    holders_[line].erase(endpoint);
  else
    holders_[line][endpoint] = 'r';
}

void SingleWriterCheck::completed(const Transaction& x) {
  auto& holders = holders_[x.line];
  const char mode = x.op == Op::read ? 'r' : 'w';
  for (const auto& [holder, holder_mode] : holders)
    if (holder != x.requester && (holder_mode == 'w' || mode == 'w'))
      throw Failure("coherence violated: line " + std::to_string(x.line) + " is held for " +
                    (holder_mode == 'w' ? "writing" : "reading") + " by endpoint " + std::to_string(holder) +
                    " while endpoint " + std::to_string(x.requester) + (mode == 'w' ? " writes it" : " reads it"));
  holders[x.requester] = mode;
}

}  // namespace mm::model
