#pragma once
/// Items in a pool that hands out numbers. An item has a member `next`, which links the free items.
#include <cstdint>
#include <vector>

#include "model/network/graph.hpp"

namespace mm::model {

template <class Thing>
class Pool {
 public:
  std::uint32_t take() {
    if (free_ == kNone) {
      all_.emplace_back();
      return static_cast<std::uint32_t>(all_.size() - 1);
    }
    const std::uint32_t n = free_;
    free_ = all_[n].next;
    all_[n] = Thing{};
    return n;
  }
  Thing& operator[](std::uint32_t n) { return all_[n]; }
  const Thing& operator[](std::uint32_t n) const { return all_[n]; }
  void release(std::uint32_t n) {
    all_[n].next = free_;
    free_ = n;
  }
  std::size_t bytes() const { return all_.capacity() * sizeof(Thing); }

 private:
  std::vector<Thing> all_;
  std::uint32_t free_ = kNone;
};

/// A queue of items of one pool, linked by `next`.
struct PoolQueue {
  std::uint32_t head = kNone, tail = kNone;

  template <class Thing>
  void push(Pool<Thing>& pool, std::uint32_t n) {
    pool[n].next = kNone;
    (head == kNone ? head : pool[tail].next) = n;
    tail = n;
  }
  /// Pre: not empty.
  template <class Thing>
  std::uint32_t pop(Pool<Thing>& pool) {
    const std::uint32_t n = head;
    head = pool[n].next;
    pool[n].next = kNone;
    return n;
  }
};

}  // namespace mm::model
