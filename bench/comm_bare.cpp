/// The calls that meshmark-comm times, in loops with nothing around them: bench/comm.py compares. JSON Lines on
/// standard output: who the ranks are, and of each block when it began, what it took and what an iteration took, the
/// slower rank's.
///
///     mpirun -n 2 comm_bare BLOCKS KIND:BYTES:ITERATIONS …      kinds: send, put, allreduce
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

struct Case {
  std::string kind;
  int bytes = 0;
  long iterations = 1;
  char *out = nullptr, *in = nullptr;
  MPI_Win window = MPI_WIN_NULL;
};

void block(const Case& c, int rank) {
  if (c.kind == "send") {
    for (long i = 0; i < c.iterations; ++i)
      if (rank == 0) {
        MPI_Send(c.out, c.bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(c.in, c.bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else {
        MPI_Recv(c.in, c.bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(c.out, c.bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
      }
  } else if (c.kind == "put") {
    for (long i = 0; rank == 0 && i < c.iterations; ++i) {
      MPI_Put(c.out, c.bytes, MPI_BYTE, 1, 0, c.bytes, MPI_BYTE, c.window);
      MPI_Win_flush(1, c.window);
    }
  } else {
    for (long i = 0; i < c.iterations; ++i)
      MPI_Allreduce(c.out, c.in, c.bytes / 8, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 3 || ranks != 2) {
    if (rank == 0) std::fprintf(stderr, "usage: mpirun -n 2 comm_bare BLOCKS KIND:BYTES:ITERATIONS …\n");
    MPI_Finalize();
    return 2;
  }
  const int rounds = std::atoi(argv[1]);
  std::vector<Case> cases;
  for (int i = 2; i < argc; ++i) {
    Case c;
    const std::string text = argv[i];
    const std::size_t first = text.find(':'), second = text.find(':', first + 1);
    c.kind = text.substr(0, first);
    c.bytes = std::atoi(text.substr(first + 1, second - first - 1).c_str());
    c.iterations = std::atol(text.substr(second + 1).c_str());
    // Placed as meshmark-comm places them: how buffers lie to one another decides on the speed of a copy.
    const auto bytes = static_cast<std::size_t>(c.bytes);
    const std::size_t room = ((2 * bytes + 8192) / 4096 + 1) * 4096;
    c.out = static_cast<char*>(std::aligned_alloc(4096, room));
    c.in = c.out + (bytes + 4095) / 4096 * 4096;
    std::memset(c.out, 1, room);
    if (c.kind == "put") {
      char* memory = nullptr;
      const std::size_t window = (bytes + 8 + 4095) / 4096 * 4096;
      MPI_Win_allocate(static_cast<MPI_Aint>(window), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &c.window);
      std::memset(memory, 0, window);
      MPI_Win_lock_all(MPI_MODE_NOCHECK, c.window);
    }
    cases.push_back(c);
  }
  const int mine = getpid();
  std::vector<int> pids(static_cast<std::size_t>(ranks));
  MPI_Gather(&mine, 1, MPI_INT, pids.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("{\"processes\": [{\"pid\": %d}, {\"pid\": %d}]}\n", pids[0], pids[1]);
  std::fflush(stdout);
  for (int round = 0; round < rounds; ++round)
    for (const Case& c : cases) {
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      const double begin = MPI_Wtime();
      block(c, rank);
      double took = MPI_Wtime() - begin, slowest = 0;
      MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank == 0)
        std::printf("{\"begun_s\": %ld.%09ld, \"block_s\": %.9g, \"iteration_s\": %.9g}\n",
                    static_cast<long>(now.tv_sec), now.tv_nsec, slowest, slowest / static_cast<double>(c.iterations));
    }
  for (Case& c : cases)
    if (c.window != MPI_WIN_NULL) {
      MPI_Win_unlock_all(c.window);
      MPI_Win_free(&c.window);
    }
  MPI_Finalize();
  return 0;
}
