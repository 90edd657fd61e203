// Faults that users of other attention libraries met, replayed on the CPU kernels: shape and flags as reported, and what should come out.
#include <sys/mman.h>

#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

struct Outputs {
  Ops<float> ops;
  bool finite(const Tensor& t) const {
    for (double x : values(t))
      if (!std::isfinite(x)) return false;
    return true;
  }
  bool gradients_finite() const { return finite(ops.backward.dq) && finite(ops.backward.dk) && finite(ops.backward.dv); }
};

ThreadPool& pool() {
  static ThreadPool p(2, false);
  return p;
}

// Against the reference, and every gradient finite.
void expect_sound(const Case& c, unsigned seed = 352) {
  expect_matches_reference(c, pool(), Implementation::kFlash, seed);
  Outputs out;
  build(c, seed, out.ops);
  launch_guarded(pool(), out.ops.forward);
  launch_guarded(pool(), out.ops.backward);
  EXPECT_TRUE(out.gradients_finite()) << c.name;
}

Case scaled(std::string name, AttentionSpec spec, float scale) {
  Case c;
  c.name = std::move(name);
  c.spec = spec;
  c.q_scale = c.k_scale = c.v_scale = scale;
  c.tolerance = 2e-5;
  return c;
}

// NaN in gradients: one token; more queries than keys by far in documents; a long causal row of large inputs.
TEST(AttentionReplay, GradientsStayFinite) {
  expect_sound(scaled("one token", dense(1, 1, 1, 1, 1, 16), 3));
  Case documents = scaled("documents, more queries", dense(0, 0, 0, 1, 1, 32, true), 3);
  documents.lens_q = {76, 34, 146}, documents.lens_k = {1, 1, 1};
  expect_sound(documents);
  Case heads = documents;
  heads.spec = dense(0, 0, 0, 5, 5, 32, true);
  expect_sound(heads);
  expect_sound(scaled("causal", dense(1, 512, 512, 1, 1, 128, true), 3));
  for (int s : {1, 2, 5, 17, 128})
    for (int d : {16, 32, 64}) {
      Case c = scaled(cat("overflow ", s, " ", d), dense(1, s, s, 2, 2, d), 3);
      c.q_scale = 5;
      expect_sound(c);
    }
}

// Tokens past the last document used to hold whatever memory held.
TEST(AttentionReplay, TailsAreZero) {
  Case c{.name = "tail", .spec = dense(0, 0, 0, 4, 4, 64, true), .lens_q = {137, 349}, .lens_k = {137, 349}, .tail_q = 212, .tail_k = 212};
  Outputs out;
  build(c, 1, out.ops);
  launch_guarded(pool(), out.ops.forward);
  launch_guarded(pool(), out.ops.backward);
  EXPECT_TRUE(out.gradients_finite());
  for (const Tensor& t : {out.ops.forward.o, out.ops.backward.dq, out.ops.backward.dk, out.ops.backward.dv})
    for (double x : values(t.slice(0, 486, 212))) ASSERT_EQ(x, 0);
  for (double x : values(out.ops.forward.lse.slice(1, 486, 212))) ASSERT_EQ(x, -kInf);
}

// Empty sequences among others: decode with lengths 0, keys without queries, queries without keys.
TEST(AttentionReplay, EmptySequences) {
  Case decode{.name = "decode", .spec = dense(64, 1, 64, 8, 2, 32, true)};
  for (int i = 0; i < 64; ++i) decode.used_k.push_back(i == 1 || i == 10 ? 0 : 1 + (i * 37) % 64);
  expect_matches_reference(decode, pool(), Implementation::kFlash);
  expect_sound(
      {.name = "no queries in the first", .spec = dense(0, 0, 0, 4, 1, 64), .lens_q = {0, 120, 84, 0}, .lens_k = {253, 174, 84, 307}});
  expect_sound({.name = "no keys", .spec = dense(2, 33, 0, 2, 2, 32)});
  expect_sound({.name = "no queries", .spec = dense(2, 0, 33, 2, 2, 32)});
  expect_sound({.name = "no batch", .spec = dense(0, 5, 5, 2, 2, 32)});
  expect_sound({.name = "three queries, seven keys", .spec = dense(0, 0, 0, 16, 16, 192, true), .lens_q = {3}, .lens_k = {7}});
}

// A finite number instead of -infinity for masked scores gives zero for very negative scores.
TEST(AttentionReplay, VeryNegativeScore) {
  Ops<float> ops;
  build({.name = "", .spec = dense(1, 1, 1, 1, 1, 128), .padded_rows = false}, 1, ops);
  for (int c = 0; c < 128; ++c) {
    static_cast<float*>(ops.forward.q.data)[c] = -64;
    static_cast<float*>(ops.forward.k.data)[c] = 64;
    static_cast<float*>(ops.forward.v.data)[c] = 1;
  }
  launch_guarded(pool(), ops.forward);
  for (double x : values(ops.forward.o)) EXPECT_EQ(x, 1.0);
  EXPECT_NEAR(values(ops.forward.lse)[0], -46340.95, 0.05);
}

TEST(AttentionReplay, HugeInputs) {
  Ops<float> ops;
  build({.name = "", .spec = dense(1, 1, 1, 1, 1, 64), .padded_rows = false}, 1, ops);
  for (int c = 0; c < 64; ++c)
    for (const Tensor& t : {ops.forward.q, ops.forward.k, ops.forward.v}) static_cast<float*>(t.data)[c] = 133120;
  launch_guarded(pool(), ops.forward);
  for (double x : values(ops.forward.o)) EXPECT_EQ(x, 133120);
}

TEST(AttentionReplay, SoftcapSaturates) {
  for (float cap : {15.0f, 50.0f})
    for (float raw : {1.0f, 1e2f, 1e3f, 4400.0f, 5e3f, 1e4f, -1e4f}) {
      Ops<float> ops;
      Case c{.name = "", .spec = dense(1, 1, 1, 1, 1, 8), .padded_rows = false};
      c.spec.softcap = cap, c.spec.scale = 1;
      build(c, 1, ops);
      for (int i = 0; i < 8; ++i)
        static_cast<float*>(ops.forward.q.data)[i] = i ? 0 : raw, static_cast<float*>(ops.forward.k.data)[i] = i ? 0 : 1;
      launch_guarded(pool(), ops.forward);
      EXPECT_NEAR(values(ops.forward.lse)[0], cap * std::tanh(raw / cap), 1e-5 * cap);
      launch_guarded(pool(), ops.backward);
      for (double x : values(ops.backward.dq)) EXPECT_TRUE(std::isfinite(x));
    }
}

// Keys of padding leaked into the sum when their number was no multiple of the tile; constant V hid it.
TEST(AttentionReplay, PaddingKeysDoNotLeak) {
  for (int keys : {65, 100}) {
    Ops<float> ops;
    Case c{.name = "", .spec = dense(1, 64, keys, 1, 1, 16), .q_scale = 0, .padded_rows = false};
    c.spec.softcap = 1;
    build(c, 1, ops);
    for (int j = 0; j < keys; ++j)
      for (int i = 0; i < 16; ++i) static_cast<float*>(ops.forward.v.data)[j * 16 + i] = j < 64;
    launch_guarded(pool(), ops.forward);
    for (double x : values(ops.forward.o)) EXPECT_NEAR(x, 64.0 / keys, 1e-6);
  }
}

TEST(AttentionReplay, NanInGivesNanOut) {
  for (Implementation implementation : {Implementation::kFlash, Implementation::kStandard}) {
    Ops<float> ops;
    build({.name = "", .spec = dense(2, 16, 16, 4, 4, 8), .q_scale = kNan}, 1, ops);
    ops.forward.implementation = implementation;
    launch_guarded(pool(), ops.forward);
    for (double x : values(ops.forward.o)) EXPECT_TRUE(std::isnan(x));
    for (double x : values(ops.forward.lse)) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(AttentionReplay, LargeScoresHaveFiniteGradients) {
  Case c = scaled("large", dense(1, 40, 40, 1, 1, 64, true), 30);
  c.v_scale = 1, c.tolerance = 5e-3;
  expect_sound(c);
}

TEST(AttentionReplay, BackwardHasTheSameBitsThirtyTimes) {
  std::vector<double> first;
  for (int run = 0; run < 30; ++run) {
    Ops<float> ops;
    build({.name = "", .spec = dense(1, 300, 300, 2, 1, 32, true)}, 1, ops);
    launch_guarded(pool(), ops.forward);
    launch_guarded(pool(), ops.backward);
    std::vector<double> all = values(ops.backward.dq), dk = values(ops.backward.dk), dv = values(ops.backward.dv);
    all.insert(all.end(), dk.begin(), dk.end());
    all.insert(all.end(), dv.begin(), dv.end());
    if (run == 0) first = all;
    ASSERT_TRUE(all == first) << run;
  }
}

TEST(AttentionReplay, HeadDims) {
  for (int dv : {128, 160, 200, 208, 224}) {
    Case c{.name = cat("v head dim ", dv), .spec = dense(1, 60, 70, 4, 2, 192, true)};
    c.spec.v_head_dim = dv;
    expect_sound(c);
  }
  expect_sound({.name = "groups of heads, causal", .spec = dense(1, 256, 256, 8, 2, 32, true)});
  expect_sound({.name = "head dim 160", .spec = dense(1, 97, 97, 2, 2, 160)});
  expect_sound({.name = "many queries, few keys", .spec = dense(2, 1030, 17, 3, 3, 8)});
  expect_sound({.name = "ragged causal documents", .spec = dense(0, 0, 0, 1, 1, 16, true), .lens_q = {443, 359}, .lens_k = {443, 359}});
}

TEST(AttentionReplay, InnerDimensionMustBeContiguous) {
  Ops<float> ops;
  build({.name = "", .spec = dense(1, 8, 8, 2, 2, 8), .padded_rows = false}, 1, ops);
  std::swap(ops.forward.q.strides[1], ops.forward.q.strides[3]);
  EXPECT_THROW(check(ops.forward), Error);
}

// Offsets past 2^31 elements: sequences 3 * 2^30 elements apart on pages that are never touched.
TEST(AttentionReplay, OffsetsBeyondInt32) {
  constexpr std::int64_t kApart = std::int64_t{3} << 30;
  constexpr std::size_t kBytes = static_cast<std::size_t>(2 * kApart) * 4;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Ops<float> near;
  build({.name = "", .spec = dense(2, 40, 40, 2, 2, 16, true), .padded_rows = false}, 1, near);
  Forward f = near.forward;
  Backward b = near.backward;
  auto* base = static_cast<float*>(memory);
  auto move = [&](const Tensor& from) {
    Tensor t = from;
    t.data = base;
    t.strides[0] = kApart;
    base += 1 << 20;
    for (int i = 0; i < 2; ++i) std::memcpy(t.select(0, i).data, from.select(0, i).data, from.bytes() / 2);
    return t;
  };
  f.q = b.q = move(f.q), f.k = b.k = move(f.k), f.v = b.v = move(f.v), b.dout = move(b.dout);
  f.o = b.o = move(f.o), b.dq = move(b.dq), b.dk = move(b.dk), b.dv = move(b.dv);
  launch_guarded(pool(), near.forward);
  launch_guarded(pool(), near.backward);
  launch_guarded(pool(), f);
  launch_guarded(pool(), b);
  EXPECT_TRUE(values(f.o) == values(near.forward.o));
  EXPECT_TRUE(values(b.dq) == values(near.backward.dq));
  EXPECT_TRUE(values(b.dk) == values(near.backward.dk));
  EXPECT_TRUE(values(b.dv) == values(near.backward.dv));
  munmap(memory, kBytes);
}

// 31: a window was a mask in memory, quadratic in the length.
TEST(ReplayAttention, AWindowTakesNoMemoryForItsMask) {
  auto bytes = [&](std::int64_t length, auto&& part) {
    AttentionSpec spec = dense(1, length, length, 2, 2, 16, true);
    spec.window_left = 64;
    Ops<float> ops;
    build({.name = "", .spec = spec, .padded_rows = false}, 1, ops);
    return scratch_bytes(cpu_target(2), part(ops));
  };
  auto forward = [](Ops<float>& ops) -> const Forward& { return ops.forward; };
  auto backward = [](Ops<float>& ops) -> const Backward& { return ops.backward; };
  EXPECT_LE(bytes(4096, forward), 2 * bytes(2048, forward) + 4096);
  EXPECT_LE(bytes(4096, backward), 2 * bytes(2048, backward) + 4096);
}

}  // namespace
}  // namespace flashgpt::attention::testing
