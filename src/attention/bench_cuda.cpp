// Attention on a GPU in bf16: `tokens` tokens in all, heads x head dim = 2048. A measurement is 8 calls between two events, after 20 ms of
// idling; medians over the rounds.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "attention/bench.h"
#include "attention/mask.h"
#include "core/cuda/api.h"
#include "core/half.h"
#include "core/memory.h"

namespace flashgpt::attention {
namespace {

constexpr Index kTokens = 16384, kWidth = 2048;
constexpr int kCalls = 8;

struct Event {
  CUevent event = nullptr;
  Event() { cuda::check(cuda::driver().cuEventCreate(&event, 0), "event"); }
  ~Event() { cuda::driver().cuEventDestroy_v2(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

template <class Op> double milliseconds(const CudaStream& s, const Op& op, const Memory& scratch) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Scratch memory{scratch.data(), scratch.bytes()};
  const Event first, last;
  launch(s, op, memory);
  cuda::check(cuda::driver().cuEventRecord(first.event, s.stream), "event");
  for (int i = 0; i < kCalls; ++i) launch(s, op, memory);
  cuda::check(cuda::driver().cuEventRecord(last.event, s.stream), "event");
  cuda::check(cuda::driver().cuEventSynchronize(last.event), "attention");
  float ms = 0;
  cuda::check(cuda::driver().cuEventElapsedTime_v2(&ms, first.event, last.event), "event");
  return static_cast<double>(ms) / kCalls;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

Memory random_rows(const CudaStream& s, Device device, std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> d;
  std::vector<Bf16> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = i < 1000003 ? Bf16(d(rng)) : host[i - 1000003];
  Memory m(count * sizeof(Bf16), device);
  cuda::check(cuda::driver().cuMemcpyHtoDAsync_v2(reinterpret_cast<cuda::Address>(m.data()), host.data(), m.bytes(), s.stream), "upload");
  cuda::check(cuda::driver().cuStreamSynchronize(s.stream), "upload");
  return m;
}

}  // namespace

BenchResult bench_cuda(const CudaStream& s, const Target& target, const BenchOptions& options,
                       const std::function<void(const BenchRow&)>& on_row) {
  BenchResult result;
  for (std::int64_t length : options.lengths) {
    const Index batch = std::max<Index>(1, kTokens / length), tokens = batch * length;
    const auto count = static_cast<std::size_t>(tokens * kWidth);
    std::vector<Memory> inputs, outputs;
    for (unsigned seed = 0; seed < 4; ++seed) inputs.push_back(random_rows(s, target.device, count, seed));  // q, k, v, dout
    for (int i = 0; i < 4; ++i) outputs.emplace_back(count * sizeof(Bf16), target.device);                   // o, dq, dk, dv
    const Memory lse(count / 8 * sizeof(float), target.device);                                              // head dims from 8 on
    for (std::int64_t head_dim : options.head_dims) {
      require(head_dim >= 8 && kWidth % head_dim == 0, "bench attention: head_dim = ", head_dim, ", expected a divisor of ", kWidth,
              " from 8 on");
      const Index heads = kWidth / head_dim;
      auto tensor = [&](const Memory& m, Shape shape, Dtype dtype) {
        Tensor t(m.data(), shape, dtype);
        t.device = target.device;
        return t;
      };
      auto rows = [&](const Memory& m) { return tensor(m, {batch, length, heads, head_dim}, Dtype::kBF16); };
      for (bool causal : {false, true}) {
        Forward f;
        f.q = rows(inputs[0]), f.k = rows(inputs[1]), f.v = rows(inputs[2]), f.o = rows(outputs[0]);
        f.lse = tensor(lse, {batch, heads, length}, Dtype::kF32);
        f.spec.batch = batch, f.spec.max_q = f.spec.max_k = length, f.spec.heads = f.spec.kv_heads = heads;
        f.spec.head_dim = f.spec.v_head_dim = head_dim, f.spec.causal = causal, f.spec.dtype = Dtype::kBF16;
        Backward b;
        b.q = f.q, b.k = f.k, b.v = f.v, b.o = f.o, b.lse = f.lse, b.dout = rows(inputs[3]), b.spec = f.spec;
        b.dq = rows(outputs[1]), b.dk = rows(outputs[2]), b.dv = rows(outputs[3]);
        check(f);
        check(b);
        auto measure = [&](const auto& op, bool backward) {
          const std::size_t bytes = cuda_scratch_bytes(target, op);
          const Memory scratch(std::max<std::size_t>(bytes, 16), target.device);
          std::vector<double> times;
          for (int round = 0; round < options.rounds; ++round) times.push_back(milliseconds(s, op, scratch));
          BenchRow row{.implementation = "flashgpt-cuda",
                       .dtype = "bf16",
                       .batch = batch,
                       .heads = heads,
                       .head_dim = head_dim,
                       .seqlen = length,
                       .causal = causal,
                       .backward = backward};
          row.ms = median(times);
          row.tflops = std::decay_t<decltype(op)>::flops(op) / row.ms / 1e9;
          row.extra_bytes = bytes;
          result.rows.push_back(row);
          if (on_row) on_row(row);
        };
        measure(f, false);
        measure(b, true);
      }
    }
  }
  return result;
}

}  // namespace flashgpt::attention
