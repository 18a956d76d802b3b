/// defects: counts words that do not arrive, sent by methods that some libraries are known to get wrong.
#include <algorithm>

#include "base/error.hpp"
#include "mpi/messages/message.hpp"

#ifdef MM_CAF
#include "mpi/protocols/caf.hpp"

extern "C" {
int mm_caf_trial_open(int elements);
void mm_caf_trial_close();
void mm_caf_trial_put(std::int64_t word, int image, int as_element);
std::int64_t mm_caf_trial_got(int as_element);
void mm_caf_trial_post(int image);
int mm_caf_trial_uncounted(int posts);
}
#endif

namespace mm::mpi {
namespace {

constexpr int kRounds = 16;   // for single words, since a library may lose only some of them
constexpr int kMaxShift = 8;  // maximum distance in words at which a misplaced message is searched for

const Description& defects_description() {
  static const Description d{
      .name = "defects",
      .summary = "library defects: words that do not arrive where they were sent",
      .detail =
          "window: MPI_Put and MPI_Get between ranks 0 and 1 in windows whose size is a multiple of 16 bytes or not. "
          "caf_scalar, caf_element, caf_event: a word to the next image as a scalar co-array or as the last element of "
          "an array, and posts to each of its events. Nothing is timed. shifted_bytes is the offset at which most of "
          "the misplaced words were found.\n"
          "example: mpirun -n 2 meshmark-comm defects",
      .source = "found by the verification of pingpong and halo; OpenCoarrays 2.10.1 on MPICH 4.0.2",
      .spoils = {},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {{"words", "words of 8 bytes per message", "", Kind::integers, "1..65536", 1, 1 << 24},
                     {"beyond", "window size beyond a multiple of 16 bytes", "B", Kind::integers, "0,8", 0, 15},
                     {"elements", "elements or events per image", "", Kind::integers, "1,2,3,4,6", 1, 4096},
                     {"trial",
                      "trials to run",
                      "",
                      Kind::choices,
                      "all",
                      {},
                      {},
                      {"all", "window", "caf_scalar", "caf_element", "caf_event"}}},
      .metrics = {{"wrong_words", "words, or counts of events, that are not where they should be", "1", Better::lower}},
      .identity = {"trial", "protocol", "words", "window_bytes", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

/// Returns the number of wrong words that one rank received, and the offset at which they were found.
json received(const std::uint64_t* memory, std::size_t words, std::uint32_t tag, int owner) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < words; ++i)
    if (memory[i] != payload(tag, owner, 0, i) && wrong++ == 0) first = i;
  json result = {{"wrong", wrong}};
  if (wrong == 0) return result;
  result["first"] = first;
  std::size_t max_matches = 0;
  const auto n = static_cast<std::ptrdiff_t>(words);
  for (std::ptrdiff_t shift = -kMaxShift; shift <= kMaxShift; ++shift) {
    std::size_t matches = 0;
    for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, -shift); i < n && i + shift < n; ++i)
      matches += memory[i + shift] == payload(tag, owner, 0, static_cast<std::size_t>(i));
    if (matches > max_matches) {
      max_matches = matches;
      result["shifted_bytes"] = 8 * shift;
    }
  }
  return result;
}

/// Rank 0 puts a message to rank 1, or gets a message from it.
json window_trial(std::size_t words, std::size_t beyond, bool put, std::uint32_t tag) {
  const World& world = World::get();
  const std::size_t message = 8 * words, bytes = (message + 15) / 16 * 16 + beyond;
  std::uint64_t* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  check(MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, world.all(), static_cast<void*>(&memory),
                         &window),
        "MPI_Win_allocate");
  std::memset(memory, 0, bytes);
  const Store store(message);
  auto* const local = reinterpret_cast<std::uint64_t*>(store.memory.get());
  Message(put ? store.memory.get() : reinterpret_cast<std::uint8_t*>(memory), message).fill(tag, world.rank(), true);
  if (!put) std::memset(local, 0, message);
  check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
  MPI_Win_sync(window);
  check(MPI_Barrier(world.all()), "MPI_Barrier");
  if (world.rank() == 0) {
    const int count = static_cast<int>(message);
    if (put)
      check(MPI_Put(local, count, MPI_BYTE, 1, 0, count, MPI_BYTE, window), "MPI_Put");
    else
      check(MPI_Get(local, count, MPI_BYTE, 1, 0, count, MPI_BYTE, window), "MPI_Get");
    check(MPI_Win_flush(1, window), "MPI_Win_flush");
  }
  check(MPI_Barrier(world.all()), "MPI_Barrier");
  MPI_Win_sync(window);
  json result = nullptr;
  if (put && world.rank() == 1) result = received(memory, words, tag, 0);
  if (!put && world.rank() == 0) result = received(local, words, tag, 1);
  check(MPI_Barrier(world.all()), "MPI_Barrier");
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  json local_result = world.rank() < 2 ? result : json(nullptr);
  for (json& rank_result : World::get().gather(local_result))
    if (!rank_result.is_null()) result = std::move(rank_result);
  result["window_bytes"] = bytes;
  return result;
}

constexpr int kEventBytes = 4;  // in OpenCoarrays

/// In each round, every image sends to the next one.
json coarray_trial([[maybe_unused]] const std::string& trial, [[maybe_unused]] int elements) {
#ifdef MM_CAF
  World& world = World::get();
  start_coarrays();
  if (mm_caf_trial_open(elements) != 0) throw Absent("co-arrays: out of memory");
  const bool events = trial == "caf_event";
  const int next = (world.rank() + 1) % world.size(), before = (world.rank() + world.size() - 1) % world.size();
  const int as_element = trial == "caf_element" ? 1 : 0;
  int wrong = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const auto tag = static_cast<std::uint32_t>(round);
    if (events) {
      mm_caf_trial_post(next + 1);
      wrong += mm_caf_trial_uncounted(round);
    } else {
      mm_caf_trial_put(static_cast<std::int64_t>(payload(tag, world.rank(), 0, 0)), next + 1, as_element);
      wrong += mm_caf_trial_got(as_element) != static_cast<std::int64_t>(payload(tag, before, 0, 0));
    }
  }
  mm_caf_trial_close();
  int total = 0;
  check(MPI_Allreduce(&wrong, &total, 1, MPI_INT, MPI_SUM, world.all()), "MPI_Allreduce");
  return {{"wrong", total},
          {"sent_words", kRounds * world.size() * (events ? elements : 1)},
          {"window_bytes", elements * (events ? kEventBytes : 8)}};
#else
  throw Absent("this build has no co-arrays");
#endif
}

void measure_defects(Run& run) {
  World& world = World::get();
  world.check_request(run);
  if (world.size() < 2) throw Absent("needs at least 2 ranks, found 1", "--ranks 2");
  std::uint32_t tag = 0;
  const auto report = [&](json conditions, const auto& trial) {
    const auto [point, finished] = run.next_point();
    if (world.broadcast(finished).template get<bool>()) return;
    conditions.update(world.conditions());
    const std::string start = utc_now();
    const double start_s = wall_s();
    json result;
    try {
      result = trial();
    } catch (const Absent& error) {
      run.absent("wrong_words", conditions, error.what(), error.enable);
      return;
    }
    const double wrong = result["wrong"];
    result.erase("wrong");
    conditions.update(result);
    run.report(point, "wrong_words", {wrong}, conditions, {}, start, wall_s() - start_s);
    run.finish(point, conditions);
  };
  if (run.selects("trial", {"window"}))
    for (const int words : run.integers("words", 65536))
      for (const int beyond : run.integers("beyond", 8))
        for (const bool put : {true, false})
          report({{"trial", "window"}, {"protocol", put ? "put" : "get"}, {"words", words}}, [&] {
            return window_trial(static_cast<std::size_t>(words), static_cast<std::size_t>(beyond), put, ++tag);
          });
  for (const std::string trial : {"caf_scalar", "caf_element", "caf_event"}) {
    if (!run.selects("trial", {trial})) continue;
    const char* const protocol = trial == "caf_event" ? "post" : "put";
    for (const int elements : trial == "caf_scalar" ? std::vector{1} : run.integers("elements", 6))
      report({{"trial", trial}, {"protocol", protocol}, {"words", 1}, {"elements", elements}},
             [&] { return coarray_trial(trial, elements); });
  }
}

const Instrument defects{defects_description(), measure_defects};

}  // namespace
}  // namespace mm::mpi
