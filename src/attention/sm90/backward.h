// Attention backward on Hopper, the host side. Kernels of a call:
//
//   head dims 64, 128   prepare (backward_rows.cuh), main (backward.cuh), finish (backward_rows.cuh); dQ is summed in fp32 in the workspace
//   head dim 256        prepare, then for each chunk of heads: over keys (backward_wide.cuh), dQ (backward_product.cuh)
//   head dim 128, deterministic or short   the same with backward_stored.cuh
//
// Full and causal (bottom-right) masks, any lengths, bf16 and fp16, grouped heads. The others of AttentionSpec's features are not here.
#pragma once
#include <cstddef>
#include <vector>

#include "attention/sm90/backward_config.h"
#include "attention/sm90/rows.h"
#include "core/cuda/kernels.h"

namespace flashgpt::attention::sm90 {

struct BackwardCall {
  Rows q, k, v, o, dout;       // in
  Rows dq, dk, dv;             // out, overwritten
  const float* lse = nullptr;  // in [batch][heads][length of q], natural logarithm, -inf where a query sees no key
  float scale = 0;
  bool causal = false;
  Dtype dtype = Dtype::kBF16;
  bool deterministic = false;  // the same bits in every run; head dims 128 and 256
  void* workspace = nullptr;   // aligned to 1024
  std::size_t workspace_bytes = 0;
};

// Whether dS goes to the workspace instead of sums of dQ. At head dim 128 also the faster way up to this many keys.
constexpr int kStoreDsUpTo = 1024;
bool stores_ds(const BackwardCall& c);
// Bytes that a call should be given. Where dS is stored, `ds_limit` bytes of it at least one head's; less makes more launches.
constexpr std::size_t kDsLimit = std::size_t{1} << 31;
std::size_t backward_workspace(const BackwardCall& c, std::size_t ds_limit = kDsLimit);
// The variants that the call will launch, to compile before.
std::vector<cuda::KernelKey> backward_kernels(const BackwardCall& c);
// Asynchronous, in `stream`, which must be of the current context. Throws Error(kInvalid) where a shape, a stride or the workspace is
// wrong. Encodes tensor maps and looks kernels up: the pointers are frozen into a captured graph.
void backward(CUstream stream, const BackwardCall& c);

}  // namespace flashgpt::attention::sm90
