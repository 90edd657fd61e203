#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "core/context.h"

namespace flashgpt {
namespace {

void setup(Context& ctx) {
  ctx.tensor({10}, Dtype::kF32, MemClass::kWeights);
  ctx.tensor({10}, Dtype::kF32, MemClass::kGradients);
}

void step(Context& ctx) {
  ctx.arena.begin("step");
  ctx.tensor({64}, Dtype::kF32, MemClass::kActivations);
  for (int i = 0; i < 2; ++i) {
    Scope scope(ctx);
    ctx.tensor({i == 0 ? 1024 : 2048}, Dtype::kF32, MemClass::kWorkspace);
  }
  ctx.tensor({64}, Dtype::kF32, MemClass::kActivations);
}

TEST(Arena, RecordsOffsetsAndThePeakByClass) {
  Context ctx;
  setup(ctx);
  step(ctx);
  const MemoryPlan& plan = ctx.arena.plan();
  ASSERT_EQ(plan.sections.size(), 2u);
  const auto& requests = plan.sections[1].requests;
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].offset, 512u);
  EXPECT_EQ(requests[1].offset, requests[2].offset);
  EXPECT_EQ(requests[3].offset, requests[1].offset);
  EXPECT_EQ(plan.total_bytes(), 512u + 256u + 8192u);
  const auto classes = plan.by_class();
  EXPECT_EQ(classes[static_cast<int>(MemClass::kWeights)], 256u);
  EXPECT_EQ(classes[static_cast<int>(MemClass::kWorkspace)], 8192u);
  EXPECT_EQ(classes[static_cast<int>(MemClass::kActivations)], 256u);
}

TEST(Arena, RunHandsOutThePlannedOffsetsAgainAndAgain) {
  Context record;
  setup(record);
  step(record);
  step(record);
  const MemoryPlan plan = record.arena.plan();
  std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(256, plan.total_bytes()), &std::free);
  Context ctx{.arena = Arena(plan, memory.get(), {})};
  setup(ctx);
  for (int i = 0; i < 3; ++i) step(ctx);
  ctx.arena.begin("step");
  EXPECT_EQ(ctx.tensor({64}, Dtype::kF32, MemClass::kActivations).data, static_cast<std::byte*>(memory.get()) + 512);
}

TEST(Arena, AnotherOrderOfRequestsThrows) {
  Context record;
  setup(record);
  step(record);
  const MemoryPlan plan = record.arena.plan();
  std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(256, plan.total_bytes()), &std::free);
  Context ctx{.arena = Arena(plan, memory.get(), {})};
  setup(ctx);
  ctx.arena.begin("step");
  EXPECT_THROW(ctx.tensor({65}, Dtype::kF32, MemClass::kActivations), Error);
  ctx.arena.begin("step");
  EXPECT_THROW(ctx.tensor({64}, Dtype::kF32, MemClass::kWorkspace), Error);
  EXPECT_THROW(ctx.arena.begin("other"), Error);
  step(ctx);
  EXPECT_THROW(ctx.tensor({1}, Dtype::kF32, MemClass::kActivations), Error);
}

TEST(Arena, FakeAddressesAreNeverNull) {
  Context ctx;
  EXPECT_TRUE(ctx.tensor({0}, Dtype::kF32, MemClass::kWeights));
  EXPECT_TRUE(ctx.tensor({4, 4}, Dtype::kF32, MemClass::kWeights));
  EXPECT_THROW(ctx.tensor({-1}, Dtype::kF32, MemClass::kWeights), Error);
}

}  // namespace
}  // namespace flashgpt
