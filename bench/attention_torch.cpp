// The attention of this program as a shared library, so that bench/attention_torch.py can run it between PyTorch's calls, in one process
// and on one queue. Build with -DCMAKE_POSITION_INDEPENDENT_CODE=ON, target bench_attention_torch.
//
// Tensors are [batch, length, heads, head_dim] without gaps, lse [batch, heads, length]. 0, or -1 with the message in attention_error().
#include <string>

#include "attention/attention.h"
#include "core/cuda/gpu.h"

using namespace flashgpt;

struct Problem {
  long long batch, length_q, length_k, heads, kv_heads, head_dim;
  int causal, half, deterministic;
  float dropout;
  int alibi, window_left;
};

namespace {

std::string message;

Tensor gpu(void* data, Shape shape, Dtype dtype) {
  Tensor t(data, shape, dtype);
  t.device = {DeviceKind::kCuda, 0};
  return t;
}

struct Both {
  attention::Forward f;
  attention::Backward b;
};
Both ops(const Problem& p, void* const* tensors) {
  const Dtype dtype = p.half ? Dtype::kF16 : Dtype::kBF16;
  const Shape queries{p.batch, p.length_q, p.heads, p.head_dim}, keys{p.batch, p.length_k, p.kv_heads, p.head_dim};
  Both x;
  AttentionSpec& s = x.f.spec;
  s.batch = p.batch, s.max_q = p.length_q, s.max_k = p.length_k, s.heads = p.heads, s.kv_heads = p.kv_heads;
  s.head_dim = s.v_head_dim = p.head_dim, s.dtype = dtype, s.causal = p.causal != 0, s.deterministic = p.deterministic != 0;
  s.alibi = p.alibi != 0, s.window_left = p.window_left;
  x.f.q = x.b.q = gpu(tensors[0], queries, dtype);
  x.f.k = x.b.k = gpu(tensors[1], keys, dtype);
  x.f.v = x.b.v = gpu(tensors[2], keys, dtype);
  x.f.o = x.b.o = gpu(tensors[3], queries, dtype);
  x.f.lse = x.b.lse = gpu(tensors[4], {p.batch, p.heads, p.length_q}, Dtype::kF32);
  x.b.dout = gpu(tensors[5], queries, dtype);
  x.b.dq = gpu(tensors[6], queries, dtype);
  x.b.dk = gpu(tensors[7], keys, dtype);
  x.b.dv = gpu(tensors[8], keys, dtype);
  x.b.spec = s;
  return x;
}

template <class F> long long guarded(F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    message = e.what();
    return -1;
  }
}

CudaStream queue(void* stream) {
  const Target t = cuda::gpu_target(0);
  return {.stream = static_cast<CUstream_st*>(stream), .capability = t.compute_capability, .multiprocessors = t.multiprocessors};
}

}  // namespace

extern "C" {
const char* attention_error() { return message.c_str(); }

long long attention_scratch(const Problem* p, void* const* tensors, int backward) {
  return guarded([&] {
    const Both x = ops(*p, tensors);
    const Target t = cuda::gpu_target(0);
    return static_cast<long long>(backward ? scratch_for(t, x.b) : scratch_for(t, x.f));
  });
}
long long attention_run(const Problem* p, void* const* tensors, void* stream, void* scratch, long long bytes, int backward) {
  return guarded([&] {
    const Both x = ops(*p, tensors);
    const Scratch memory{scratch, static_cast<std::size_t>(bytes)};
    if (backward) {
      check(x.b);
      launch(queue(stream), x.b, memory);
    } else {
      check(x.f);
      launch(queue(stream), x.f, memory);
    }
    return 0LL;
  });
}
}
