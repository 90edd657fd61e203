// The language-model head and its loss, in chunks of rows, so that the logits of more than one chunk never exist:
//   logits = x w^T,  loss_n = logsumexp(logits_n) - logits_n[target_n]  for targets >= 0 (negative: ignored)
// Adds the sum of the losses to scalars.loss_sum. Since the gradient is known as soon as the logits are, the same op can make it:
//   dlogits = (softmax(logits) - onehot(target)) * scalars.inv_targets * scalars.loss_scale,  dx = dlogits w,  dw += dlogits^T x
// With every target ignored the loss is 0 and the gradients are zeros, never NaN.
#pragma once
#include "core/run.h"
#include "core/step_scalars.h"

namespace flashgpt {

struct LinearCrossEntropy {
  Tensor scalars;               // inout, bytes of a StepScalars (uint8 [sizeof(StepScalars)])
  Tensor losses;                // out fp32 [N]: the loss of each row, 0 where ignored; or absent
  Tensor dx;                    // out [N, C]; absent: no gradients
  Tensor dw;                    // inout [V, C], accumulates; with dx
  Tensor x;                     // in [N, C]
  Tensor w;                     // in [V, C]
  Tensor targets;               // in int32 [N]
  std::int64_t chunk_rows = 0;  // 0: chosen by shape

  static constexpr const char* kName = "linear_cross_entropy";
  template <class V> void fields(V& v) const {
    v.inout("scalars", scalars);
    v.out("losses", losses);
    v.out("dx", dx);
    v.inout("dw", dw);
    v.in("x", x);
    v.in("w", w);
    v.in("targets", targets);
  }
  static double flops(const LinearCrossEntropy& op) {
    return (op.dx ? 6.0 : 2.0) * static_cast<double>(op.x.numel()) * static_cast<double>(op.w.dim(0));
  }
};

void check(const LinearCrossEntropy& op);
std::size_t scratch_bytes(const Target& target, const LinearCrossEntropy& op);
void launch(CpuStream s, const LinearCrossEntropy& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const LinearCrossEntropy& op);
void launch(CudaStream s, const LinearCrossEntropy& op, Scratch scratch);

}  // namespace flashgpt
