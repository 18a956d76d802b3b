/// The calls that meshmark-comm times, in loops with nothing around them: bench/comm.py compares. One line a case on
/// standard output: kind, bytes, and the median block's seconds an iteration.
///
///     mpirun -n 2 comm_bare BLOCKS KIND:BYTES:ITERATIONS …      kinds: send, put, allreduce
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Case {
  std::string kind;
  int bytes = 0;
  long iterations = 1;
  char *out = nullptr, *in = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  std::vector<double> blocks;
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
    const std::size_t room = (static_cast<std::size_t>(c.bytes) / 4096 + 1) * 4096;
    c.out = static_cast<char*>(std::aligned_alloc(4096, room));
    c.in = static_cast<char*>(std::aligned_alloc(4096, room));
    std::memset(c.out, 1, room);
    std::memset(c.in, 2, room);
    if (c.kind == "put") {
      char* memory = nullptr;
      MPI_Win_allocate(static_cast<MPI_Aint>(room), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &c.window);
      std::memset(memory, 0, room);
      MPI_Win_lock_all(MPI_MODE_NOCHECK, c.window);
    }
    cases.push_back(c);
  }
  for (int round = -2; round < rounds; ++round)  // two to warm up
    for (Case& c : cases) {
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      block(c, rank);
      double mine = (MPI_Wtime() - begin) / static_cast<double>(c.iterations), slowest = 0;
      MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (round >= 0) c.blocks.push_back(slowest);
    }
  for (Case& c : cases) {
    std::sort(c.blocks.begin(), c.blocks.end());
    const double share = c.kind == "send" ? 0.5 : 1;  // half of a round trip
    if (rank == 0) std::printf("%s %d %.12g\n", c.kind.c_str(), c.bytes, share * c.blocks[c.blocks.size() / 2]);
    if (c.window != MPI_WIN_NULL) {
      MPI_Win_unlock_all(c.window);
      MPI_Win_free(&c.window);
    }
  }
  MPI_Finalize();
  return 0;
}
