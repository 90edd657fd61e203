// Checks and times the Hopper forward on a GPU, without the rest of the program.
//   bench_attention_forward_cuda check                 against a double-precision reference on the CPU; exit code 1 on any failure
//   bench_attention_forward_cuda time DIMS LENGTHS [WARPGROUPS KEYS] [window | alibi | softcap]
//                                                      TFLOP/s: 16k tokens in all, heads x D = 2048, bf16, random data; FLOPs = 4 b h sq sk
//                                                      d, halved when causal; WARPGROUPS, KEYS: another tile than the chosen one; a window
//                                                      of 1024 keys where causal, FLOPs of the keys that are seen
// Burst: 20 ms idle, then about 40 ms of calls, median. Steady: 2 s of load, then for each cell 50 ms of warm-up and 150 ms measured.
#include <chrono>

#include "attention/sm90/forward.h"
#include "attention_cuda.h"
#include "flashgpt/error.h"

namespace {

using namespace flashgpt;
using namespace flashgpt::attention::sm90;
using namespace flashgpt::bench;

// How scores are made: normal, or rows that break a softmax without a maximum.
enum class Scores { kNormal, kSharp, kRising, kFalling, kJumps, kHuge };
constexpr const char* kScoreNames[] = {"normal", "sharp", "rising", "falling", "jumps", "huge"};

struct Case {
  int batch, heads, kv_heads, sq, sk, d;
  bool causal, half;
  Scores scores = Scores::kNormal;
  int left = -1, right = -1;  // of a window
  float softcap = 0;
  bool alibi = false;
};

// q and k such that q k^T has the wanted course along the keys: one column of q is 1, the same of k holds the course.
void fill_inputs(const Case& c, Twin& q, Twin& k, Twin& v) {
  Random random{0x9E3779B97F4A7C15ull + std::uint64_t(c.sq * 131 + c.sk * 17 + c.d)};
  const float amount = c.scores == Scores::kSharp ? 20.0f : 1.0f;
  for (Twin* t : {&q, &k, &v})
    for (int b = 0; b < t->batch; ++b)
      for (int i = 0; i < t->length; ++i)
        for (int e = 0; e < t->heads * t->columns; ++e) t->at(b, i, 0, e) = encode(random.normal() * (t == &q ? amount : 1), c.half);
  if (c.scores == Scores::kNormal || c.scores == Scores::kSharp) return;
  const float root = std::sqrt(static_cast<float>(c.d));
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h)
      for (int i = 0; i < c.sq; ++i) q.at(b, i, h, 3) = encode(root * (i % 7 == 3 ? -1.0f : 1.0f), c.half);
    for (int h = 0; h < c.kv_heads; ++h)
      for (int j = 0; j < c.sk; ++j) {
        const float at = static_cast<float>(j) / static_cast<float>(c.sk);
        float x = 0;
        if (c.scores == Scores::kRising) x = 400 * at;
        if (c.scores == Scores::kFalling) x = -400 * at;
        if (c.scores == Scores::kJumps) x = j % 97 == 5 ? 250 * at : j % 41 == 7 ? -300 : 0;
        if (c.scores == Scores::kHuge) x = (j % 3 == 0 ? 1.0f : -1.0f) * (c.half ? 6e3f : 5e4f) * at;
        k.at(b, j, h, 3) = encode(x, c.half);
      }
  }
}

struct Reference {
  std::vector<double> o, lse;
};
Reference reference(const Case& c, Twin& q, Twin& k, Twin& v) {
  const int D = c.d, group = c.heads / c.kv_heads;
  const double scale = static_cast<float>(1 / std::sqrt(double(D)));
  Reference r;
  r.o.assign(std::size_t(c.batch) * c.heads * c.sq * D, 0.0);
  r.lse.resize(std::size_t(c.batch) * c.heads * c.sq);
  parallel(c.batch * c.heads, [&](int bh) {
    const int b = bh / c.heads, h = bh % c.heads, kv = h / group;
    std::vector<double> K(std::size_t(c.sk) * D), V(K.size()), p(c.sk), row(D);
    for (int j = 0; j < c.sk; ++j)
      for (int e = 0; e < D; ++e) {
        K[std::size_t(j) * D + e] = decode(k.at(b, j, kv, e), c.half);
        V[std::size_t(j) * D + e] = decode(v.at(b, j, kv, e), c.half);
      }
    for (int i = 0; i < c.sq; ++i) {
      const std::size_t at = std::size_t(bh) * c.sq + i;
      for (int e = 0; e < D; ++e) row[e] = decode(q.at(b, i, h, e), c.half);
      const int own = i + c.sk - c.sq, reach = c.causal ? 0 : c.right;
      const int n = c.causal || reach >= 0 ? std::max(0, std::min(c.sk, own + reach + 1)) : c.sk;
      const int first = c.left >= 0 ? std::max(0, own - c.left) : 0;
      double most = -1e300, sum = 0;
      for (int j = first; j < n; ++j) {
        double s = 0;
        for (int e = 0; e < D; ++e) s += row[e] * K[std::size_t(j) * D + e];
        p[j] = s * scale;
        if (c.softcap > 0) p[j] = c.softcap * std::tanh(p[j] / c.softcap);
        if (c.alibi) p[j] -= std::exp2(-8.0 * (h + 1) / c.heads) * std::abs(j - own);  // heads: a power of two
        most = std::max(most, p[j]);
      }
      for (int j = first; j < n; ++j) sum += p[j] = std::exp(p[j] - most);
      r.lse[at] = n > first ? most + std::log(sum) : -std::numeric_limits<double>::infinity();
      for (int j = first; j < n; ++j)
        for (int e = 0; e < D; ++e) r.o[at * D + e] += p[j] / sum * V[std::size_t(j) * D + e];
    }
  });
  return r;
}

bool check_case(CUstream stream, const Case& c) {
  Twin q(c.batch, c.sq, c.heads, c.d, 64), o(c.batch, c.sq, c.heads, c.d, 8), k(c.batch, c.sk, c.kv_heads, c.d, 64),
      v(c.batch, c.sk, c.kv_heads, c.d, 8);
  fill_inputs(c, q, k, v);
  const Reference want = reference(c, q, k, v);
  for (Twin* t : {&q, &k, &v, &o}) t->device.upload(t->host.data(), t->host.size(), stream);
  std::vector<float> lse(want.lse.size(), 7.0f);
  DeviceArray<float> device_lse(lse.size());
  ForwardCall call{.q = q.rows(), .k = k.rows(), .v = v.rows(), .o = o.rows(), .lse = device_lse.data};
  call.lse_sequence = 1ll * c.heads * c.sq;
  call.lse_head = c.sq;
  call.scale = static_cast<float>(1 / std::sqrt(double(c.d)));
  call.causal = c.causal;
  call.window_left = c.left;
  call.window_right = c.right;
  call.softcap = c.softcap;
  call.alibi = c.alibi;
  call.total_heads = c.heads;
  call.dtype = c.half ? Dtype::kF16 : Dtype::kBF16;
  bool whole = true, same = true;
  std::vector<std::uint16_t> before;
  for (int run = 0; run < 3; ++run) {
    device_lse.upload(lse.data(), lse.size(), stream);
    forward(stream, call);
    o.device.download(o.host.data(), o.host.size(), stream);
    whole &= o.poison_is_whole();
    same &= run == 0 || before == o.host;
    before = o.host;
  }
  device_lse.download(lse.data(), lse.size(), stream);
  const double far = difference(o, want.o, c.half);
  double lse_far = 0;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const double w = want.lse[i], d = std::isinf(w) ? (lse[i] == w ? 0 : 1e9) : std::abs(lse[i] - w) / std::max(1.0, std::abs(w));
    lse_far = std::isnan(d) ? 1e9 : std::max(lse_far, d);
  }
  // Steep scores: fp32 sums of products of that size decide near ties.
  const bool steep = c.scores != Scores::kNormal && c.scores != Scores::kSharp;
  const bool ok = far < (steep ? 2e-2 : c.half ? 1e-3 : 6e-3) && lse_far < 2e-5 && whole && same;
  std::printf("%s b%d h%d/%d sq%d sk%d d%d %s window %d %d cap %g%s %s %s: o %.1e lse %.1e%s%s\n", ok ? "ok  " : "FAIL", c.batch, c.heads,
              c.kv_heads, c.sq, c.sk, c.d, c.causal ? "causal" : "full", c.left, c.right, double(c.softcap), c.alibi ? " alibi" : "",
              c.half ? "fp16" : "bf16", kScoreNames[int(c.scores)], far, lse_far, whole ? "" : " wrote outside",
              same ? "" : " DIFFERS BETWEEN RUNS");
  std::fflush(stdout);
  return ok;
}

int check_all(CUstream stream) {
  int failures = 0, cases = 0;
  for (int d : {64, 96, 128, 192, 256, 40}) {
    std::vector<Case> list;
    for (auto [left, right] : {std::pair{100, 0}, {300, 150}, {0, 0}, {-1, 77}, {513, -1}})
      for (auto [sq, sk] : {std::pair{1000, 1000}, {300, 1300}, {900, 250}, {1, 77}})
        list.push_back({1, 4, 2, sq, sk, d, false, left == 300, Scores::kNormal, left, right});
    for (bool causal : {false, true})
      for (auto [softcap, alibi, left] : {std::tuple{0.0f, true, -1}, {20.0f, false, -1}, {20.0f, true, 400}})
        for (bool half : {false, true})
          list.push_back({2, 4, 2, 700, 900, d, causal, half, softcap > 0 ? Scores::kSharp : Scores::kNormal, left, -1, softcap, alibi});
    for (Scores s : {Scores::kRising, Scores::kFalling, Scores::kJumps, Scores::kHuge})
      list.push_back({1, 4, 2, 700, 1100, d, true, false, s, 600, -1, 0, true});
    for (bool causal : {false, true}) {
      for (auto [sq, sk] : {std::pair{64, 64},
                            {128, 256},
                            {192, 80},
                            {1, 1},
                            {1, 77},
                            {77, 1},
                            {127, 129},
                            {200, 333},
                            {333, 200},
                            {1000, 1000},
                            {129, 1023},
                            {1300, 300}})
        list.push_back({2, 4, sq % 2 ? 2 : 4, sq, sk, d, causal, sq % 3 == 0});
      list.push_back({17, 8, 8, 512, 512, d, causal, false});
      for (Scores s : {Scores::kSharp, Scores::kRising, Scores::kFalling, Scores::kJumps, Scores::kHuge})
        for (bool half : {false, true}) list.push_back({1, 4, 2, 700, 1100, d, causal, half, s});
    }
    for (const Case& c : list) {
      failures += !check_case(stream, c);
      ++cases;
    }
  }
  std::printf("cases: %d failures: %d\n", cases, failures);
  return failures != 0;
}

struct Cell {
  int d, heads, kv_heads, length;
  bool causal;
  double burst = 0, steady = 0;
};

int time_all(CUstream stream, const std::vector<int>& dims, const std::vector<int>& lengths, int warpgroups, int keys,
             const std::string& feature) {
  constexpr int kWindow = 1024, kTokens = 16384, kWidth = 4096;  // room for 32 heads of 128
  const std::size_t n = std::size_t(kTokens) * kWidth;
  std::vector<std::uint16_t> random(n);
  std::vector<std::unique_ptr<DeviceArray<std::uint16_t>>> tensors;
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(std::make_unique<DeviceArray<std::uint16_t>>(n));
    if (i > 2) continue;  // q, k, v
    parallel(64, [&](int part) {
      Random r{std::uint64_t(i * 64 + part + 1) * 0x9E3779B97F4A7C15ull};
      for (std::size_t j = part * n / 64; j < (part + 1) * n / 64; ++j) random[j] = encode(r.normal(), false);
    });
    tensors[i]->upload(random.data(), n, stream);
  }
  DeviceArray<float> lse(std::size_t(kTokens) * 64);
  const auto call_of = [&](const Cell& c) {
    const int batch = kTokens / c.length;
    const auto rows = [&](int i, int heads) {
      return Rows{tensors[i]->data, batch, c.length, heads, c.d, {1ll * c.length * heads * c.d, heads * c.d, c.d}};
    };
    ForwardCall call{.q = rows(0, c.heads), .k = rows(1, c.kv_heads), .v = rows(2, c.kv_heads), .o = rows(3, c.heads), .lse = lse.data};
    call.lse_sequence = 1ll * c.heads * c.length;
    call.lse_head = c.length;
    call.scale = static_cast<float>(1 / std::sqrt(double(c.d)));
    call.causal = c.causal;
    call.window_left = feature == "window" && c.causal ? kWindow : -1;
    call.softcap = feature == "softcap" ? 30 : 0;
    call.alibi = feature == "alibi";
    call.total_heads = c.heads;
    call.warpgroups = warpgroups;
    call.keys = keys;
    return call;
  };
  const auto flops = [&](const Cell& c) {
    const double n = c.length, seen = feature == "window" && c.causal && n > kWindow ? 1 - (1 - kWindow / n) * (1 - kWindow / n) : 1;
    return 4.0 * kTokens * c.heads * n * c.d * (c.causal ? 0.5 : 1) * seen;
  };
  std::vector<CUevent> events(202);
  for (CUevent& e : events) cuda::check(gpu().cuEventCreate(&e, 0), "event");
  const auto record = [&](int i) { cuda::check(gpu().cuEventRecord(events[i], stream), "event"); };
  const auto elapsed = [&](int from, int to) {
    float ms = 0;
    cuda::check(gpu().cuEventElapsedTime_v2(&ms, events[from], events[to]), "event");
    return double(ms);
  };
  std::vector<Cell> cells;
  for (int d : dims)
    for (bool causal : {false, true})
      for (int length : lengths) {
        cells.push_back({d, 2048 / d, 2048 / d, length, causal});
        if (d == 128 && length >= 4096) cells.push_back({d, 32, 8, length, causal});
      }
  for (Cell& c : cells) {
    const ForwardCall call = call_of(c);
    forward(stream, call);
    sync(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    forward(stream, call);
    record(0);
    forward(stream, call);
    record(1);
    sync(stream);
    const int calls = std::clamp(int(40 / elapsed(0, 1)), 3, 200);
    for (int i = 0; i < calls; ++i) {
      record(i);
      forward(stream, call);
    }
    record(calls);
    sync(stream);
    std::vector<double> ms;
    for (int i = 0; i < calls; ++i) ms.push_back(elapsed(i, i + 1));
    std::sort(ms.begin(), ms.end());
    c.burst = flops(c) / ms[calls / 2] * 1e-9;
  }
  const auto calls_in = [&](const Cell& c, double ms) { return std::max(3, int(ms / (flops(c) / c.burst * 1e-9))); };
  for (int i = calls_in(cells.back(), 2000); i > 0; --i) forward(stream, call_of(cells.back()));
  for (Cell& c : cells) {
    const ForwardCall call = call_of(c);
    const int calls = calls_in(c, 150);
    for (int i = 0; i < calls / 3; ++i) forward(stream, call);
    record(0);
    for (int i = 0; i < calls; ++i) forward(stream, call);
    record(1);
    sync(stream);
    c.steady = flops(c) * calls / elapsed(0, 1) * 1e-9;
  }
  for (const Cell& c : cells)
    std::printf("flashgpt d%d h%d/%d %s%s s%d: burst %.1f steady %.1f\n", c.d, c.heads, c.kv_heads, c.causal ? "causal" : "full",
                feature.empty() ? "" : (" " + feature).c_str(), c.length, c.burst, c.steady);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CUstream stream = first_stream();
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "check") return check_all(stream);
  if (mode == "time" && argc >= 4 && argc <= 7)
    return time_all(stream, numbers(argv[2]), numbers(argv[3]), argc > 5 ? std::stoi(argv[4]) : 0, argc > 5 ? std::stoi(argv[5]) : 0,
                    argc % 2 == 1 ? argv[argc - 1] : "");
  std::fprintf(stderr, "usage: %s check | time DIMS LENGTHS [WARPGROUPS KEYS] [window | alibi | softcap]\n", argv[0]);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
