/// pingpong: one message from rank 0 to another rank and back, or one-sided.
#include "base/error.hpp"
#include "mpi/harness/batch.hpp"
#include "mpi/messages/message.hpp"

namespace mm::mpi {
namespace {

const Description& pingpong_description() {
  static const Description d{
      .name = "pingpong",
      .summary = "one message between two ranks: latency and bandwidth by size",
      .detail =
          "send: half of a round trip of MPI_Send and MPI_Recv. put, get: MPI_Put or MPI_Get and MPI_Win_flush, which "
          "returns when the transfer is complete; the other rank is passive.\n"
          "example: mpirun -n 2 meshmark-comm pingpong --bytes 0,8..4MiB",
      .source = "PingPong of the Pallas (Intel) MPI Benchmarks; osu_latency, osu_put_latency",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {message_parameter("0,1,8..4MiB"),
                     {"protocol", "transfer method", "", Kind::choices, "send,put,get", {}, {}, {"send", "put", "get"}},
                     {"partner", "the other rank; all: each in turn", "", Kind::integers, "1", 1}},
      .metrics = {{"message_latency", "time until a message has arrived", "s", Better::lower},
                  {"bandwidth_net", "bytes of messages per second", "B/s", Better::higher}},
      .identity = {"protocol", "message_bytes", "from_rank", "to_rank", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

/// An MPI window, which is freed at the end.
struct MessageWindow {
  /// Allocates whole pages, because MPICH 4.0.2 misplaces messages by 8 bytes in a window whose size is not a multiple
  /// of 16 bytes.
  explicit MessageWindow(std::size_t min_bytes) {
    const std::size_t bytes = (min_bytes + 4095) / 4096 * 4096;
    World::get().check_all(MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, World::get().all(),
                                            static_cast<void*>(&memory), &window),
                           "MPI_Win_allocate");
    std::memset(memory, 0, bytes);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  }
  ~MessageWindow() {
    MPI_Barrier(World::get().all());
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
  }
  MessageWindow(const MessageWindow&) = delete;
  MessageWindow& operator=(const MessageWindow&) = delete;
  std::uint8_t* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
};

Case base_case(const std::string& protocol, std::size_t bytes, int partner) {
  Case c;
  c.conditions = {{"protocol", protocol}, {"message_bytes", bytes}, {"from_rank", 0}, {"to_rank", partner}};
  c.metric = "message_latency";
  c.bytes = static_cast<double>(bytes);
  return c;
}

Case send_case(std::size_t bytes, int partner) {
  Case c = base_case("send", bytes, partner);
  c.share = 0.5;
  c.bytes *= 2;
  const int rank = World::get().rank();
  if (rank != 0 && rank != partner) return c;
  const auto store = std::make_shared<Store>(2 * bytes + 8192);
  const Message out(store->memory.get(), bytes), in(store->memory.get() + (bytes + 4095) / 4096 * 4096, bytes);
  const int other = rank == 0 ? partner : 0;
  const MPI_Comm comm = World::get().all();
  c.run = [=](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) {
      if (rank == 0) {
        MPI_Send(out.data(), out.bytes(), MPI_BYTE, other, 1, comm);
        MPI_Recv(in.data(), in.bytes(), MPI_BYTE, other, 1, comm, MPI_STATUS_IGNORE);
      } else {
        MPI_Recv(in.data(), in.bytes(), MPI_BYTE, other, 1, comm, MPI_STATUS_IGNORE);
        MPI_Send(out.data(), out.bytes(), MPI_BYTE, other, 1, comm);
      }
    }
  };
  c.fill = [=, keep = store](std::uint32_t tag, bool whole) { out.fill(tag, rank, whole); };
  c.defects = [=, keep = store](std::uint32_t tag, bool whole) { return in.defects(tag, other, whole, "message"); };
  return c;
}

/// Only rank 0 is active. What it put to or got from the partner is verified afterwards.
Case one_sided_case(bool put, std::size_t bytes, int partner) {
  Case c = base_case(put ? "put" : "get", bytes, partner);
  c.passive = true;
  const int rank = World::get().rank();
  const auto window = std::make_shared<MessageWindow>(bytes + 8);
  const auto store = std::make_shared<Store>(bytes + 8);
  const Message local(store->memory.get(), bytes), remote(window->memory, bytes);
  if (rank != 0 && rank != partner) {
    c.run = nullptr;
    c.fill = [window](std::uint32_t, bool) {};  // keeps the window as long as the case
    return c;
  }
  c.run = [=](std::uint64_t iterations) {
    if (rank != 0) return;
    const MPI_Win target = window->window;
    for (std::uint64_t i = 0; i < iterations; ++i) {
      if (put)
        MPI_Put(local.data(), local.bytes(), MPI_BYTE, partner, 0, local.bytes(), MPI_BYTE, target);
      else
        MPI_Get(local.data(), local.bytes(), MPI_BYTE, partner, 0, local.bytes(), MPI_BYTE, target);
      MPI_Win_flush(partner, target);
    }
  };
  c.fill = [=, keep = store](std::uint32_t tag, bool whole) {
    (put ? local : remote).fill(tag, rank, whole);
    MPI_Win_sync(window->window);
  };
  c.defects = [=, keep = store](std::uint32_t tag, bool whole) {
    MPI_Win_sync(window->window);
    if (put) return rank == partner ? remote.defects(tag, 0, whole, "put") : std::vector<Defect>{};
    return rank == 0 ? local.defects(tag, partner, whole, "got") : std::vector<Defect>{};
  };
  return c;
}

void measure_pingpong(Run& run) {
  World& world = World::get();
  world.check_request(run);
  if (world.size() < 2) throw Absent("needs at least 2 ranks, found 1", "--ranks 2");
  const auto sizes = message_sizes(run);
  std::vector<int> partners;
  if (run.text("partner") == "all")
    for (int other = 1; other < world.size(); ++other) partners.push_back(other);
  else
    partners = run.integers("partner", world.size() - 1);
  for (const int partner : partners)
    if (partner >= world.size())
      throw UsageError("partner", "found " + std::to_string(partner), "1 to " + std::to_string(world.size() - 1));
  const auto protocols = run.choices("protocol");
  CaseBatch batch(run, sizes.size());
  for (const std::size_t bytes : sizes) {
    for (const int partner : partners)
      for (const std::string& protocol : protocols) {
        if (bytes == 0 && protocol != "send") continue;  // nothing to transfer
        batch.add(base_case(protocol, bytes, partner), 2.0 * static_cast<double>(bytes), [&] {
          return protocol == "send" ? send_case(bytes, partner) : one_sided_case(protocol == "put", bytes, partner);
        });
      }
    batch.done();
  }
}

const Instrument pingpong{pingpong_description(), measure_pingpong};

}  // namespace
}  // namespace mm::mpi
