#pragma once
/// The event queue: a calendar of 4,096 buckets, and a heap for events beyond its horizon.
/// Source: Brown, "Calendar queues", CACM 31(10), 1988.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace mm::model {

using Time = std::int64_t;  ///< ps
constexpr Time kNever = INT64_MAX / 4;

struct Event {
  Time at;
  std::uint32_t what;  ///< kind in the upper 4 bits, target below
  std::uint32_t with;
};
static_assert(sizeof(Event) == 16);

/// Events are returned in order of time; among equal times in the order of insertion (far ones first).
class Calendar {
 public:
  /// A bucket is 2^shift ps wide. About one event per bucket is optimal; any width is correct.
  explicit Calendar(int shift = 9) : shift_(shift) {}

  void push(Time at, std::uint32_t what, std::uint32_t with) {
    ++size_;
    const std::int64_t bucket = at >> shift_;
    if (bucket <= open_) {  // the current bucket: keep it sorted
      auto place = now_.end();
      while (place != now_.begin() + static_cast<std::ptrdiff_t>(next_) && (place - 1)->at > at) --place;
      now_.insert(place, Event{at, what, with});
    } else if (bucket - open_ < kBuckets) {
      const auto slot = static_cast<std::size_t>(bucket) % kBuckets;
      append(slot, Event{at, what, with});
    } else {
      far_.push_back(Far{Event{at, what, with}, far_count_++});
      std::push_heap(far_.begin(), far_.end(), later);
    }
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// Returns the earliest event. Pre: not empty.
  Event pop() {
    --size_;
    if (next_ == now_.size()) advance();
    return now_[next_++];
  }

 private:
  static constexpr std::int64_t kBuckets = 4096;
  struct Far {
    Event event;
    std::uint64_t count;
  };
  /// Buckets are lists of chunks from one pool, so that the chunks in use stay in the caches as the calendar turns.
  static constexpr std::uint32_t kNoChunk = 0xffffffff;
  struct Chunk {
    std::array<Event, 15> events;
    std::uint32_t count, next;
  };
  void append(std::size_t slot, const Event& event) {
    std::uint64_t& word = used_[slot / 64];
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    if (!(word & bit)) {
      word |= bit;
      first_[slot] = last_[slot] = fresh();
    } else if (chunks_[last_[slot]].count == chunks_[last_[slot]].events.size()) {
      const std::uint32_t c = fresh();
      chunks_[last_[slot]].next = c;
      last_[slot] = c;
    }
    Chunk& chunk = chunks_[last_[slot]];
    chunk.events[chunk.count++] = event;
  }
  std::uint32_t fresh() {
    std::uint32_t c = free_;
    if (c == kNoChunk) {
      c = static_cast<std::uint32_t>(chunks_.size());
      chunks_.emplace_back();
    } else {
      free_ = chunks_[c].next;
    }
    chunks_[c].count = 0;
    chunks_[c].next = kNoChunk;
    return c;
  }
  static bool later(const Far& a, const Far& b) {
    return a.event.at != b.event.at ? a.event.at > b.event.at : a.count > b.count;
  }

  void advance() {
    now_.clear();
    next_ = 0;
    std::int64_t bucket = next_used();
    if (!far_.empty()) {
      const std::int64_t first = far_.front().event.at >> shift_;
      if (bucket < 0 || first < bucket) bucket = first;
    }
    open_ = bucket;
    while (!far_.empty() && (far_.front().event.at >> shift_) == bucket) {
      std::pop_heap(far_.begin(), far_.end(), later);
      now_.push_back(far_.back().event);
      far_.pop_back();
    }
    const auto slot = static_cast<std::size_t>(bucket) % kBuckets;
    if (used_[slot / 64] >> slot % 64 & 1U) {
      for (std::uint32_t c = first_[slot]; c != kNoChunk;) {
        const Chunk& chunk = chunks_[c];
        now_.insert(now_.end(), chunk.events.begin(), chunk.events.begin() + chunk.count);
        const std::uint32_t next = chunk.next;
        chunks_[c].next = free_;
        free_ = c;
        c = next;
      }
      used_[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
    }
    const auto earlier = [](const Event& a, const Event& b) { return a.at < b.at; };
    if (!std::is_sorted(now_.begin(), now_.end(), earlier)) std::stable_sort(now_.begin(), now_.end(), earlier);
  }

  /// Returns the first non-empty bucket after the open one; -1 if all are empty.
  std::int64_t next_used() const {
    const auto start = static_cast<std::size_t>(open_ + 1) % kBuckets;
    for (std::size_t i = 0; i <= kBuckets / 64; ++i) {
      const std::size_t word = (start / 64 + i) % (kBuckets / 64);
      std::uint64_t bits = used_[word];
      if (i == 0) bits &= ~std::uint64_t{0} << start % 64;
      if (i == kBuckets / 64) bits &= ~(~std::uint64_t{0} << start % 64);
      if (bits == 0) continue;
      const auto slot = static_cast<std::int64_t>(word * 64) + std::countr_zero(bits);
      const auto ahead = (slot - static_cast<std::int64_t>(start) + kBuckets) % kBuckets;
      return open_ + 1 + ahead;
    }
    return -1;
  }

  int shift_;
  std::int64_t open_ = -1;
  std::size_t next_ = 0, size_ = 0;
  std::vector<Event> now_;
  std::vector<Chunk> chunks_;
  std::uint32_t free_ = kNoChunk;
  std::array<std::uint32_t, kBuckets> first_{}, last_{};
  std::array<std::uint64_t, kBuckets / 64> used_{};
  std::vector<Far> far_;
  std::uint64_t far_count_ = 0;
};

}  // namespace mm::model
