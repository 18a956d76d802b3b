#include "place/observe/memory.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "place/observe/text.hpp"

namespace mm::place::observe {

namespace {

constexpr double kDuty = 0.02;  // maximum share of time for walks
// B on other nodes; up to this size, pages count as misplaced only with strict_memory.
constexpr std::uint64_t kSmall = 1 << 20;

}  // namespace

std::uint64_t elsewhere(const Expectation& expected, const std::map<int, std::uint64_t>& bytes) {
  std::uint64_t n = 0;
  for (const auto& [node, b] : bytes)
    if (!std::binary_search(expected.memory_nodes.begin(), expected.memory_nodes.end(), node)) n += b;
  return n;
}

PageCensus::PageCensus(Context& context) : context_(context) {
  if (!context.expected.memory_nodes.empty()) levels_ = node_levels();
}

bool PageCensus::misplaced(const PageCount& pages) const {
  if (context_.expected.memory_nodes.empty()) return false;
  const std::uint64_t remote = elsewhere(context_.expected, pages.own);
  return static_cast<double>(remote) > context_.expected.tolerated_share * static_cast<double>(sum(pages.own)) &&
         (context_.expected.strict_memory || remote > kSmall);
}

void PageCensus::walk_pages(ObservedProcess& process, double now) {
  const double begin = thread_cpu_s();
  try {
    PageCount pages = count_pages(process.id);
    if (!pages.own.empty() || !pages.files.empty()) {
      process.outside_now = misplaced(pages);
      if (process.outside_now) {
        if (!process.counted) process.first_walk_outside = true;
        ++process.outside_walks;
        if (elsewhere(context_.expected, pages.own) >= elsewhere(context_.expected, process.worst.own)) {
          process.worst = pages;
          process.levels = node_levels();
          for (const auto& [node, level] : process.levels)
            if (const auto start_level = levels_.find(node); start_level != levels_.end())
              process.missed[node] = level.foreign - std::min(level.foreign, start_level->second.foreign);
        }
      }
      process.pages = std::move(pages);
      process.counted = true;
    }
  } catch (const Absent& error) {
    context_.absent.insert(std::string("pages: ") + error.what() + " (" + error.enable + ")");
    process.gap_s = 1e9;
  }
  const double cost = thread_cpu_s() - begin;
  cost_s_ += cost;
  process.next_walk_s = now + std::max(process.gap_s, cost / kDuty);
  process.gap_s = std::min(process.gap_s * 1.5, 10.0);
}

void PageCensus::update(ObservedProcess& process, double now) {
  // A first walk may exceed the budget, so that short programs are covered.
  const double budget = process.counted ? kDuty * now + 0.01 : 0.1 * now + 0.05;
  if (process.next_walk_s <= now && cost_s_ <= budget) walk_pages(process, now);
}

}  // namespace mm::place::observe
