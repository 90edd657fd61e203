// Attention forward on Hopper, the host side: one kernel (forward.cuh).
//
// Full and causal (bottom-right) masks, any lengths, bf16 and fp16, grouped heads, head dims 64, 128, 256.
#pragma once
#include "attention/sm90/forward_config.h"
#include "attention/sm90/rows.h"
#include "core/cuda/kernels.h"

namespace flashgpt::attention::sm90 {

struct ForwardCall {
  Rows q, k, v;          // in
  Rows o;                // out, shape of q
  float* lse = nullptr;  // out, may be absent: [batch][heads][length of q], natural logarithm, -inf where a query sees no key
  float scale = 0;
  bool causal = false;
  Dtype dtype = Dtype::kBF16;
  int warpgroups = 0, keys = 0;  // the tile, for measurements; 0: the one that is best for the head dim
};

// The variant that the call will launch, to compile before.
cuda::KernelKey forward_kernel(const ForwardCall& c);
// Asynchronous, in `stream`, which must be of the current context. Throws Error(kInvalid) where a shape or a stride is wrong. Encodes
// tensor maps and looks the kernel up: the pointers are frozen into a captured graph.
void forward(CUstream stream, const ForwardCall& c);

}  // namespace flashgpt::attention::sm90
