// Checks and times the Hopper backward on a GPU, without the rest of the program.
//   bench_attention_backward_cuda check            against a double-precision reference on the CPU; exit code 1 on any failure
//   bench_attention_backward_cuda time DIMS LENGTHS [deterministic]
//                                                  TFLOP/s of the whole call: 16k tokens in all, heads x D = 2048, bf16, random data;
//                                                  FLOPs = 10 b h sq sk d, halved when causal
// Burst: 20 ms idle, then about 40 ms of calls, median. Steady: 2 s of load, then for each cell 50 ms of warm-up and 150 ms measured.
#include <chrono>

#include "attention/sm90/backward.h"
#include "attention_cuda.h"
#include "flashgpt/error.h"

namespace {

using namespace flashgpt;
using namespace flashgpt::attention::sm90;
using namespace flashgpt::bench;

struct Case {
  int batch, heads, kv_heads, sq, sk, d;
  bool causal, half;
  float scores;  // q is this much larger than normal
  bool deterministic = false;
};
struct Reference {
  std::vector<double> dq, dk, dv;
  std::vector<float> lse;
};

// Fills o and lse as the forward would, and the gradients in double precision.
Reference reference(const Case& c, Twin& q, Twin& k, Twin& v, Twin& o, Twin& g) {
  const int D = c.d, group = c.heads / c.kv_heads;
  const double scale = 1 / std::sqrt(double(D));
  Reference r;
  r.dq.assign(std::size_t(c.batch) * c.heads * c.sq * D, 0.0);
  r.dk.assign(std::size_t(c.batch) * c.kv_heads * c.sk * D, 0.0);
  r.dv = r.dk;
  r.lse.resize(std::size_t(c.batch) * c.heads * c.sq);
  parallel(c.batch * c.kv_heads, [&](int bh) {
    const int b = bh / c.kv_heads, kv = bh % c.kv_heads;
    std::vector<double> K(std::size_t(c.sk) * D), V(K.size()), p(c.sk), dp(c.sk), qq(D), gg(D), oo(D);
    for (int j = 0; j < c.sk; ++j)
      for (int e = 0; e < D; ++e) {
        K[std::size_t(j) * D + e] = decode(k.at(b, j, kv, e), c.half);
        V[std::size_t(j) * D + e] = decode(v.at(b, j, kv, e), c.half);
      }
    double *dk = &r.dk[std::size_t(bh) * c.sk * D], *dv = &r.dv[std::size_t(bh) * c.sk * D];
    for (int h = kv * group; h < (kv + 1) * group; ++h)
      for (int i = 0; i < c.sq; ++i) {
        const std::size_t row = (std::size_t(b) * c.heads + h) * c.sq + i;
        for (int e = 0; e < D; ++e) {
          qq[e] = decode(q.at(b, i, h, e), c.half);
          gg[e] = decode(g.at(b, i, h, e), c.half);
          oo[e] = 0;
        }
        const int n = c.causal ? std::max(0, std::min(c.sk, i + c.sk - c.sq + 1)) : c.sk;
        double most = -1e300, sum = 0, delta = 0;
        for (int j = 0; j < n; ++j) {
          double s = 0, t = 0;
          for (int e = 0; e < D; ++e) {
            s += qq[e] * K[std::size_t(j) * D + e];
            t += gg[e] * V[std::size_t(j) * D + e];
          }
          p[j] = s * scale;
          dp[j] = t;
          most = std::max(most, p[j]);
        }
        for (int j = 0; j < n; ++j) sum += std::exp(p[j] - most);
        r.lse[row] = n ? static_cast<float>(most + std::log(sum)) : -std::numeric_limits<float>::infinity();
        for (int j = 0; j < n; ++j) {
          p[j] = std::exp(p[j] - most) / sum;
          delta += p[j] * dp[j];
          for (int e = 0; e < D; ++e) oo[e] += p[j] * V[std::size_t(j) * D + e];
        }
        for (int e = 0; e < D; ++e) o.at(b, i, h, e) = encode(static_cast<float>(oo[e]), c.half);
        for (int j = 0; j < n; ++j) {
          const double ds = p[j] * (dp[j] - delta) * scale;
          for (int e = 0; e < D; ++e) {
            r.dq[row * D + e] += ds * K[std::size_t(j) * D + e];
            dk[std::size_t(j) * D + e] += ds * qq[e];
            dv[std::size_t(j) * D + e] += p[j] * gg[e];
          }
        }
      }
  });
  return r;
}

bool check_case(CUstream stream, const Case& c) {
  Twin q(c.batch, c.sq, c.heads, c.d, 64), o(c.batch, c.sq, c.heads, c.d, 16), g(c.batch, c.sq, c.heads, c.d, 8),
      dq(c.batch, c.sq, c.heads, c.d, 8), k(c.batch, c.sk, c.kv_heads, c.d, 64), v(c.batch, c.sk, c.kv_heads, c.d, 8),
      dk(c.batch, c.sk, c.kv_heads, c.d, 8), dv(c.batch, c.sk, c.kv_heads, c.d, 64);
  Random random{0x9E3779B97F4A7C15ull + std::uint64_t(c.sq * 131 + c.sk * 17 + c.d)};
  for (Twin* t : {&q, &k, &v, &g})
    for (int b = 0; b < t->batch; ++b)
      for (int i = 0; i < t->length; ++i)
        for (int e = 0; e < t->heads * t->columns; ++e) t->at(b, i, 0, e) = encode(random.normal() * (t == &q ? c.scores : 1), c.half);
  const Reference want = reference(c, q, k, v, o, g);
  for (Twin* t : {&q, &k, &v, &o, &g, &dq, &dk, &dv}) t->device.upload(t->host.data(), t->host.size(), stream);
  DeviceArray<float> lse(want.lse.size());
  lse.upload(want.lse.data(), want.lse.size(), stream);
  BackwardCall call{
      .q = q.rows(), .k = k.rows(), .v = v.rows(), .o = o.rows(), .dout = g.rows(), .dq = dq.rows(), .dk = dk.rows(), .dv = dv.rows()};
  call.lse = lse.data;
  call.scale = static_cast<float>(1 / std::sqrt(double(c.d)));
  call.causal = c.causal;
  call.dtype = c.half ? Dtype::kF16 : Dtype::kBF16;
  call.deterministic = c.deterministic;
  call.workspace_bytes = backward_workspace(call, c.sq % 2 ? 1 : kDsLimit);  // odd: as many launches as possible
  DeviceArray<char> workspace(call.workspace_bytes);
  call.workspace = workspace.data;
  cuda::check(gpu().cuMemsetD8Async(address(call.workspace), 0xff, call.workspace_bytes, stream), "poison");
  double worst = 0, each[3] = {};
  bool whole = true, same = true;
  std::vector<std::uint16_t> before[3];
  for (int run = 0; run < 2; ++run) {
    backward(stream, call);
    int i = 0;
    for (auto [t, w] : {std::pair{&dq, &want.dq}, {&dk, &want.dk}, {&dv, &want.dv}}) {
      t->device.download(t->host.data(), t->host.size(), stream);
      each[i] = difference(*t, *w, c.half);
      worst = std::max(worst, each[i]);
      whole &= t->poison_is_whole();
      same &= run == 0 || before[i] == t->host;
      before[i++] = t->host;
    }
  }
  const bool must_be_same = c.deterministic || stores_ds(call);
  const bool ok = worst < (c.half ? 2e-3 : 1.2e-2) && whole && (same || !must_be_same);
  std::printf("%s b%d h%d/%d sq%d sk%d d%d %s %s x%g%s: dq %.1e dk %.1e dv %.1e%s%s\n", ok ? "ok  " : "FAIL", c.batch, c.heads, c.kv_heads,
              c.sq, c.sk, c.d, c.causal ? "causal" : "full", c.half ? "fp16" : "bf16", double(c.scores),
              c.deterministic ? " deterministic" : "", each[0], each[1], each[2], whole ? "" : " wrote outside",
              same ? ", same bits twice" : "");
  std::fflush(stdout);
  return ok;
}

int check_all(CUstream stream) {
  int failures = 0;
  for (int d : {64, 128, 256})
    for (bool deterministic : {false, true}) {
      if (deterministic && d != 128) continue;
      for (const Case& c : {Case{1, 1, 1, 64, 64, d, false, false, 1}, Case{1, 1, 1, 128, 256, d, false, false, 1},
                            Case{2, 2, 2, 256, 256, d, true, false, 1}, Case{1, 4, 2, 384, 384, d, true, true, 1},
                            Case{2, 4, 1, 200, 333, d, true, false, 1}, Case{1, 4, 2, 333, 200, d, true, false, 1},
                            Case{1, 2, 2, 333, 200, d, false, true, 1}, Case{1, 2, 1, 1, 77, d, true, false, 1},
                            Case{1, 2, 1, 77, 1, d, true, false, 1}, Case{1, 2, 1, 77, 1, d, false, false, 1},
                            Case{1, 2, 2, 1000, 1000, d, true, false, 20}, Case{1, 2, 2, 1000, 1000, d, false, true, 20},
                            Case{3, 3, 3, 129, 1023, d, true, false, 1}, Case{1, 8, 8, 1024, 1024, d, true, false, 1},
                            Case{5, 8, 8, 512, 512, d, false, false, 1}, Case{1, 4, 2, 300, 1300, d, true, false, 1},
                            Case{1, 2, 2, 1300, 1100, d, true, true, 1}, Case{2, 8, 4, 320, 1088, d, false, false, 1}}) {
        Case with = c;
        with.deterministic = deterministic;
        failures += !check_case(stream, with);
      }
    }
  std::printf("failures: %d\n", failures);
  return failures != 0;
}

struct Cell {
  int d, heads, kv_heads, length;
  bool causal, deterministic;
  double burst = 0, steady = 0;
};

int time_all(CUstream stream, const std::vector<int>& dims, const std::vector<int>& lengths, bool deterministic) {
  constexpr int kTokens = 16384, kWidth = 4096;  // room for 32 heads of 128
  const std::size_t n = std::size_t(kTokens) * kWidth;
  std::vector<std::uint16_t> random(n);
  std::vector<std::unique_ptr<DeviceArray<std::uint16_t>>> tensors;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(std::make_unique<DeviceArray<std::uint16_t>>(n));
    if (i > 4) continue;  // q, k, v, o, dout
    parallel(64, [&](int part) {
      Random r{std::uint64_t(i * 64 + part + 1) * 0x9E3779B97F4A7C15ull};
      for (std::size_t j = part * n / 64; j < (part + 1) * n / 64; ++j) random[j] = encode(r.normal() * (i == 3 ? 0.1f : 1.0f), false);
    });
    tensors[i]->upload(random.data(), n, stream);
  }
  std::vector<float> lse(std::size_t(kTokens) * 64);
  DeviceArray<float> device_lse(lse.size());
  const std::size_t room = std::size_t(6) << 30;
  DeviceArray<char> workspace(room);
  const auto call_of = [&](const Cell& c) {
    const int batch = kTokens / c.length;
    const auto rows = [&](int i, int heads) {
      return Rows{tensors[i]->data, batch, c.length, heads, c.d, {1ll * c.length * heads * c.d, heads * c.d, c.d}};
    };
    BackwardCall call{.q = rows(0, c.heads),
                      .k = rows(1, c.kv_heads),
                      .v = rows(2, c.kv_heads),
                      .o = rows(3, c.heads),
                      .dout = rows(4, c.heads),
                      .dq = rows(5, c.heads),
                      .dk = rows(6, c.kv_heads),
                      .dv = rows(7, c.kv_heads)};
    call.lse = device_lse.data;
    call.scale = static_cast<float>(1 / std::sqrt(double(c.d)));
    call.causal = c.causal;
    call.deterministic = c.deterministic;
    call.workspace = workspace.data;
    call.workspace_bytes = backward_workspace(call);
    require(call.workspace_bytes <= room, "workspace of ", call.workspace_bytes, " bytes");
    return call;
  };
  const auto flops = [&](const Cell& c) { return 10.0 * kTokens * c.heads * c.length * c.d * (c.causal ? 0.5 : 1); };
  // Scores of normal q, k have variance 1: this is the lse to expect.
  const auto set_lse = [&](const Cell& c) {
    const std::size_t count = std::size_t(kTokens) * c.heads;
    for (std::size_t i = 0; i < count; ++i) lse[i] = std::log(c.causal ? float(i % c.length) + 1 : float(c.length)) + 0.5f;
    device_lse.upload(lse.data(), count, stream);
  };
  std::vector<CUevent> events(130);
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
        cells.push_back({d, 2048 / d, 2048 / d, length, causal, deterministic});
        if (d == 128 && length >= 4096) cells.push_back({d, 32, 8, length, causal, deterministic});
      }
  for (Cell& c : cells) {
    set_lse(c);
    const BackwardCall call = call_of(c);
    backward(stream, call);
    sync(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    backward(stream, call);
    record(0);
    backward(stream, call);
    record(1);
    sync(stream);
    const int calls = std::clamp(int(40 / elapsed(0, 1)), 3, 120);
    for (int i = 0; i < calls; ++i) {
      record(i);
      backward(stream, call);
    }
    record(calls);
    sync(stream);
    std::vector<double> ms;
    for (int i = 0; i < calls; ++i) ms.push_back(elapsed(i, i + 1));
    std::sort(ms.begin(), ms.end());
    c.burst = flops(c) / ms[calls / 2] * 1e-9;
  }
  const auto calls_in = [&](const Cell& c, double ms) { return std::max(3, int(ms / (flops(c) / c.burst * 1e-9))); };
  for (int i = calls_in(cells.back(), 2000); i > 0; --i) backward(stream, call_of(cells.back()));
  for (Cell& c : cells) {
    const BackwardCall call = call_of(c);
    const int calls = calls_in(c, 150);
    for (int i = 0; i < calls / 3; ++i) backward(stream, call);
    record(0);
    for (int i = 0; i < calls; ++i) backward(stream, call);
    record(1);
    sync(stream);
    c.steady = flops(c) * calls / elapsed(0, 1) * 1e-9;
  }
  for (const Cell& c : cells)
    std::printf("flashgpt d%d h%d/%d %s s%d%s: burst %.1f steady %.1f\n", c.d, c.heads, c.kv_heads, c.causal ? "causal" : "full", c.length,
                c.deterministic ? " deterministic" : "", c.burst, c.steady);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CUstream stream = first_stream();
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "check") return check_all(stream);
  if (mode == "time" && argc > 3) return time_all(stream, numbers(argv[2]), numbers(argv[3]), argc > 4);
  std::fprintf(stderr, "usage: %s check | time DIMS LENGTHS [deterministic]\n", argv[0]);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
