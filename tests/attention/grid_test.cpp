// The tiled and the standard implementation against the double reference, over shapes, masks, features and layouts.
#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

constexpr std::pair<int, int> kLengths[] = {{1, 1},   {1, 239}, {113, 203}, {128, 217}, {203, 113}, {239, 1},
                                            {64, 64}, {97, 97}, {255, 256}, {256, 255}, {17, 300},  {300, 17}};

std::vector<Case> head_dims() {
  std::vector<Case> cases;
  int n = 0;
  for (int d : {1, 8, 32, 40, 64, 80, 128, 192, 256})
    for (bool causal : {false, true}) {
      const auto [q, k] = kLengths[n++ % std::size(kLengths)];
      const int kv = n % 3 == 0 ? 1 : n % 3 == 1 ? 2 : 4;
      Case c;
      c.spec = dense(1 + n % 2, q, k, 4, kv, d, causal);
      c.name = cat("D", d, " q", q, " k", k, " kv", kv, causal ? " causal" : " full");
      cases.push_back(c);
    }
  return cases;
}

std::vector<Case> lengths() {
  std::vector<Case> cases;
  for (const auto& [q, k] : kLengths)
    for (bool causal : {false, true}) {
      Case c;
      c.spec = dense(2, q, k, 3, 3, 40, causal);
      c.name = cat("q", q, " k", k, causal ? " causal" : " full");
      c.padded_rows = q % 2 == 0;
      cases.push_back(c);
    }
  return cases;
}

std::vector<Case> features() {
  std::vector<Case> cases;
  auto add = [&](std::string name, Case c) {
    c.name = std::move(name);
    cases.push_back(std::move(c));
  };
  for (bool causal : {false, true}) {
    const std::string suffix = causal ? ", causal" : "";
    add("alibi" + suffix, {.spec = [&] {
          auto s = dense(2, 113, 203, 6, 2, 32, causal);
          s.alibi = true;
          return s;
        }()});
    add("alibi by batch" + suffix, {.spec =
                                        [&] {
                                          auto s = dense(2, 65, 65, 4, 4, 32, causal);
                                          s.alibi = true;
                                          return s;
                                        }(),
                                    .slopes_per_batch = true});
    add("alibi of the paper, rank's heads" + suffix, {.spec =
                                                          [&] {
                                                            auto s = dense(1, 70, 70, 3, 3, 16, causal);
                                                            s.alibi = true;
                                                            s.head_offset = 3;
                                                            s.total_heads = 12;
                                                            return s;
                                                          }(),
                                                      .slopes = false});
    add("softcap" + suffix, {.spec =
                                 [&] {
                                   auto s = dense(2, 113, 211, 4, 2, 64, causal);
                                   s.softcap = 15;
                                   return s;
                                 }(),
                             .q_scale = 4});
    add("softcap and alibi" + suffix, {.spec =
                                           [&] {
                                             auto s = dense(1, 108, 140, 4, 2, 48, causal);
                                             s.softcap = 5;
                                             s.alibi = true;
                                             return s;
                                           }(),
                                       .q_scale = 3});
    add("other v dim" + suffix, {.spec = [&] {
          auto s = dense(2, 97, 130, 4, 2, 64, causal);
          s.v_head_dim = 40;
          return s;
        }()});
    add("wider v dim" + suffix, {.spec = [&] {
          auto s = dense(1, 97, 130, 2, 1, 24, causal);
          s.v_head_dim = 136;
          return s;
        }()});
    add("gradient of lse" + suffix, {.spec = dense(2, 120, 120, 2, 2, 64, causal), .dlse = true});
    add("scale" + suffix, {.spec =
                               [&] {
                                 auto s = dense(1, 50, 77, 2, 2, 64, causal);
                                 s.scale = 0.37f;
                                 return s;
                               }(),
                           .tolerance = 2e-5});
    add("varlen" + suffix, {.spec = dense(0, 0, 0, 6, 2, 32, causal), .lens_q = {1, 0, 147, 64, 3, 0}, .lens_k = {1, 5, 147, 129, 0, 0}});
    add("varlen with tails and empty sequences" + suffix, {.spec = dense(0, 0, 0, 2, 2, 64, causal),
                                                           .lens_q = {137, 60, 2},
                                                           .lens_k = {137, 60, 2},
                                                           .empty_tail = 40,
                                                           .tail_q = 31,
                                                           .tail_k = 29,
                                                           .dlse = true});
    add("seqused" + suffix, {.spec = dense(3, 70, 150, 4, 2, 32, causal), .used_q = {70, 0, 33}, .used_k = {0, 150, 97}});
    add("decode" + suffix, {.spec = dense(4, 1, 400, 8, 2, 64, causal), .used_k = {400, 1, 61, 0}});
    add("several new tokens" + suffix, {.spec = dense(2, 5, 333, 4, 4, 64, causal), .used_q = {5, 3}, .used_k = {333, 64}});
    add("logits x50" + suffix, {.spec = dense(1, 130, 130, 2, 2, 64, causal), .q_scale = 50, .tolerance = 3e-4});
    add("equal logits" + suffix, {.spec = dense(1, 130, 130, 2, 2, 64, causal), .q_scale = 0});
    add("no queries" + suffix, {.spec = dense(2, 0, 60, 2, 2, 32, causal)});
    add("no keys" + suffix, {.spec = dense(2, 60, 0, 2, 2, 32, causal)});
    add("split keys, one head" + suffix, {.spec = dense(1, 700, 1300, 1, 1, 16, causal)});
    add("split keys, varlen" + suffix, {.spec = dense(0, 0, 0, 2, 1, 16, causal), .lens_q = {10, 600}, .lens_k = {10, 1100}, .tail_q = 5});
  }
  for (auto [left, right] : {std::pair<int, int>{0, 0}, {16, 0}, {0, 16}, {37, 21}, {-1, 5}, {5, -1}, {300, 300}}) {
    Case c;
    c.spec = dense(1, 150, 190, 2, 1, 32);
    c.spec.window_left = left, c.spec.window_right = right;
    add(cat("window ", left, " ", right), c);
    c.spec = dense(1, 190, 150, 2, 2, 32);
    c.spec.window_left = left, c.spec.window_right = right;
    add(cat("window, more queries, ", left, " ", right), c);
  }
  return cases;
}

template <class F> AttentionSpec changed(AttentionSpec s, F&& change) {
  change(s);
  return s;
}

// Every block none, partial or full, by a number that runs over [batch][head][row][column]; full blocks may lie where the mask would cut.
OwnedBlocks mixed_blocks(const AttentionSpec& s, Index batch, Index heads) {
  const Index rows = (s.max_q + s.block_q - 1) / s.block_q, columns = (s.max_k + s.block_k - 1) / s.block_k;
  std::vector<Seen> seen;
  unsigned n = 1;
  for (Index i = 0; i < batch * heads * rows * columns; ++i)
    seen.push_back(static_cast<Seen>(((n = n * 1664525u + 1013904223u) >> 24) % 3));
  return make_blocks(batch, heads, rows, columns, seen);
}

// Sinks, dropout and lists of blocks, alone and together.
std::vector<Case> sparse_features() {
  std::vector<Case> cases;
  auto add = [&](std::string name, Case c) {
    c.name = std::move(name);
    cases.push_back(std::move(c));
  };
  for (const bool causal : {false, true}) {
    const std::string suffix = causal ? ", causal" : "";
    auto sink = [](AttentionSpec& s) { s.sink = true; };
    auto dropout = [](AttentionSpec& s) { s.dropout = 0.3f; };
    auto blocks = [](Index q, Index k) { return [=](AttentionSpec& s) { s.block_mask = true, s.block_q = q, s.block_k = k; }; };
    auto by_head = [](const AttentionSpec& s) { return mixed_blocks(s, s.batch, s.heads); };
    auto for_all = [](const AttentionSpec& s) { return mixed_blocks(s, 1, 1); };
    add("sink" + suffix, {.spec = changed(dense(2, 113, 203, 6, 2, 40, causal), sink), .dlse = true});
    add("sink, rows without keys" + suffix, {.spec = changed(dense(2, 70, 33, 2, 2, 32, causal), sink), .dlse = true});
    add("sink, no keys" + suffix, {.spec = changed(dense(1, 5, 0, 2, 2, 16, causal), sink), .dlse = true});
    add("sink, varlen" + suffix,
        {.spec = changed(dense(0, 0, 0, 4, 2, 32, causal), sink), .lens_q = {1, 0, 47, 64}, .lens_k = {1, 5, 147, 29}, .tail_q = 9});
    add("dropout" + suffix, {.spec = changed(dense(2, 113, 203, 3, 3, 40, causal), dropout), .dlse = true});
    add("dropout, grouped heads" + suffix, {.spec = changed(dense(1, 77, 130, 6, 2, 24, causal), dropout)});
    add("dropout, varlen" + suffix,
        {.spec = changed(dense(0, 0, 0, 2, 1, 16, causal), dropout), .lens_q = {3, 50, 0, 81}, .lens_k = {9, 50, 4, 81}, .tail_k = 5});
    add("dropout by rank" + suffix, {.spec = changed(dense(2, 40, 40, 2, 2, 16, causal), [&](auto& s) {
                                       dropout(s);
                                       s.total_heads = 6, s.head_offset = 2, s.dropout_stream = 11;
                                     })});
    add("dropout, much" + suffix,
        {.spec = changed(dense(1, 65, 65, 2, 2, 16, causal), [](auto& s) { s.dropout = 0.95f; }), .tolerance = 1e-5});
    add("blocks" + suffix, {.spec = changed(dense(2, 150, 300, 2, 2, 32, causal), blocks(16, 32)), .dlse = true, .blocks = by_head});
    add("blocks, odd, grouped heads" + suffix, {.spec = changed(dense(1, 97, 211, 4, 2, 24, causal), blocks(13, 29)), .blocks = by_head});
    add("blocks for all, grouped heads" + suffix,
        {.spec = changed(dense(2, 97, 211, 4, 2, 24, causal), blocks(20, 70)), .blocks = for_all});
    add("blocks of one" + suffix, {.spec = changed(dense(1, 9, 31, 1, 1, 8, causal), blocks(1, 1)), .blocks = for_all});
    add("blocks, long" + suffix, {.spec = changed(dense(1, 300, 1500, 1, 1, 16, causal), blocks(64, 128)), .blocks = for_all});
    add("blocks, varlen" + suffix, {.spec = changed(dense(0, 0, 0, 2, 2, 16, causal), blocks(16, 16)),
                                    .lens_q = {30, 0, 100},
                                    .lens_k = {30, 7, 90},
                                    .blocks = by_head});
    add("no blocks" + suffix, {.spec = changed(dense(1, 40, 40, 2, 2, 16, causal), blocks(16, 16)), .blocks = [](const AttentionSpec& s) {
                                 return make_blocks(1, s.heads, 3, 3,
                                                    std::vector<Seen>(static_cast<std::size_t>(9 * s.heads), Seen::kNone));
                               }});
    add("all of it" + suffix, {.spec = changed(dense(2, 90, 140, 4, 2, 40, causal),
                                               [&](auto& s) {
                                                 sink(s), dropout(s), blocks(32, 48)(s);
                                                 s.alibi = true, s.softcap = 5, s.v_head_dim = 24, s.window_left = 60;
                                               }),
                               .dlse = true,
                               .blocks = by_head});
  }
  add("local, global and strided",
      {.spec = changed(dense(1, 400, 400, 2, 2, 32, true), [](auto& s) { s.block_mask = true, s.block_q = s.block_k = 32; }),
       .blocks = [](const AttentionSpec& s) { return sparse_blocks(s, 400, 400, {.local = 2, .global = 1, .stride = 4}); }});
  add("sink and split keys", {.spec = changed(dense(1, 2, 3000, 1, 1, 16), [](auto& s) { s.sink = true; })});
  add("split keys, decoding, causal", {.spec = dense(2, 3, 2500, 4, 2, 32, true), .used_k = {2500, 700}});
  return cases;
}

TEST(AttentionGrid, TiledMatchesReferenceWithSinkDropoutAndBlocks) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  ThreadPool pool(2, false);
  for (const Case& c : sparse_features()) expect_matches_reference(c, pool, Implementation::kFlash);
}

// A part of the cases: every type goes through the same code but for its conversions.
template <class T> void check_narrow(double tolerance, int offset) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  ThreadPool pool(2, false);
  auto narrow = [&](Case c) {
    c.spec.dtype = DtypeOf<T>::value;
    c.tolerance = std::max(c.tolerance, tolerance);
    expect_matches_reference<T>(c, pool, Implementation::kFlash);
  };
  int n = offset;
  for (const Case& c : features())
    if (n++ % 4 == 0 && c.q_scale <= 4) narrow(c);
  for (const Case& c : sparse_features())
    if (n++ % 2 == 0) narrow(c);
  for (const Case& c : head_dims())
    if (n++ % 6 == 0) narrow(c);
  narrow({.name = "dQ over passes", .spec = dense(1, 40, 1300, 16, 16, 16, true)});
}
TEST(AttentionGrid, TiledInBf16) { check_narrow<Bf16>(5e-3, 0); }
TEST(AttentionGrid, TiledInFp16) { check_narrow<Fp16>(8e-4, 1); }

TEST(AttentionGrid, TiledMatchesReferenceOverHeadDims) {
  ThreadPool pool(2, false);
  for (const Case& c : head_dims()) expect_matches_reference(c, pool, Implementation::kFlash);
}

TEST(AttentionGrid, TiledMatchesReferenceOverLengths) {
  ThreadPool pool(2, false);
  for (const Case& c : lengths()) expect_matches_reference(c, pool, Implementation::kFlash);
}

TEST(AttentionGrid, TiledMatchesReferenceWithFeatures) {
  ThreadPool pool(2, false);
  for (const Case& c : features()) expect_matches_reference(c, pool, Implementation::kFlash);
}

TEST(AttentionGrid, StandardMatchesReference) {
  ThreadPool pool(2, false);
  int n = 0;
  for (const Case& c : head_dims())
    if (n++ % 4 == 1) expect_matches_reference(c, pool, Implementation::kStandard);
  for (const Case& c : features()) expect_matches_reference(c, pool, Implementation::kStandard);
}

// In 16 bits on a GPU: storage rounds to 2^-9 (bf16) or 2^-12 of a value, and so do the weights that the second product reads.
template <class T> void expect_16_bits_match_reference(double tolerance, std::vector<Case> cases) {
  if (!flashgpt::testing::on_gpu()) GTEST_SKIP() << "needs a GPU";
  ThreadPool pool(2, false);
  bool deterministic = false;
  for (Case& c : cases) {
    c.spec.dtype = DtypeOf<T>::value;
    c.spec.deterministic = deterministic = !deterministic;
    c.tolerance = tolerance;
    expect_matches_reference<T>(c, pool, Implementation::kFlash);
  }
}

TEST(AttentionGrid, Bf16OnGpuOverHeadDims) {
  expect_16_bits_match_reference<Bf16>(4e-3, head_dims());
  std::vector<Case> again = head_dims();
  again.erase(again.begin());  // the others are deterministic now
  expect_16_bits_match_reference<Bf16>(4e-3, again);
}
TEST(AttentionGrid, Bf16OnGpuOverLengths) { expect_16_bits_match_reference<Bf16>(4e-3, lengths()); }
TEST(AttentionGrid, Bf16OnGpuWithFeatures) { expect_16_bits_match_reference<Bf16>(4e-3, features()); }
TEST(AttentionGrid, Bf16OnGpuWithSinkDropoutAndBlocks) {
  std::vector<Case> cases = sparse_features();
  expect_16_bits_match_reference<Bf16>(5e-3, cases);
  cases.erase(cases.begin());
  expect_16_bits_match_reference<Bf16>(5e-3, cases);
}
TEST(AttentionGrid, Fp16OnGpuOverHeadDims) { expect_16_bits_match_reference<Fp16>(6e-4, head_dims()); }
TEST(AttentionGrid, Fp16OnGpuWithFeatures) {
  std::vector<Case> cases = features();
  cases.erase(cases.begin());
  expect_16_bits_match_reference<Fp16>(6e-4, cases);
}

TEST(AttentionGrid, EveryInstructionSetMatchesReference) {
  ThreadPool pool(2, false);
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa >= cpu_target(1).isa) continue;  // the widest is tested above
    SCOPED_TRACE(name_of(isa));
    IsaGuard guard(isa);
    int n = 0;
    for (const Case& c : head_dims())
      if (n++ % 3 == 0) expect_matches_reference(c, pool, Implementation::kFlash);
    for (const Case& c : features()) expect_matches_reference(c, pool, Implementation::kFlash);
    for (Case c : sparse_features()) {
      if (n++ % 4 >= 2) continue;
      expect_matches_reference(c, pool, Implementation::kFlash);
      c.spec.dtype = n++ % 2 == 0 ? Dtype::kBF16 : Dtype::kF16;
      c.tolerance = 5e-3;
      if (c.spec.dtype == Dtype::kBF16)
        expect_matches_reference<Bf16>(c, pool, Implementation::kFlash);
      else
        expect_matches_reference<Fp16>(c, pool, Implementation::kFlash);
    }
  }
}

}  // namespace
}  // namespace flashgpt::attention::testing
