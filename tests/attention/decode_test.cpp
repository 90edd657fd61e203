// The call with a KV cache against the double reference on what the cache should hold. Slots that no token has filled are NaN, caches are
// compared whole afterwards.
#include "attention/decode.h"

#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

struct DecodeCase {
  std::string name;
  AttentionSpec spec;  // batch, max_q, max_k (capacity), heads, dims, mask
  std::vector<int> lengths;
  int most_new = 0;
  std::vector<int> new_lengths, seqused_q, batch_index, left_pad;
  int page_size = 0;  // 0: not paged
  int rotary_dim = 0;
  bool interleaved = false;
  double tolerance = 6e-6;
};

template <class T> struct DecodeRun {
  Buffers<T> memory;
  Buffers<float> floats;
  std::vector<std::int32_t> lengths, new_lengths, seqused_q, batch_index, left_pad, pages;
  Decode op;
  std::int64_t slots(std::int64_t b, std::int64_t t) const {  // row of the cache, all its rows in a line
    const std::int64_t size = op.k_cache.dim(1);
    if (!pages.empty()) return pages[static_cast<std::size_t>(b * op.page_table.dim(1) + t / size)] * size + t % size;
    return (batch_index.empty() ? b : batch_index[static_cast<std::size_t>(b)]) * size + t;
  }
};

Tensor ints_of(std::vector<std::int32_t>& v, const std::vector<int>& from, Shape shape) {
  if (from.empty()) return {};
  v.assign(from.begin(), from.end());
  return Tensor(v.data(), shape, Dtype::kI32);
}

template <class T> void build_decode(const DecodeCase& c, DecodeRun<T>& r) {
  std::mt19937 rng(7);
  AttentionSpec& s = r.op.spec = c.spec;
  s.dtype = DtypeOf<T>::value;
  const T nan = nan_of<T>();
  auto input = [&](Shape shape) {
    Tensor t = r.memory.make(shape, 8, nan);
    fill_normal(t, rng, 1.0f);
    return t;
  };
  r.op.q = input({s.batch, s.max_q, s.heads, s.head_dim});
  r.op.o = r.memory.make({s.batch, s.max_q, s.heads, s.v_head_dim}, 8, nan);
  r.op.lse = r.floats.make({s.batch, s.heads, s.max_q}, 0, kNan);
  r.op.lengths = ints_of(r.lengths, c.lengths, {s.batch});
  r.op.new_lengths = ints_of(r.new_lengths, c.new_lengths, {s.batch});
  r.op.seqused_q = ints_of(r.seqused_q, c.seqused_q, {s.batch});
  r.op.batch_index = ints_of(r.batch_index, c.batch_index, {s.batch});
  r.op.left_pad = ints_of(r.left_pad, c.left_pad, {s.batch});
  std::int64_t rows = s.batch + (c.batch_index.empty() ? 0 : 2), capacity = s.max_k;
  if (c.page_size > 0) {
    const std::int64_t most = s.max_k / c.page_size;
    rows = 2 * s.batch * most, capacity = c.page_size;  // twice what is needed, in any order
    for (std::int64_t i = 0; i < rows; ++i) r.pages.push_back(static_cast<std::int32_t>(i));
    std::shuffle(r.pages.begin(), r.pages.end(), rng);
    r.pages.resize(static_cast<std::size_t>(s.batch * most));
    r.op.page_table = Tensor(r.pages.data(), {s.batch, most}, Dtype::kI32);
  }
  r.op.k_cache = r.memory.make({rows, capacity, s.kv_heads, s.head_dim}, 8, nan);
  r.op.v_cache = r.memory.make({rows, capacity, s.kv_heads, s.v_head_dim}, 8, nan);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = c.left_pad.empty() ? 0 : c.left_pad[static_cast<std::size_t>(b)]; t < c.lengths[static_cast<std::size_t>(b)]; ++t)
      for (const Tensor& cache : {r.op.k_cache, r.op.v_cache}) {
        const std::int64_t slot = r.slots(b, t);
        fill_normal(cache.select(0, slot / capacity).select(0, slot % capacity), rng, 1.0f);
      }
  if (c.most_new > 0) {
    r.op.k_new = input({s.batch, c.most_new, s.kv_heads, s.head_dim});
    r.op.v_new = input({s.batch, c.most_new, s.kv_heads, s.v_head_dim});
  }
  if (c.rotary_dim > 0) {
    r.op.rotary_interleaved = c.interleaved;
    r.op.rotary_cos = r.floats.make({s.max_k + s.max_q, c.rotary_dim / 2}, 0, kNan);
    r.op.rotary_sin = r.floats.make({s.max_k + s.max_q, c.rotary_dim / 2}, 0, kNan);
    each(r.op.rotary_cos, [&](std::int64_t n, std::int64_t o) {
      const double angle = static_cast<double>(n / (c.rotary_dim / 2)) *
                           std::pow(10000.0, -2.0 * static_cast<double>(n % (c.rotary_dim / 2)) / c.rotary_dim);
      store_float(r.op.rotary_cos, o, static_cast<float>(std::cos(angle)));
      store_float(r.op.rotary_sin, o, static_cast<float>(std::sin(angle)));
    });
  }
  if (s.sink) {
    r.op.sink = r.floats.make({s.heads}, 0, kNan);
    fill_normal(r.op.sink, rng, 1.0f);
  }
}

// A row of numbers, rotated.
template <class T> std::vector<double> rotated(const DecodeRun<T>& r, std::vector<double> x, std::int64_t position) {
  if (!r.op.rotary_cos) return x;
  const std::int64_t pairs = r.op.rotary_cos.dim(1);
  for (std::int64_t c = 0; c < pairs; ++c) {
    const auto i = static_cast<std::size_t>(r.op.rotary_interleaved ? 2 * c : c),
               j = static_cast<std::size_t>(r.op.rotary_interleaved ? 2 * c + 1 : c + pairs);
    const double cos = static_cast<double>(r.op.rotary_cos.template as<float>()[position * pairs + c]),
                 sin = static_cast<double>(r.op.rotary_sin.template as<float>()[position * pairs + c]);
    const double a = x[i], b = x[j];
    x[i] = a * cos - b * sin;
    x[j] = a * sin + b * cos;
  }
  return x;
}
template <class T> double round_to(double x) { return static_cast<double>(static_cast<float>(T(static_cast<float>(x)))); }

std::vector<double> row_of(const Tensor& t, std::int64_t b, std::int64_t i, std::int64_t h) {
  return values(t.select(0, b).select(0, i).select(0, h));
}

template <class T> void check_decode(const DecodeCase& c, int threads = 2) {
  SCOPED_TRACE(cat(c.name, ", ", name_of(DtypeOf<T>::value)));
  DecodeRun<T> r;
  build_decode(c, r);
  const AttentionSpec& s = r.op.spec;
  // What the caches should hold.
  std::vector<double> k_cache = values(r.op.k_cache), v_cache = values(r.op.v_cache);
  auto added = [&](std::int64_t b) {
    return c.most_new == 0 ? 0 : c.new_lengths.empty() ? c.most_new : c.new_lengths[static_cast<std::size_t>(b)];
  };
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < added(b); ++t)
      for (std::int64_t h = 0; h < s.kv_heads; ++h) {
        const std::int64_t position = c.lengths[static_cast<std::size_t>(b)] + t, at = r.slots(b, position) * s.kv_heads + h;
        const std::vector<double> k = rotated(r, row_of(r.op.k_new, b, t, h), position), v = row_of(r.op.v_new, b, t, h);
        for (std::size_t i = 0; i < k.size(); ++i) k_cache[static_cast<std::size_t>(at * s.head_dim) + i] = round_to<T>(k[i]);
        for (std::size_t i = 0; i < v.size(); ++i) v_cache[static_cast<std::size_t>(at * s.v_head_dim) + i] = v[i];
      }

  ThreadPool pool(threads, false);
  launch_guarded(pool, r.op);

  const std::vector<double> k_after = values(r.op.k_cache), v_after = values(r.op.v_cache);
  const double k_tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-2;
  for (std::size_t i = 0; i < k_cache.size(); ++i)
    ASSERT_TRUE((std::isnan(k_cache[i]) && std::isnan(k_after[i])) ||
                std::abs(k_cache[i] - k_after[i]) <= k_tolerance * std::max(1.0, std::abs(k_cache[i])))
        << "k_cache " << i;
  for (std::size_t i = 0; i < v_cache.size(); ++i)
    ASSERT_TRUE((std::isnan(v_cache[i]) && std::isnan(v_after[i])) || v_cache[i] == v_after[i]) << "v_cache " << i;

  const bool turning = s.causal || s.window_left >= 0 || s.window_right >= 0;
  for (std::int64_t b = 0; b < s.batch; ++b) {  // each sequence alone, in double
    const std::int64_t pad = c.left_pad.empty() ? 0 : c.left_pad[static_cast<std::size_t>(b)],
                       length = c.lengths[static_cast<std::size_t>(b)];
    const std::int64_t keys = length + added(b) - pad, queries = c.seqused_q.empty() ? s.max_q : c.seqused_q[static_cast<std::size_t>(b)];
    Buffers<double> memory;
    Forward f;
    f.spec = s;
    f.spec.dtype = Dtype::kF64, f.spec.batch = 1, f.spec.max_q = queries, f.spec.max_k = keys;
    f.q = memory.make({1, queries, s.heads, s.head_dim}, 0, 0.0);
    f.k = memory.make({1, keys, s.kv_heads, s.head_dim}, 0, 0.0);
    f.v = memory.make({1, keys, s.kv_heads, s.v_head_dim}, 0, 0.0);
    f.o = memory.make({1, queries, s.heads, s.v_head_dim}, 0, 0.0);
    f.lse = memory.make({1, s.heads, queries}, 0, 0.0);
    f.sink = r.op.sink;
    auto* q = static_cast<double*>(f.q.data);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (const double x : rotated(r, row_of(r.op.q, b, i, h), length + (turning ? i : 0))) *q++ = x;
    for (std::int64_t t = 0; t < keys; ++t) {
      const std::int64_t at = r.slots(b, pad + t);
      for (std::int64_t i = 0; i < s.kv_heads * s.head_dim; ++i)
        static_cast<double*>(f.k.data)[t * s.kv_heads * s.head_dim + i] =
            k_after[static_cast<std::size_t>(at * s.kv_heads * s.head_dim + i)];
      for (std::int64_t i = 0; i < s.kv_heads * s.v_head_dim; ++i)
        static_cast<double*>(f.v.data)[t * s.kv_heads * s.v_head_dim + i] =
            v_after[static_cast<std::size_t>(at * s.kv_heads * s.v_head_dim + i)];
    }
    reference_forward(f);
    expect_near(cat("o of sequence ", b), r.op.o.slice(0, b, 1).slice(1, 0, queries), f.o, c.tolerance);
    expect_near(cat("lse of sequence ", b), r.op.lse.slice(0, b, 1).slice(2, 0, queries), f.lse, c.tolerance);
    for (const double x : values(r.op.o.slice(0, b, 1).slice(1, queries, s.max_q - queries))) EXPECT_EQ(x, 0) << "o behind seqused_q";
    for (const double x : values(r.op.lse.slice(0, b, 1).slice(2, queries, s.max_q - queries)))
      EXPECT_EQ(x, -kInf) << "lse behind seqused_q";
  }
  expect_gaps<T>("o", r.op.o);
}

std::vector<DecodeCase> decode_cases() {
  std::vector<DecodeCase> cases;
  for (const bool causal : {false, true}) {
    const std::string suffix = causal ? ", causal" : "";
    auto add = [&](DecodeCase c) {
      c.name += suffix;
      cases.push_back(std::move(c));
    };
    add({.name = "one token", .spec = dense(3, 1, 130, 4, 2, 32, causal), .lengths = {130, 1, 77}});
    add({.name = "empty cache", .spec = dense(2, 2, 40, 2, 2, 16, causal), .lengths = {0, 5}});
    add({.name = "append", .spec = dense(3, 5, 140, 4, 1, 32, causal), .lengths = {130, 0, 77}, .most_new = 5});
    add({.name = "append some",
         .spec = dense(3, 4, 140, 2, 2, 24, causal),
         .lengths = {130, 0, 77},
         .most_new = 4,
         .new_lengths = {4, 0, 3},
         .seqused_q = {4, 0, 3}});
    add({.name = "rotary", .spec = dense(2, 3, 90, 4, 2, 32, causal), .lengths = {50, 7}, .most_new = 3, .rotary_dim = 32});
    add({.name = "rotary of a part, interleaved",
         .spec = dense(2, 3, 90, 4, 2, 40, causal),
         .lengths = {50, 7},
         .most_new = 2,
         .rotary_dim = 16,
         .interleaved = true});
    add({.name = "left padding",
         .spec = dense(3, 2, 160, 4, 2, 32, causal),
         .lengths = {130, 20, 77},
         .most_new = 2,
         .left_pad = {100, 0, 77},
         .rotary_dim = 32});
    add({.name = "batch index",
         .spec = dense(3, 2, 60, 2, 1, 16, causal),
         .lengths = {30, 20, 57},
         .most_new = 2,
         .batch_index = {4, 0, 2}});
    for (const int page : {1, 3, 16, 64})
      add({.name = cat("pages of ", page),
           .spec = dense(3, 2, 192, 4, 2, 32, causal),
           .lengths = {190, 20, 77},
           .most_new = 2,
           .page_size = page,
           .rotary_dim = 16});
    add({.name = "pages and left padding",
         .spec = dense(2, 1, 192, 4, 2, 32, causal),
         .lengths = {190, 20},
         .left_pad = {37, 19},
         .page_size = 16});
    add({.name = "split keys", .spec = dense(1, 1, 4096, 2, 1, 64, causal), .lengths = {4000}, .most_new = 1});
    add({.name = "split keys, pages", .spec = dense(2, 3, 3000, 2, 1, 32, causal), .lengths = {2990, 600}, .most_new = 3, .page_size = 30});
  }
  DecodeCase sink{.name = "sink, window, alibi, other v dim", .spec = dense(2, 3, 100, 4, 2, 32, true), .lengths = {90, 30}, .most_new = 3};
  sink.spec.sink = sink.spec.alibi = true;
  sink.spec.window_left = 20, sink.spec.v_head_dim = 24, sink.spec.softcap = 8;
  cases.push_back(sink);
  return cases;
}

TEST(AttentionDecode, MatchesReference) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  for (const DecodeCase& c : decode_cases()) check_decode<float>(c);
}
TEST(AttentionDecode, MatchesReferenceIn16Bits) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  for (DecodeCase c : decode_cases()) {
    c.tolerance = 6e-3;
    check_decode<Bf16>(c);
    c.tolerance = 1e-3;
    check_decode<Fp16>(c);
  }
}

TEST(AttentionDecode, SameBitsForAnyThreadsAndPages) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  DecodeCase c{.name = "", .spec = dense(2, 2, 2880, 2, 1, 32, true), .lengths = {2700, 900}, .most_new = 2, .rotary_dim = 32};
  auto run = [&](int threads, int page) {
    c.page_size = page;
    DecodeRun<float> r, dense_run;
    build_decode(c, r);
    if (page > 0) {  // the same tokens in pages
      c.page_size = 0;
      build_decode(c, dense_run);
      r.op.q = dense_run.op.q, r.op.k_new = dense_run.op.k_new, r.op.v_new = dense_run.op.v_new;
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t t = 0; t < c.lengths[static_cast<std::size_t>(b)]; ++t)
          for (const auto& [to, from] : {std::pair{r.op.k_cache, dense_run.op.k_cache}, {r.op.v_cache, dense_run.op.v_cache}}) {
            const std::int64_t slot = r.slots(b, t);
            const Tensor row = to.select(0, slot / page).select(0, slot % page), source = from.select(0, b).select(0, t);
            each(row, [&](std::int64_t, std::int64_t o) { static_cast<float*>(row.data)[o] = static_cast<float*>(source.data)[o]; });
          }
    }
    ThreadPool pool(threads, false);
    launch_guarded(pool, r.op);
    return std::pair{values(r.op.o), values(r.op.lse)};
  };
  const auto want = run(1, 0);
  for (const int threads : {2, 3, 7}) EXPECT_TRUE(run(threads, 0) == want) << threads;
  for (const int page : {1, 48, 320}) EXPECT_TRUE(run(2, page) == want) << page;
}

TEST(AttentionDecode, FaultsAreNamedAndNothingIsWritten) {
  auto message = [](DecodeRun<float>& r) -> std::string {
    ThreadPool pool(1, false);
    const std::vector<double> before = values(r.op.o);
    try {
      check(r.op);
      std::vector<float> scratch(scratch_bytes(cpu_target(1), r.op) / 4 + 1);
      launch(CpuStream{pool}, r.op, Scratch{scratch.data(), scratch.size() * 4});
    } catch (const Error& e) {
      for (const double x : values(r.op.o)) EXPECT_TRUE(std::isnan(x));
      return e.what();
    }
    return "";
  };
  auto expect = [&](const char* want, const DecodeCase& c, const std::function<void(DecodeRun<float>&)>& spoil) {
    DecodeRun<float> r;
    build_decode(c, r);
    spoil(r);
    const std::string got = message(r);
    EXPECT_NE(got.find(cat("attention_decode: ", want)), std::string::npos) << "expected: " << want << "\ngot: " << got;
  };
  const DecodeCase dense_case{.name = "", .spec = dense(2, 1, 256, 2, 2, 16, true), .lengths = {200, 256}, .most_new = 1};
  const DecodeCase paged{.name = "", .spec = dense(1, 1, 256, 2, 2, 16, true), .lengths = {256}, .page_size = 256};
  // An append past the end corrupts neighbours elsewhere; a length past the table reads beyond it.
  expect("lengths[1] = 256 and 1 new tokens, expected at most the capacity of the cache, 256", dense_case, [](auto&) {});
  expect("lengths[0] = 257, expected 0 to 256", paged, [](auto& r) { r.lengths[0] = 257; });
  expect("page_table[0, 0] = 2, expected 0 to 1", paged, [](auto& r) { r.pages[0] = 2; });
  expect("max_k = 200, expected 1 pages of 256", paged, [](auto& r) { r.op.spec.max_k = 200; });
  expect("batch_index given with page_table", paged, [](auto& r) { r.op.batch_index = r.op.lengths; });
  expect("max_k = 200, expected the capacity of k_cache, 256", dense_case, [](auto& r) { r.op.spec.max_k = 200; });
  expect("of k_new and v_new one is missing", dense_case, [](auto& r) { r.op.v_new = {}; });
  expect("dropout = 0.5, expected 0: attention with a cache cannot do it", dense_case, [](auto& r) { r.op.spec.dropout = 0.5f; });
  expect("varlen = true", dense_case, [](auto& r) { r.op.spec.varlen = true; });
  expect("lengths is missing, expected int32 [2]", dense_case, [](auto& r) { r.op.lengths = {}; });
  DecodeCase indexed = dense_case;
  indexed.lengths = {3, 4}, indexed.batch_index = {0, 3};
  expect("batch_index[1] = 4, expected 0 to 3", indexed, [](auto& r) { r.batch_index[1] = 4; });
  DecodeCase turned = dense_case;
  turned.lengths = {3, 200}, turned.rotary_dim = 8;
  expect("rotary_cos has 100 positions, expected at least 201 for sequence 1", turned, [](auto& r) {
    r.op.rotary_cos = r.op.rotary_cos.slice(0, 0, 100);
    r.op.rotary_sin = r.op.rotary_sin.slice(0, 0, 100);
  });
  DecodeCase padded = dense_case;
  padded.lengths = {3, 4}, padded.left_pad = {3, 4};
  expect("left_pad[0] = 5, expected 0 to 4", padded, [](auto& r) { r.left_pad[0] = 5; });
  DecodeRun<float> good;
  build_decode(paged, good);
  EXPECT_EQ(message(good), "");
}

// Faults met elsewhere: split keys that change the result (B1 H16/8 D128, 4096 keys), and decode steps over pages of 256 that were NaN once
// in a hundred (B2, 512 and 1024 keys, H4/2 D64).
TEST(AttentionDecode, ReplayedFaults) {
  if (flashgpt::testing::on_gpu()) GTEST_SKIP() << "the CPU's so far";
  check_decode<Bf16>({.name = "split keys", .spec = dense(1, 1, 4096, 16, 8, 128, true), .lengths = {4096}, .tolerance = 6e-3});
  for (int step = 0; step < 12; ++step)
    check_decode<Bf16>({.name = cat("step ", step),
                        .spec = dense(2, 1, 1280, 4, 2, 64, true),
                        .lengths = {512 + step, 1024 + step},
                        .most_new = 1,
                        .page_size = 256,
                        .tolerance = 6e-3});
}

}  // namespace
}  // namespace flashgpt::attention::testing
