#pragma once
/// Two machines, layouts on them, and what a refusal says, for tests of what the placer parses and emits.
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "place/syntax.hpp"

using Parts = std::vector<std::vector<int>>;

inline mm::Machine two_by_four() { return mm::machine_of("pack:2 [numa] core:4 pu:1"); }
// Linux's numbering of a machine with two threads per core: 0-3 are the first threads, 4-7 the second.
inline mm::Machine threads_last() { return mm::machine_of("pack:2 [numa] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)"); }

inline std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const mm::UsageError& wrong) {
    return wrong.field + ": " + wrong.what() + "; " + wrong.allowed;
  } catch (const mm::place::Busy& busy) {
    return std::string("busy: ") + busy.what();
  }
  return "";
}
