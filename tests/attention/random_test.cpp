// Specs drawn at random, every feature with every other: what no list of cases thinks of. FLASHGPT_TEST_CASES=5000 draws more of them,
// FLASHGPT_TEST_SEED begins elsewhere; a failure names the seed of its case.
#include <cstdlib>

#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

long setting(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atol(value) : otherwise;
}

Case draw(unsigned seed) {
  std::mt19937 rng(seed);
  auto below = [&](unsigned n) { return static_cast<int>(rng() % n); };
  auto chance = [&](unsigned of) { return rng() % of == 0; };
  auto length = [&] { return chance(8) ? below(3) : chance(4) ? 1 + below(400) : 1 + below(70); };
  Case c;
  AttentionSpec& s = c.spec;
  s = dense(1 + below(3), length(), length(), 1, 1 + below(3), chance(3) ? 1 + below(80) : 8 * (1 + below(6)), chance(2));
  s.heads = s.kv_heads * (1 + below(3));
  if (chance(3)) s.v_head_dim = 1 + below(70);
  if (chance(3)) s.window_left = below(60);
  if (chance(3) && !s.causal) s.window_right = below(60);
  if (chance(4)) s.softcap = 1.0f + static_cast<float>(below(20));
  if (chance(4)) s.alibi = true, c.slopes_per_batch = chance(2), c.slopes = !chance(4);
  if (chance(3)) s.sink = true;
  if (chance(3)) s.dropout = 0.01f * static_cast<float>(1 + below(80)), c.seed = below(1000), c.offset = below(1000);
  if (chance(8)) s.head_offset = below(4), s.total_heads = s.heads + s.head_offset + below(3), c.slopes = c.slopes && chance(2);
  if (chance(8)) s.scale = 0.05f * static_cast<float>(1 + below(10));
  c.dlse = chance(3);
  c.padded_rows = chance(2);
  if (chance(3)) {
    for (int n = 1 + below(4); n > 0; --n) c.lens_q.push_back(length()), c.lens_k.push_back(chance(2) ? c.lens_q.back() : length());
    c.tail_q = below(5), c.tail_k = below(5), c.empty_tail = below(3);
    c.slopes_per_batch = false;
  } else if (chance(3)) {
    for (int b = 0; b < s.batch; ++b) {
      c.used_q.push_back(below(static_cast<unsigned>(s.max_q + 1)));
      c.used_k.push_back(below(static_cast<unsigned>(s.max_k + 1)));
    }
  }
  if (chance(3)) {
    s.block_mask = true, s.block_q = 1 + below(90), s.block_k = 1 + below(200);
    const unsigned blocks_seed = rng();
    const bool by_batch = chance(2), by_head = chance(2);
    const unsigned holes = 1 + static_cast<unsigned>(below(4));
    c.blocks = [=](const AttentionSpec& spec) {
      std::mt19937 r(blocks_seed);
      const Index batch = by_batch ? spec.batch : 1, heads = by_head ? spec.heads : 1;
      const Index rows = (spec.max_q + spec.block_q - 1) / spec.block_q, columns = (spec.max_k + spec.block_k - 1) / spec.block_k;
      std::vector<Seen> seen;
      for (Index n = 0; n < batch * heads * rows * columns; ++n) seen.push_back(static_cast<Seen>(r() % holes == 0 ? 0 : r() % 3));
      return make_blocks(batch, heads, rows, columns, seen);
    };
  }
  c.tolerance = 2e-5;
  return c;
}

TEST(AttentionRandom, TiledMatchesReference) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  const long cases = setting("FLASHGPT_TEST_CASES", 60);
  const auto first = static_cast<unsigned>(setting("FLASHGPT_TEST_SEED", 1));
  ThreadPool pool(2, false);
  for (long n = 0; n < cases && !::testing::Test::HasFailure(); ++n) {
    const unsigned seed = first + static_cast<unsigned>(n);
    Case c = draw(seed);
    const AttentionSpec& s = c.spec;
    c.name = cat("FLASHGPT_TEST_SEED=", seed, ": batch ", s.batch, " q ", s.max_q, " k ", s.max_k, " heads ", s.heads, "/", s.kv_heads,
                 " d ", s.head_dim, "/", s.v_head_dim, " causal ", s.causal, " window ", s.window_left, " ", s.window_right, " varlen ",
                 c.lens_q.size(), " dropout ", s.dropout, " sink ", s.sink, " alibi ", s.alibi, " blocks ", s.block_q, " ", s.block_k);
    if (cases == 1) std::fprintf(stderr, "%s\n", c.name.c_str());
    switch (seed % 5) {
      case 0:
        c.spec.dtype = Dtype::kBF16, c.tolerance = 1.2e-2;
        expect_matches_reference<Bf16>(c, pool, Implementation::kFlash, seed);
        break;
      case 1:
        c.spec.dtype = Dtype::kF16, c.tolerance = 3e-3;  // o is rounded, and with it delta: what cancels in ds shows it
        expect_matches_reference<Fp16>(c, pool, Implementation::kFlash, seed);
        break;
      case 2: {
        const IsaGuard guard(Isa::kPortable);
        expect_matches_reference(c, pool, Implementation::kFlash, seed);
        break;
      }
      default: expect_matches_reference(c, pool, Implementation::kFlash, seed);
    }
  }
}

}  // namespace
}  // namespace flashgpt::attention::testing
