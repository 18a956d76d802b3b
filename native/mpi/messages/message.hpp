#pragma once
/// Buffers whose words identify their owner, for instruments that send one message from rank to rank.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mpi/harness/measure.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {

/// The bytes of a message, which identify its owner. The size need not be a multiple of 8: the last bytes are then part
/// of a word.
class Message {
 public:
  Message(std::uint8_t* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}
  std::uint8_t* data() const { return memory_; }
  int bytes() const { return static_cast<int>(bytes_); }

  void fill(std::uint32_t tag, int owner, bool whole) const {
    each(whole, [&](std::size_t word, std::size_t n) {
      const std::uint64_t value = payload(tag, owner, 0, word);
      std::memcpy(memory_ + 8 * word, &value, n);
    });
  }
  /// Returns the first word that differs from the message of that owner, or nothing.
  std::vector<Defect> defects(std::uint32_t tag, int owner, bool whole, const std::string& where) const {
    std::vector<Defect> result;
    each(whole, [&](std::size_t word, std::size_t n) {
      const std::uint64_t value = payload(tag, owner, 0, word);
      std::uint64_t expected = 0, actual = 0;
      std::memcpy(&expected, &value, n);
      std::memcpy(&actual, memory_ + 8 * word, n);
      if (expected != actual && result.empty()) result.push_back({where, word, expected, actual});
    });
    return result;
  }

 private:
  template <class Visit>
  void each(bool whole, const Visit& visit) const {
    each_word((bytes_ + 7) / 8, whole, [&](std::size_t i) { visit(i, std::min<std::size_t>(8, bytes_ - 8 * i)); });
  }
  std::uint8_t* memory_;
  std::size_t bytes_;
};

/// Page-aligned memory for messages, as an MPI library would allocate it.
struct Store {
  explicit Store(std::size_t bytes)
      : memory(static_cast<std::uint8_t*>(std::aligned_alloc(4096, (bytes / 4096 + 1) * 4096))) {
    if (!memory) throw Failure("cannot allocate " + std::to_string(bytes) + " bytes");
    std::memset(memory.get(), 0, bytes);
  }
  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<std::uint8_t, Free> memory;
};

/// Returns the sizes that `--bytes` requests: 0, and a list or range of sizes.
std::vector<std::size_t> message_sizes(const Run& run);
Parameter message_parameter(const std::string& default_value);

}  // namespace mm::mpi
