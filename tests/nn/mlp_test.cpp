// FusedDense and FusedMLP against plain loops in double, and the checkpoint levels against each other.
#include "nn/mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "core/memory.h"
#include "core/philox.h"

namespace flashgpt {
namespace {

// A context in real memory: the body runs once to be recorded and once for real.
template <class Body> void with_context(Body&& body) {
  Context record{.target = cpu_target(2)};
  body(record);
  const MemoryPlan plan = record.arena.plan();
  const Memory memory(plan.total_bytes(), {});
  ThreadPool pool(2, false);
  Context ctx{.target = cpu_target(2), .arena = Arena(plan, memory.data(), {}), .pool = &pool};
  body(ctx);
}

Tensor random_tensor(Context& ctx, Shape shape, std::uint32_t id) {
  const Tensor t = ctx.tensor(shape, Dtype::kF32, MemClass::kActivations);
  if (!ctx.recording())
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      const PhiloxBlock r = philox(1, RandomStream::kInit, id, static_cast<std::uint64_t>(i));
      t.as<float>()[i] = normal(r[0], r[1])[0] * 0.5f;
    }
  return t;
}

TEST(FusedMLP, CheckpointLevelsGiveTheSameBitsAndKeepLess) {
  EXPECT_EQ(FusedMLP::recomputed(0), 0u);
  EXPECT_EQ(FusedMLP::recomputed(1), kAct);
  EXPECT_EQ(FusedMLP::recomputed(2), kUp | kAct);
  for (Activation act : {Activation::kGeluTanh, Activation::kGelu, Activation::kSwiGlu}) {
    const FusedMLP mlp{.width = 12, .hidden = 20, .activation = act};
    std::vector<std::vector<float>> results;
    for (int level : {0, 1, 2}) {
      with_context([&](Context& ctx) {
        const std::int64_t n = 7, up_columns = mlp.up_columns();
        const Tensor x = random_tensor(ctx, {n, 12}, 1), dy = random_tensor(ctx, {n, 12}, 2), y = random_tensor(ctx, {n, 12}, 3);
        const Linear up{random_tensor(ctx, {up_columns, 12}, 4), random_tensor(ctx, {up_columns}, 5)};
        const Linear down{random_tensor(ctx, {12, 20}, 6), random_tensor(ctx, {12}, 7)};
        const Linear d_up{random_tensor(ctx, {up_columns, 12}, 8), random_tensor(ctx, {up_columns}, 9)};
        const Linear d_down{random_tensor(ctx, {12, 20}, 10), random_tensor(ctx, {12}, 11)};
        MlpActs acts{.up = ctx.tensor({n, up_columns}, Dtype::kF32, MemClass::kActivations),
                     .act = ctx.tensor({n, 20}, Dtype::kF32, MemClass::kActivations)};
        const Tensor dx = random_tensor(ctx, {n, 12}, 12);
        mlp.forward(ctx, up, down, x, acts, y);
        if (!ctx.recording()) {  // what the level does not keep is lost
          if (FusedMLP::recomputed(level) & kUp) std::memset(acts.up.data, 0xff, acts.up.bytes());
          if (FusedMLP::recomputed(level) & kAct) std::memset(acts.act.data, 0xff, acts.act.bytes());
        }
        mlp.forward(ctx, up, down, x, acts, y, FusedMLP::recomputed(level));
        mlp.backward(ctx, up, down, d_up, d_down, x, acts, dy, dx);
        if (ctx.recording()) return;
        std::vector<float> all;
        for (const Tensor& t : {y, dx, d_up.w, d_up.b, d_down.w, d_down.b, dy})
          all.insert(all.end(), t.as<float>(), t.as<float>() + t.numel());
        for (float v : all) ASSERT_TRUE(std::isfinite(v));
        results.push_back(all);
      });
    }
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(0, std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)));
    EXPECT_EQ(0, std::memcmp(results[0].data(), results[2].data(), results[0].size() * sizeof(float)));
  }
}

TEST(FusedDense, AgainstPlainLoops) {
  with_context([](Context& ctx) {
    const std::int64_t n = 5, in = 6, out = 4;
    const Tensor x = random_tensor(ctx, {n, in}, 1), y = random_tensor(ctx, {n, out}, 2), dy = random_tensor(ctx, {n, out}, 3);
    const Tensor dx = random_tensor(ctx, {n, in}, 4);
    const Linear w{random_tensor(ctx, {out, in}, 5), random_tensor(ctx, {out}, 6)},
        dw{random_tensor(ctx, {out, in}, 7), random_tensor(ctx, {out}, 8)};
    const Tensor dw_before = random_tensor(ctx, {out, in}, 7), db_before = random_tensor(ctx, {out}, 8);
    FusedDense::forward(ctx, w, x, y, true);
    FusedDense::backward(ctx, w, dw, x, dy, dx, true);
    if (ctx.recording()) return;
    auto at = [](const Tensor& t, std::int64_t i, std::int64_t j) { return static_cast<double>(t.as<float>()[i * t.dim(1) + j]); };
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t o = 0; o < out; ++o) {
        double expected = w.b.as<float>()[o];
        for (std::int64_t k = 0; k < in; ++k) expected += at(x, i, k) * at(w.w, o, k);
        EXPECT_NEAR(at(y, i, o), expected, 1e-5);
      }
    for (std::int64_t o = 0; o < out; ++o) {
      double db = db_before.as<float>()[o];
      for (std::int64_t i = 0; i < n; ++i) db += at(dy, i, o);
      EXPECT_NEAR(dw.b.as<float>()[o], db, 1e-5);
      for (std::int64_t k = 0; k < in; ++k) {
        double sum = at(dw_before, o, k);
        for (std::int64_t i = 0; i < n; ++i) sum += at(dy, i, o) * at(x, i, k);
        EXPECT_NEAR(at(dw.w, o, k), sum, 1e-5);
      }
    }
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < in; ++k) {
        double expected = 0;
        for (std::int64_t o = 0; o < out; ++o) expected += at(dy, i, o) * at(w.w, o, k);
        EXPECT_NEAR(at(dx, i, k), expected, 1e-5);
      }
  });
}

TEST(Params, FlatRangesHoldEveryParameterOnce) {
  const ParamList list = {{.name = "a.w", .shape = {3, 5}, .init = {InitKind::kNormal, 0.02f}, .decay = true, .group = 0},
                          {.name = "a.b", .shape = {5}, .init = {InitKind::kOnes}, .group = 0},
                          {.name = "b.w", .shape = {70}, .init = {InitKind::kNormal, 0.02f}, .decay = true, .group = 1}};
  EXPECT_EQ(count(list), 15 + 5 + 70);
  with_context([&](Context& ctx) {
    const ParamTensors t = allocate(ctx, list, Dtype::kF32, MemClass::kWeights);
    ASSERT_EQ(t.groups.size(), 2u);
    EXPECT_EQ(t.groups[0].decayed.numel(), kParamAlignment);
    EXPECT_EQ(t.groups[1].decayed.numel(), 2 * kParamAlignment);
    EXPECT_FALSE(t.groups[1].plain);
    EXPECT_EQ(t.tensors[0].data, t.groups[0].decayed.data);
    EXPECT_EQ(t.tensors[1].data, t.groups[0].plain.data);
    initialise(ctx, list, t, 3);
    if (ctx.recording()) return;
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(t.tensors[1].as<float>()[i], 1.0f);
    for (std::int64_t i = 70; i < 2 * kParamAlignment; ++i) EXPECT_EQ(t.groups[1].decayed.as<float>()[i], 0.0f);
    EXPECT_NE(t.tensors[2].as<float>()[0], t.tensors[2].as<float>()[1]);
  });
}

}  // namespace
}  // namespace flashgpt
