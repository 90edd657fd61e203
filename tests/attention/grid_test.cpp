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
  }
}

}  // namespace
}  // namespace flashgpt::attention::testing
