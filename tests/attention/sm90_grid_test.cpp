// What the Hopper forward has variants of, on rows long enough for several blocks of keys of every kind: hidden after, plain, hidden
// before. Any GPU runs these; only Hopper with the kernels they are for.
#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

template <class F> AttentionSpec changed(AttentionSpec s, F&& change) {
  change(s);
  return s;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&](std::string name, Case c) {
    c.name = std::move(name);
    all.push_back(std::move(c));
  };
  int n = 0;
  for (int d : {64, 96, 128, 192, 256})
    for (auto [left, right] : {std::pair{200, 0}, {130, 70}, {-1, 150}, {0, 0}, {233, -1}, {5000, 5000}}) {
      if (d % 128 != 0 && n++ % 2 == 1) continue;
      add(cat("window ", left, " ", right, " D", d),
          {.spec = changed(dense(1, 520 - d / 2, 470, 1, 1, d), [=](auto& s) { s.window_left = left, s.window_right = right; })});
    }
  for (bool causal : {false, true}) {
    const std::string suffix = causal ? ", causal" : "";
    const auto window = [](AttentionSpec& s) { s.window_left = 150, s.window_right = s.causal ? kNoWindow : 40; };
    const auto alibi = [](AttentionSpec& s) { s.alibi = true; };
    const auto softcap = [](AttentionSpec& s) { s.softcap = 8; };
    add("window, queries before the first key" + suffix, {.spec = changed(dense(1, 500, 200, 1, 1, 128, causal), window)});
    add("window behind the keys" + suffix, {.spec = changed(dense(1, 130, 700, 1, 1, 64, causal), window)});
    add("alibi" + suffix, {.spec = changed(dense(1, 300, 400, 3, 1, 128, causal), alibi)});
    add("alibi of the paper, rank's heads" + suffix,
        {.spec = changed(dense(1, 200, 200, 3, 3, 64, causal), [&](auto& s) { alibi(s), s.head_offset = 3, s.total_heads = 12; }),
         .slopes = false});
    add("softcap" + suffix, {.spec = changed(dense(1, 300, 400, 2, 1, 128, causal), softcap), .q_scale = 6});
    add("softcap, D256" + suffix, {.spec = changed(dense(1, 200, 300, 1, 1, 256, causal), softcap), .q_scale = 6});
    add("all of it" + suffix,
        {.spec = changed(dense(2, 300, 400, 2, 1, 128, causal), [&](auto& s) { window(s), alibi(s), softcap(s); }), .q_scale = 4});
    add("v narrower" + suffix, {.spec = changed(dense(1, 250, 300, 2, 1, 192, causal), [](auto& s) { s.v_head_dim = 128; })});
    add("v wider" + suffix, {.spec = changed(dense(1, 300, 400, 2, 2, 40, causal), [](auto& s) { s.v_head_dim = 104; })});
    const std::vector<int> lens_q{1, 0, 300, 129, 3, 0, 210}, lens_k{400, 5, 300, 40, 0, 0, 211};
    for (int d : {64, 128, 192})
      add(cat("varlen D", d, suffix),
          {.spec = dense(0, 0, 0, 2, 1, d, causal), .lens_q = lens_q, .lens_k = lens_k, .tail_q = 7, .tail_k = 3});
    add("varlen, all of it" + suffix, {.spec = changed(dense(0, 0, 0, 2, 1, 96, causal), [&](auto& s) { window(s), alibi(s), softcap(s); }),
                                       .lens_q = lens_q,
                                       .lens_k = lens_k,
                                       .empty_tail = 2,
                                       .tail_q = 100,
                                       .q_scale = 4});
  }
  return all;
}

template <class T> void check_all(double tolerance) {
  if (!flashgpt::testing::on_gpu()) GTEST_SKIP() << "needs a GPU";
  ThreadPool pool(2, false);
  for (Case& c : cases()) {
    c.spec.dtype = DtypeOf<T>::value;
    c.tolerance = tolerance;
    expect_matches_reference<T>(c, pool, Implementation::kFlash);
  }
}

TEST(Sm90Grid, Bf16) { check_all<Bf16>(4e-3); }
TEST(Sm90Grid, Fp16) { check_all<Fp16>(6e-4); }

}  // namespace
}  // namespace flashgpt::attention::testing
