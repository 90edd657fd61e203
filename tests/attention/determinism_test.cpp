// The same bits whatever the number of threads, the packing of rows or the memory found in scratch, and from run to run.
#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

template <class T = float> std::vector<std::vector<double>> outputs(const Case& c, int threads, Implementation implementation) {
  ThreadPool pool(threads, false);
  Ops<T> ops;
  build(c, 5, ops);
  ops.forward.implementation = ops.backward.implementation = implementation;
  launch_guarded(pool, ops.forward);
  launch_guarded(pool, ops.backward);
  return {values(ops.forward.o),   values(ops.forward.lse), values(ops.backward.dq),
          values(ops.backward.dk), values(ops.backward.dv), c.spec.sink ? values(ops.backward.dsink) : std::vector<double>{}};
}

TEST(AttentionDeterminism, ThreadsAndRuns) {
  Case cases[] = {
      {.name = "one head, split keys", .spec = dense(1, 900, 1100, 1, 1, 24, true)},
      {.name = "grouped heads", .spec = dense(2, 131, 131, 6, 2, 40, true)},
      {.name = "documents",
       .spec = dense(0, 0, 0, 3, 3, 16, true),
       .lens_q = {3, 700, 0, 91},
       .lens_k = {3, 700, 0, 91},
       .empty_tail = 9,
       .tail_q = 4,
       .tail_k = 4},
  };
  for (const Case& c : cases)
    for (Implementation implementation : {Implementation::kFlash, Implementation::kStandard}) {
      SCOPED_TRACE(c.name);
      const auto want = outputs(c, 1, implementation);
      for (int threads : {2, 3, 7, 3}) EXPECT_TRUE(outputs(c, threads, implementation) == want) << threads << " threads";
    }
}

TEST(AttentionDeterminism, ThreadsWithEveryFeature) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  Case c{.name = "", .spec = dense(2, 300, 1300, 4, 2, 24, true), .dlse = true};
  c.spec.sink = c.spec.block_mask = true;
  c.spec.dropout = 0.2f;
  c.spec.block_q = 64, c.spec.block_k = 96;
  c.blocks = [](const AttentionSpec& s) { return sparse_blocks(s, 300, 1300, {.local = 3, .global = 1, .stride = 3}); };
  const auto want = outputs(c, 1, Implementation::kFlash);
  c.spec.dtype = Dtype::kBF16;
  const auto want_bf16 = outputs<Bf16>(c, 1, Implementation::kFlash);
  for (const int threads : {2, 3, 7}) {
    c.spec.dtype = Dtype::kF32;
    EXPECT_TRUE(outputs(c, threads, Implementation::kFlash) == want) << threads << " threads";
    c.spec.dtype = Dtype::kBF16;
    EXPECT_TRUE(outputs<Bf16>(c, threads, Implementation::kFlash) == want_bf16) << threads << " threads, bf16";
  }
}

TEST(AttentionDeterminism, SplitDecodingOverThreads) {
  const Case c{.name = "", .spec = dense(1, 2, 5000, 2, 1, 32, true)};
  const auto want = outputs(c, 1, Implementation::kFlash);
  for (const int threads : {2, 3, 7}) EXPECT_TRUE(outputs(c, threads, Implementation::kFlash) == want) << threads << " threads";
}

// The same state gives the same mask; another offset, seed or stream another one; and the output is not the one without dropout.
TEST(AttentionDeterminism, DropoutIsAFunctionOfItsState) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  Case c{.name = "", .spec = dense(1, 60, 60, 2, 2, 16, true)};
  const auto plain = outputs(c, 2, Implementation::kFlash);
  c.spec.dropout = 0.3f;
  const auto want = outputs(c, 2, Implementation::kFlash);
  EXPECT_TRUE(outputs(c, 3, Implementation::kFlash) == want);
  EXPECT_FALSE(want[0] == plain[0]);
  EXPECT_TRUE(want[1] == plain[1]) << "lse is that of all weights";
  Case other = c;
  other.offset += 1;
  EXPECT_FALSE(outputs(other, 2, Implementation::kFlash)[0] == want[0]);
  other.spec.dropout_stream = ~0u;  // -1: back to the same sum
  EXPECT_TRUE(outputs(other, 2, Implementation::kFlash) == want);
  other = c;
  other.seed += 1;
  EXPECT_FALSE(outputs(other, 2, Implementation::kFlash)[0] == want[0]);
}

// A causal mask as blocks of whole tiles of the kernel is the causal mask, to the bit; as other blocks to rounding (grid_test.cpp).
TEST(AttentionDeterminism, CausalAsBlocks) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > cpu_target(1).isa) continue;
    IsaGuard guard(isa);
    for (const auto& [q, k] : {std::pair{500, 500}, {200, 700}, {700, 400}}) {
      Case c{.name = "", .spec = dense(1, q, k, 4, 2, 24, true)};
      const auto want = outputs(c, 2, Implementation::kFlash);
      c.spec.block_mask = true;
      c.spec.block_q = 50, c.spec.block_k = flash_key_tile(isa);
      c.blocks = [&](const AttentionSpec& s) { return blocks_of_mask(s, q, k); };
      EXPECT_TRUE(outputs(c, 2, Implementation::kFlash) == want) << name_of(isa) << " " << q << " " << k;
    }
  }
}

TEST(AttentionDeterminism, StridesChangeNothing) {
  Case c{.name = "strides", .spec = dense(2, 150, 150, 4, 2, 32, true)};
  const auto want = outputs(c, 2, Implementation::kFlash);
  c.padded_rows = false;
  EXPECT_TRUE(outputs(c, 2, Implementation::kFlash) == want);
}

// A document in a batch of documents gets the bits that it gets alone.
TEST(AttentionDeterminism, DocumentsDoNotMeet) {
  ThreadPool pool(2, false);
  Ops<float> all;
  build({.name = "", .spec = dense(0, 0, 0, 2, 2, 32, true), .lens_q = {50, 77, 120}, .lens_k = {50, 77, 120}, .padded_rows = false}, 5,
        all);
  launch_guarded(pool, all.forward);
  launch_guarded(pool, all.backward);
  auto part = [](const Tensor& t) { return t.slice(0, 50, 77); };
  Forward f = all.forward;
  Backward b = all.backward;
  std::vector<std::int32_t> cu{0, 77};
  Buffers<float> memory;
  f.spec.batch = b.spec.batch = 1, f.spec.total_q = f.spec.total_k = b.spec.total_q = b.spec.total_k = 77;
  f.spec.max_q = f.spec.max_k = b.spec.max_q = b.spec.max_k = 77;
  f.cu_seqlens_q = f.cu_seqlens_k = b.cu_seqlens_q = b.cu_seqlens_k = Tensor(cu.data(), {2}, Dtype::kI32);
  f.q = b.q = part(f.q), f.k = b.k = part(f.k), f.v = b.v = part(f.v), b.dout = part(b.dout);
  f.o = b.o = memory.make({77, 2, 32}, 0, kNan);
  f.lse = b.lse = memory.make({2, 77}, 0, kNan);
  b.dq = memory.make({77, 2, 32}, 0, kNan), b.dk = memory.make({77, 2, 32}, 0, kNan), b.dv = memory.make({77, 2, 32}, 0, kNan);
  launch_guarded(pool, f);
  launch_guarded(pool, b);
  EXPECT_TRUE(values(f.o) == values(part(all.forward.o)));
  EXPECT_TRUE(values(b.dq) == values(part(all.backward.dq)));
  EXPECT_TRUE(values(b.dk) == values(part(all.backward.dk)));
  EXPECT_TRUE(values(b.dv) == values(part(all.backward.dv)));
}

}  // namespace
}  // namespace flashgpt::attention::testing
