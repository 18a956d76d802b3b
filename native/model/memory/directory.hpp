#pragma once
/// The directory of traced lines: which cores hold which lines. Transactions on one line are serialised.
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "model/memory/transaction.hpp"

namespace mm::model {

class Directory {
 public:
  /// Returns whether an access by `endpoint` hits a line that it holds.
  bool hits(std::uint64_t line, std::uint32_t endpoint, Op op) const;

  /// Occupies the line of a transaction and sets its owner and state; returns false if `t` has to wait for an earlier
  /// one.
  bool occupy(std::uint32_t t, Transaction& x);

  /// Ends a transaction: its requester holds the line. Returns the transaction that occupies the line next, which still
  /// has to call `occupy`; kNone if no transaction waits.
  std::uint32_t release(const Transaction& x);

  const std::vector<std::uint32_t>& sharers(std::uint64_t line) { return lines_[line].sharers; }

 private:
  struct Line {
    std::uint32_t owner = kNone;         ///< endpoint that may write it
    std::vector<std::uint32_t> sharers;  ///< endpoints that may read it
    bool busy = false;                   ///< a transaction on it is open
    std::vector<std::uint32_t> waiting;
  };
  std::unordered_map<std::uint64_t, Line> lines_;
};

/// Tracks which lines the cores hold according to the messages that they received, independently of the directory, and
/// checks that a line with a writer is not held by any other core.
class SingleWriterCheck {
 public:
  /// Handles a probe that a core answered: it invalidates the line, or keeps it for reading.
  void probed(std::uint64_t line, std::uint32_t endpoint, Op op);
  /// Throws Failure if another core holds the line in conflict.
  void completed(const Transaction& x);

 private:
  std::unordered_map<std::uint64_t, std::map<std::uint32_t, char>> holders_;  ///< 'r' or 'w', by line and endpoint
};

}  // namespace mm::model
