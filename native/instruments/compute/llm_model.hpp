#pragma once
/// The load of the instrument llm: layers of weights that the threads of a team read once per token.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/resources/memory.hpp"
#include "kernels/dot.hpp"
#include "kernels/stream.hpp"

namespace mm::llm {

// A vector has 4 KiB, like 4096 numbers of 8 bits. Weights pass through the first-level cache beside it.
inline constexpr std::size_t kColumns = 1024;
inline constexpr std::size_t kRowBytes = kColumns * sizeof(float);
inline constexpr std::size_t kChecked = 16;  // rows of each layer and thread that are computed again for verification

/// Returns a weight: a small integer that depends on its position.
inline float weight(std::size_t layer, std::size_t row, std::size_t column) {
  return static_cast<float>(static_cast<int>((layer * 7 + row * 31 + column * 17) % 9) - 4);
}

/// The load of one team.
struct DecoderModel {
  std::size_t layers, threads, rows;  ///< rows per layer and thread
  std::vector<std::shared_ptr<Arena>> arenas;
  std::vector<float*> parts;                ///< weights of each thread: layers × rows × kColumns
  std::vector<float> result;                ///< threads × rows, of the current layer
  std::vector<std::vector<float>> vectors;  ///< input of each layer, and of the next token
  std::barrier<> meeting;
  bool wrong = false;

  DecoderModel(std::size_t layers_, std::size_t threads_, std::size_t rows_)
      : layers(layers_),
        threads(threads_),
        rows(rows_),
        result(threads_ * rows_),
        vectors(layers_ + 1, std::vector<float>(kColumns, 1.0F)),
        meeting(static_cast<std::ptrdiff_t>(threads_)) {}

  double bytes() const { return static_cast<double>(layers * threads * rows * kRowBytes); }
  float* row(std::size_t thread, std::size_t layer, std::size_t r) const {
    return parts[thread] + (layer * rows + r) * kColumns;
  }

  void fill(std::size_t thread) const {
    for (std::size_t layer = 0; layer < layers; ++layer)
      for (std::size_t r = 0; r < rows; ++r) {
        float* const weights = row(thread, layer, r);
        for (std::size_t c = 0; c < kColumns; ++c) weights[c] = weight(layer, thread * rows + r, c);
      }
  }

  /// Computes a thread's part of one token.
  void token(std::size_t thread, DotFunction dot) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const float* const in = vectors[layer].data();
      for (std::size_t r = 0; r < rows; ++r) result[thread * rows + r] = dot(row(thread, layer, r), in, kColumns);
      meeting.arrive_and_wait();
      next(thread, vectors[layer + 1]);
      meeting.arrive_and_wait();
    }
    if (thread == 0) vectors[0] = vectors[layers];
    meeting.arrive_and_wait();
  }

  /// Computes a thread's section of the next vector: 1 or -1, depending on the results.
  void next(std::size_t thread, std::vector<float>& out) const {
    for (std::size_t c = kColumns * thread / threads; c < kColumns * (thread + 1) / threads; ++c)
      out[c] = sign(result[c % result.size()]);
  }

  double read(std::size_t thread, StreamFunction function) const {
    return function(reinterpret_cast<double*>(parts[thread]), nullptr, nullptr, layers * rows * kColumns / 2, 1.0);
  }

  /// Returns whether the last token is correct: sampled results of the last layer, and sampled entries of each vector,
  /// must follow from the vector before by the exact weights. The first layer is not verified, because its input is
  /// already the input of the next token.
  bool correct() const {
    if (layers < 2) return true;
    const std::size_t checked = std::min(kColumns, kChecked * threads);
    for (std::size_t layer = 1; layer < layers; ++layer)
      for (std::size_t k = 0; k < checked; ++k) {
        const std::size_t column = k * (kColumns / checked + 1) % kColumns;
        if (vectors[layer + 1][column] != sign(exact(layer, column % result.size()))) return false;
      }
    const std::size_t rows_checked = std::min(result.size(), kChecked * threads);
    for (std::size_t k = 0; k < rows_checked; ++k) {
      const std::size_t r = k * result.size() / rows_checked;
      if (result[r] != exact(layers - 1, r)) return false;
    }
    return true;
  }

 private:
  /// Returns a sign by the second bit, because the lowest bit of a sum of weights does not depend on their signs.
  static float sign(float value) { return (static_cast<long>(value) & 2) != 0 ? 1.0F : -1.0F; }

  /// Returns a result of a layer, computed from the exact weights.
  float exact(std::size_t layer, std::size_t r) const {
    float sum = 0;
    for (std::size_t c = 0; c < kColumns; ++c) sum += weight(layer, r, c) * vectors[layer][c];
    return sum;
  }
};

}  // namespace mm::llm
