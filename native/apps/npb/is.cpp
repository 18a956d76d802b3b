/// is: ranks many small integers by a bucket sort; each MPI rank gets the buckets of a range of keys.
#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "apps/npb/npb.hpp"

namespace mm::mpi::npb {
namespace {

constexpr int kIterations = 10, kTests = 5;

struct SortedKeysClass {
  const char* name;
  int log_keys, log_limit, log_buckets;
  /// The keys that the report verifies, and their ranks before the change per iteration.
  std::array<std::size_t, kTests> index;
  std::array<int, kTests> rank;
  int rising;         ///< the ranks of the first `rising` keys increase by one per iteration; the others decrease
  int rising_offset;  ///< offset of the iteration, for the rising ranks
  int falling_offset;
};
constexpr SortedKeysClass kClasses[] = {
    {"S", 16, 11, 9, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, 3, 0, 0},
    {"W", 20, 16, 10, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}, 2, -2, 0},
    {"A", 23, 19, 10, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}, 3, -1, -1},
    {"B", 25, 21, 10, {812306, 5102857, 26860214, 41869, 18232239}, {10244, 59149, 99, 33422937, 33135281}, 3, 0, 0},
    {"C",
     27,
     23,
     10,
     {44172927, 72999161, 74326391, 129606274, 21736814},
     {61147, 882988, 266290, 133997595, 133525895},
     3,
     0,
     0}};

class Sort final : public NpbKernel {
 public:
  explicit Sort(const SortedKeysClass& problem)
      : problem_(problem),
        first_(part(std::size_t{1} << problem.log_keys, n(ranks_), n(rank_))),
        keys_(part(std::size_t{1} << problem.log_keys, n(ranks_), n(rank_ + 1)) - first_),
        ordered_(zeros<int>(keys_.size())),
        totals_(buckets() + kTests),
        own_(totals_.size()),
        next_(threads()),
        below_(zeros<int>((std::size_t{1} << problem.log_limit) + 1)),
        send_(n(ranks_)),
        receive_(n(ranks_)),
        send_at_(n(ranks_)),
        receive_at_(n(ranks_)) {
    in_parts(keys_.size(), [&](std::size_t first, std::size_t last) {
      Random random(kSeed, 4 * (first_ + first));
      for (std::size_t k = first; k < last; ++k) {
        std::uint64_t sum = 0;
        for (int i = 0; i < 4; ++i) sum += random.bits();
        keys_[k] = static_cast<int>(sum >> (46 + 2 - problem.log_limit));
      }
      next_[this_thread()].resize(buckets());
    });
    original_.assign(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(std::min(keys_.size(), kChanged)));
  }

  void reset() override { std::copy(original_.begin(), original_.end(), keys_.begin()); }

  void solve() override {
    verified_ = 0;
    for (int i = 1; i <= kIterations; ++i) rank_keys(i);
  }

  std::string verify() override {
    World& world = World::get();
    const json mismatch = std::exchange(wrong_, nullptr);
    for (const json& rank_mismatch : world.gather(mismatch))
      if (!rank_mismatch.is_null())
        return "rank of key " + rank_mismatch["key"].dump() + " in iteration " + rank_mismatch["iteration"].dump() +
               ": expected " + rank_mismatch["expected"].dump() + ", got " + rank_mismatch["got"].dump();
    int verified = 0;
    check(MPI_Allreduce(&verified_, &verified, 1, MPI_INT, MPI_SUM, all_), "MPI_Allreduce");
    if (verified != kTests * kIterations)
      return "verified ranks: expected " + std::to_string(kTests * kIterations) + ", got " + std::to_string(verified);
    return sorted();
  }

 private:
  static constexpr std::size_t kChanged = 2 * kIterations + 1;  // keys at the front, changed by the iterations
  static std::size_t n(int i) { return static_cast<std::size_t>(i); }
  std::size_t buckets() const { return std::size_t{1} << problem_.log_buckets; }
  int shift() const { return problem_.log_limit - problem_.log_buckets; }
  int* key_at(std::size_t index) {
    return index >= first_ && index - first_ < keys_.size() ? &keys_[index - first_] : nullptr;
  }
  int expected(int test, int iteration) const {
    const int rank = problem_.rank[n(test)];
    return test < problem_.rising ? rank + iteration + problem_.rising_offset
                                  : rank - iteration - problem_.falling_offset;
  }

  void rank_keys(int iteration) {
    if (int* low = key_at(n(iteration))) *low = iteration;
    if (int* high = key_at(n(iteration + kIterations))) *high = (1 << problem_.log_limit) - iteration;

    // Count the keys per bucket: of each thread, of this rank and of all ranks. The keys to verify follow behind the
    // counts.
    in_parts(keys_.size(), [&](std::size_t first, std::size_t last) {
      int* const counts = next_[this_thread()].data();
      const int* const keys = keys_.data();
      const int to_bucket = shift();
      std::fill_n(counts, buckets(), 0);
      for (std::size_t k = first; k < last; ++k) ++counts[n(keys[k] >> to_bucket)];
    });
    std::fill(own_.begin(), own_.end(), 0);
    for (const auto& counts : next_)
      for (std::size_t b = 0; b < buckets(); ++b) own_[b] += counts[b];
    for (std::size_t t = 0; t < kTests; ++t)
      if (const int* key = key_at(problem_.index[t])) own_[buckets() + t] = *key;
    library([&] {
      check(MPI_Allreduce(own_.data(), totals_.data(), static_cast<int>(own_.size()), MPI_INT, MPI_SUM, all_),
            "MPI_Allreduce");
    });

    // The keys are ordered by bucket, and within a bucket by thread.
    int sum = 0;
    for (std::size_t b = 0; b < buckets(); ++b)
      for (auto& next : next_) sum += std::exchange(next[b], sum);
    in_parts(keys_.size(), [&](std::size_t first, std::size_t last) {
      int *const next = next_[this_thread()].data(), *const ordered = ordered_.data();
      const int* const keys = keys_.data();
      const int to_bucket = shift();
      for (std::size_t k = first; k < last; ++k) ordered[n(next[n(keys[k] >> to_bucket)]++)] = keys[k];
    });

    // Each rank gets buckets until it has its share of the keys.
    std::fill(send_.begin(), send_.end(), 0);
    std::fill(receive_.begin(), receive_.end(), 0);
    first_bucket_ = last_bucket_ = 0;
    before_ = 0;
    std::size_t target = 0, keys_so_far = 0;
    for (std::size_t b = 0; b < buckets(); ++b) {
      send_[target] += own_[b];
      if (target < n(rank_)) {
        before_ += totals_[b];
        first_bucket_ = last_bucket_ = b + 1;
      } else if (target == n(rank_)) {
        last_bucket_ = b + 1;
      }
      keys_so_far += n(totals_[b]);
      while (target + 1 < n(ranks_) && keys_so_far >= part(std::size_t{1} << problem_.log_keys, n(ranks_), target + 1))
        ++target;
    }
    if (ranks_ == 1) {
      received_ = ordered_.size();
      here_ = ordered_.data();
    } else {
      exchange();
    }

    count_below();
    const std::size_t min_key = first_bucket_ << shift(), end = last_bucket_ << shift();
    for (int t = 0; t < kTests; ++t) {
      const int key = totals_[buckets() + n(t)];
      if (n(key) < min_key || n(key) >= end) continue;
      const int actual = before_ + (n(key) == min_key ? 0 : below_[n(key) - min_key - 1]);
      if (actual == expected(t, iteration))
        ++verified_;
      else if (wrong_.is_null())
        wrong_ = {{"key", key}, {"iteration", iteration}, {"expected", expected(t, iteration)}, {"got", actual}};
    }
  }

  /// Counts the keys of this rank up to each value. Each thread has some of the buckets, with as many keys as the other
  /// threads.
  void count_below() {
    const std::size_t min_key = first_bucket_ << shift();
    std::vector<std::size_t> first_buckets(threads() + 1, last_bucket_);  // by thread
    std::vector<int> keys_before(threads());  // number of keys in the buckets before, by thread
    std::size_t next = 0;
    int keys_so_far = 0;
    for (std::size_t b = first_bucket_; b < last_bucket_; keys_so_far += totals_[b++])
      for (; next < threads() && n(keys_so_far) >= part(received_, threads(), next); ++next)
        first_buckets[next] = b, keys_before[next] = keys_so_far;
    in_parts(threads(), [&](std::size_t thread, std::size_t) {
      const std::size_t begin = first_buckets[thread], end = first_buckets[thread + 1];
      int* const below = below_.data();
      std::fill(below + (begin << shift()) - min_key, below + (end << shift()) - min_key, 0);
      const auto precedes = [this](int key, std::size_t bucket) { return n(key >> shift()) < bucket; };
      for (std::size_t r = 0; r < n(ranks_); ++r) {  // the keys of each sender are ordered by bucket
        const int* const sender_keys = here_ + (ranks_ == 1 ? 0 : receive_at_[r]);
        const int* const sender_end = sender_keys + (ranks_ == 1 ? static_cast<int>(received_) : receive_[r]);
        const int* const last = std::lower_bound(sender_keys, sender_end, end, precedes);
        for (const int* key = std::lower_bound(sender_keys, sender_end, begin, precedes); key != last; ++key)
          ++below[n(*key) - min_key];
      }
      int sum = keys_before[thread];
      for (std::size_t k = (begin << shift()) - min_key; k < (end << shift()) - min_key; ++k)
        sum += below[k], below[k] = sum;
    });
  }

  void exchange() {
    library([&] { check(MPI_Alltoall(send_.data(), 1, MPI_INT, receive_.data(), 1, MPI_INT, all_), "MPI_Alltoall"); });
    int out = 0, in = 0;
    for (std::size_t r = 0; r < n(ranks_); ++r) {
      send_at_[r] = out, out += send_[r];
      receive_at_[r] = in, in += receive_[r];
    }
    received_ = n(in);
    if (arrived_.size() < received_) arrived_.resize(received_);
    library([&] {
      check(MPI_Alltoallv(ordered_.data(), send_.data(), send_at_.data(), MPI_INT, arrived_.data(), receive_.data(),
                          receive_at_.data(), MPI_INT, all_),
            "MPI_Alltoallv");
    });
    here_ = arrived_.data();
  }

  /// Puts every key at the place that its rank states, and verifies the order, also across MPI ranks.
  std::string sorted() {
    const std::size_t min_key = first_bucket_ << shift();
    std::vector<int> sorted_keys(received_, -1);
    for (std::size_t i = 0; i < received_; ++i) {
      const int index = --below_[n(here_[i]) - min_key];
      if (index >= 0 && n(index) < sorted_keys.size()) sorted_keys[n(index)] = here_[i];
    }
    struct SortedSpan {
      long long count = 0, first = 0, last = 0, disorder = 0, sum_before = 0, sum_after = 0;
    } local;
    if (!sorted_keys.empty())
      local.count = static_cast<long long>(received_), local.first = sorted_keys.front(),
      local.last = sorted_keys.back();
    for (std::size_t i = 0; i < sorted_keys.size(); ++i)
      local.disorder += sorted_keys[i] < 0 || (i > 0 && sorted_keys[i - 1] > sorted_keys[i]) ? 1 : 0;
    local.sum_before = std::accumulate(keys_.begin(), keys_.end(), 0LL);
    local.sum_after = std::accumulate(sorted_keys.begin(), sorted_keys.end(), 0LL);
    std::vector<SortedSpan> parts(n(ranks_));
    constexpr int kNumbers = sizeof(SortedSpan) / sizeof(long long);
    check(MPI_Allgather(&local, kNumbers, MPI_LONG_LONG, parts.data(), kNumbers, MPI_LONG_LONG, all_), "MPI_Allgather");
    SortedSpan whole;
    for (const SortedSpan& rank_part : parts) {
      whole.sum_before += rank_part.sum_before;
      whole.sum_after += rank_part.sum_after;
      if (rank_part.count == 0) continue;
      whole.count += rank_part.count;
      whole.disorder += rank_part.disorder + (rank_part.first < whole.last ? 1 : 0);
      whole.last = rank_part.last;
    }
    for (const auto& [name, expected, actual] : {std::tuple{"keys", 1LL << problem_.log_keys, whole.count},
                                                 std::tuple{"keys out of order", 0LL, whole.disorder},
                                                 std::tuple{"sum of keys", whole.sum_before, whole.sum_after}})
      if (expected != actual)
        return std::string(name) + ": expected " + std::to_string(expected) + ", got " + std::to_string(actual);
    return "";
  }

  const SortedKeysClass& problem_;
  const std::size_t first_;    // index of this rank's first key
  Array<int> keys_;            // changed by the iterations
  std::vector<int> original_;  // initial values of the keys that change
  Array<int> ordered_;         // keys of this rank, by bucket
  std::vector<int> arrived_;   // keys of this rank's buckets
  std::vector<int> totals_, own_;
  std::vector<std::vector<int>> next_;  // by thread and bucket
  Array<int> below_;
  std::vector<int> send_, receive_, send_at_, receive_at_;
  const int* here_ = nullptr;
  std::size_t received_ = 0, first_bucket_ = 0, last_bucket_ = 0;
  int before_ = 0, verified_ = 0;
  json wrong_;
};

}  // namespace

std::vector<Problem> is_problems() {
  std::vector<Problem> problems;
  for (const SortedKeysClass& c : kClasses)
    problems.push_back({.kernel = "is",
                        .class_name = c.name,
                        .size = "2^" + std::to_string(c.log_keys) + " keys to 2^" + std::to_string(c.log_limit),
                        .operations = static_cast<double>(kIterations) * static_cast<double>(1 << c.log_keys),
                        .bytes = 16.0 * (1 << c.log_keys),
                        .max_ranks = 1 << c.log_buckets,
                        .make = [&c](bool) { return std::make_shared<Sort>(c); }});
  return problems;
}

}  // namespace mm::mpi::npb
