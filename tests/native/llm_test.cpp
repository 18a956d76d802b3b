/// The load of the instrument llm: exact for any number of threads, and a wrong weight is found.
#include "instruments/compute/llm_model.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "kernels/isa.hpp"

namespace {

using mm::llm::DecoderModel;
using mm::llm::kRowBytes;

struct Loaded {
  DecoderModel model;
  std::vector<std::vector<float>> memory;

  Loaded(std::size_t layers, std::size_t threads, std::size_t rows)
      : model(layers, threads, rows), memory(threads, std::vector<float>(layers * rows * kRowBytes / sizeof(float))) {
    for (std::size_t t = 0; t < threads; ++t) {
      model.parts.push_back(memory[t].data());
      model.fill(t);
    }
  }

  void token(mm::DotFunction dot) {
    std::vector<std::jthread> team;
    for (std::size_t t = 0; t < model.threads; ++t) team.emplace_back([this, t, dot] { model.token(t, dot); });
  }
};

TEST(Llm, TokensAreTheSameForAnyNumberOfThreadsAndVectorWidth) {
  Loaded one(3, 1, 12);
  one.token(mm::dot_function("sse2"));
  ASSERT_TRUE(one.model.correct());
  for (const std::size_t threads : {1, 2, 3, 4})
    for (const std::string_view isa : mm::built_isas()) {
      if (!mm::has_isa(isa)) continue;
      Loaded some(3, threads, 12 / threads);
      some.token(mm::dot_function(isa));
      EXPECT_TRUE(some.model.correct()) << threads << ' ' << isa;
      EXPECT_EQ(some.model.vectors, one.model.vectors) << threads << ' ' << isa;
      EXPECT_EQ(some.model.result, one.model.result) << threads << ' ' << isa;
    }
}

TEST(Llm, TheNextTokenIsAnotherOne) {
  Loaded one(2, 2, 5);
  one.token(mm::dot_function(""));
  const auto first = one.model.vectors;
  one.token(mm::dot_function(""));
  EXPECT_TRUE(one.model.correct());
  EXPECT_NE(one.model.vectors, first);
}

TEST(Llm, AWrongWeightIsFound) {
  for (const std::size_t layer : {1, 2}) {
    Loaded one(3, 2, 8);
    one.model.row(1, layer, 3)[17] += 2;
    one.token(mm::dot_function(""));
    EXPECT_FALSE(one.model.correct()) << layer;
  }
}

}  // namespace
