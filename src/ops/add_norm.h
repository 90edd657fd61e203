// The residual sum and the norm after it, in one pass over memory.
//   sum = x + delta                     (delta absent: sum = x and need not be written)
//   LayerNorm: y = (sum - mean) * rstd * w + b      rstd = 1 / sqrt(var + eps)
//   RMSNorm:   y = sum * rstd * w                   rstd = 1 / sqrt(mean(sum^2) + eps)
#pragma once
#include "core/run.h"

namespace flashgpt {

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };

struct AddNorm {
  Tensor y;           // out [N, C]
  Tensor sum;         // out [N, C]; may be x's memory; absent when delta is absent
  Tensor mean, rstd;  // out fp32 [N]; mean only for LayerNorm
  Tensor x;           // in [N, C]
  Tensor delta;       // in [N, C] or absent
  Tensor w;           // in [C]
  Tensor b;           // in [C] or absent
  NormKind kind = NormKind::kLayerNorm;
  float eps = 1e-5f;

  static constexpr const char* kName = "add_norm";
  template <class V> void fields(V& v) const {
    v.out("y", y);
    v.out("sum", sum);
    v.out("mean", mean);
    v.out("rstd", rstd);
    v.in("x", x);
    v.in("delta", delta);
    v.in("w", w);
    v.in("b", b);
  }
};

// dx, the gradient of the residual stream, accumulates: on entry it holds what flows back past the norm, on exit it is the gradient of both
// x and delta. dw and db accumulate too.
struct AddNormGrad {
  Tensor dx;      // inout [N, C]
  Tensor dw, db;  // inout [C]; db absent when there is no bias
  Tensor dy;      // in [N, C]
  Tensor x;       // in [N, C]: the sum of the forward
  Tensor w, mean, rstd;
  NormKind kind = NormKind::kLayerNorm;

  static constexpr const char* kName = "add_norm_grad";
  template <class V> void fields(V& v) const {
    v.inout("dx", dx);
    v.inout("dw", dw);
    v.inout("db", db);
    v.in("dy", dy);
    v.in("x", x);
    v.in("w", w);
    v.in("mean", mean);
    v.in("rstd", rstd);
  }
};

void check(const AddNorm& op);
void check(const AddNormGrad& op);
std::size_t scratch_bytes(const Target& target, const AddNormGrad& op);
void launch(CpuStream s, const AddNorm& op, Scratch scratch);
void launch(CpuStream s, const AddNormGrad& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const AddNormGrad& op);
void launch(CudaStream s, const AddNorm& op, Scratch scratch);
void launch(CudaStream s, const AddNormGrad& op, Scratch scratch);

}  // namespace flashgpt
