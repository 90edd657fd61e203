// Copies between host and arena, and filling, with nothing touched by a recording.
#include "core/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashgpt {
namespace {

struct CopyTest : ::testing::Test {
  ThreadPool pool{2, false};
  std::vector<float> memory = std::vector<float>(300000, -7.0f);
  Context ctx;
  CopyTest() {
    ctx.target = cpu_target(2);
    ctx.pool = &pool;
    Arena recorded;
    (void)recorded.tensor({1000}, Dtype::kF32, MemClass::kWeights);
    ctx.arena = Arena(recorded.plan(), memory.data(), Device{});
  }
  Tensor of(std::int64_t n) { return Tensor(memory.data(), {n}, Dtype::kF32); }
};

TEST_F(CopyTest, RoundTrip) {
  std::vector<float> source(1000), back(1000);
  for (int i = 0; i < 1000; ++i) source[static_cast<std::size_t>(i)] = static_cast<float>(i);
  upload(ctx, of(1000), source.data());
  download(ctx, of(1000), back.data());
  EXPECT_EQ(source, back);
  EXPECT_EQ(memory[1000], -7.0f);
  upload(ctx, of(0), nullptr);
}

TEST_F(CopyTest, RecordingTouchesNothing) {
  Context recording;
  recording.target = cpu_target(2);
  const Tensor fake = recording.tensor({1 << 20}, Dtype::kF32, MemClass::kActivations);
  upload(recording, fake, nullptr);
  download(recording, fake, nullptr);
  run(recording, Fill{.y = fake, .value = 1});
}

TEST_F(CopyTest, StridedIsAnError) {
  Tensor t(memory.data(), {4, 4}, Dtype::kF32);
  t.strides[0] = 8;
  EXPECT_THROW(upload(ctx, t, memory.data()), Error);
  EXPECT_THROW(run(ctx, Fill{.y = t}), Error);
}

TEST_F(CopyTest, Fill) {
  for (std::int64_t n : {0, 1, 65535, 65536, 200001}) {
    std::fill(memory.begin(), memory.end(), -7.0f);
    run(ctx, Fill{.y = of(n), .value = 2.5f});
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(memory[static_cast<std::size_t>(i)], 2.5f);
    EXPECT_EQ(memory[static_cast<std::size_t>(n)], -7.0f);
    run(ctx, Fill{.y = of(n)});
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(memory[static_cast<std::size_t>(i)], 0.0f);
    EXPECT_EQ(memory[static_cast<std::size_t>(n)], -7.0f);
  }
  std::vector<std::int32_t> ints(10, 5);
  run(ctx, Fill{.y = Tensor(ints.data(), {10}, Dtype::kI32)});
  EXPECT_EQ(ints, std::vector<std::int32_t>(10, 0));
  EXPECT_THROW(run(ctx, (Fill{.y = Tensor(ints.data(), {10}, Dtype::kI32), .value = 1})), Error);
}

}  // namespace
}  // namespace flashgpt
