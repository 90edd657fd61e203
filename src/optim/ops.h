// The optimizer's ops. Gradients arrive as the sum over all micro-batches, carrying the factor loss_scale; ops multiply them with
// scalars.grad_scale (clipping / loss_scale) and change nothing at all when scalars.skip is set.
#pragma once
#include "core/run.h"
#include "core/step_scalars.h"

namespace flashgpt {

struct SumSquares {  // scalars.norm_sq += sum of g^2, by a fixed tree in double
  Tensor scalars;    // inout
  Tensor g;          // in fp32, contiguous
  static constexpr const char* kName = "sum_squares";
  template <class V> void fields(V& v) const {
    v.inout("scalars", scalars);
    v.in("g", g);
  }
};

// grad_norm = sqrt(norm_sq) / loss_scale; skip = loss_sum or grad_norm not finite; grad_scale = min(1, max_norm / grad_norm) / loss_scale,
// 0 when the step is skipped.
struct FinishNorm {
  Tensor scalars;  // inout
  static constexpr const char* kName = "finish_norm";
  template <class V> void fields(V& v) const { v.inout("scalars", scalars); }
};

// Decoupled weight decay (Loshchilov & Hutter, 2019): m, v moments; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w).
struct AdamW {
  Tensor w, m, v;  // inout fp32, same numel, contiguous
  Tensor g;        // in fp32
  Tensor scalars;  // in
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.0f;
  static constexpr const char* kName = "adamw";
  template <class V> void fields(V& v_) const {
    v_.inout("w", w);
    v_.inout("m", m);
    v_.inout("v", v);
    v_.in("g", g);
    v_.in("scalars", scalars);
  }
};

// Shazeer & Stern, 2018. Matrices [R, C] keep row and column means of g^2, vectors the full second moment; no first moment.
//   beta2_t = 1 - t^-decay_rate (0 at step 1);  u = g / sqrt(v^);  u /= max(1, rms(u) / clip_threshold);
//   relative: lr = max(eps2, rms(w)) * rho_t with rho_t in scalars.learning_rate;  else lr = scalars.learning_rate
//   w -= lr u + lr weight_decay w
struct Adafactor {
  Tensor w;         // inout fp32 [R, C] or [C]
  Tensor row, col;  // inout fp32 [R], [C]; for a vector only col, the full second moment
  Tensor g;         // in fp32
  Tensor scalars;   // in
  float decay_rate = 0.8f, eps1 = 1e-30f, eps2 = 1e-3f, clip_threshold = 1.0f, weight_decay = 0.0f;
  bool relative_step = false;
  static constexpr const char* kName = "adafactor";
  template <class V> void fields(V& v) const {
    v.inout("w", w);
    v.inout("row", row);
    v.inout("col", col);
    v.in("g", g);
    v.in("scalars", scalars);
  }
};

void check(const SumSquares& op);
void check(const FinishNorm& op);
void check(const AdamW& op);
void check(const Adafactor& op);
std::size_t scratch_bytes(const Target& target, const SumSquares& op);
std::size_t scratch_bytes(const Target& target, const Adafactor& op);
void launch(CpuStream s, const SumSquares& op, Scratch scratch);
void launch(CpuStream s, const FinishNorm& op, Scratch scratch);
void launch(CpuStream s, const AdamW& op, Scratch scratch);
void launch(CpuStream s, const Adafactor& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const SumSquares& op);
std::size_t cuda_scratch_bytes(const Target& target, const Adafactor& op);
void launch(CudaStream s, const SumSquares& op, Scratch scratch);
void launch(CudaStream s, const FinishNorm& op, Scratch scratch);
void launch(CudaStream s, const AdamW& op, Scratch scratch);
void launch(CudaStream s, const Adafactor& op, Scratch scratch);

}  // namespace flashgpt
