// FusedMLP: y = act(x w_up^T + b_up) w_down^T + b_down. checkpoint_lvl, as in flash-attn's FusedMLP: 0 keeps the hidden layer before and
// after the activation, 1 keeps it before, 2 keeps neither; what is not kept, the caller computes again with forward(steps).
#pragma once
#include "nn/dense.h"
#include "nn/steps.h"
#include "ops/bias_act.h"

namespace flashgpt {

struct MlpActs {
  Tensor up;   // [N, F], SwiGLU [N, 2F]: before bias and activation
  Tensor act;  // [N, F]
};

struct FusedMLP {
  std::int64_t width = 0;   // C
  std::int64_t hidden = 0;  // F
  Activation activation = Activation::kGeluTanh;

  std::int64_t up_columns() const { return activation == Activation::kSwiGlu ? 2 * hidden : hidden; }
  static constexpr Steps recomputed(int checkpoint_lvl) { return checkpoint_lvl >= 2 ? kUp | kAct : checkpoint_lvl == 1 ? kAct : 0u; }

  // x [N, C], y [N, C]. Of kUp, kAct and kDown, the steps given.
  void forward(Context& ctx, const Linear& up, const Linear& down, const Tensor& x, MlpActs& a, const Tensor& y,
               Steps steps = kAllSteps) const;
  // dx is overwritten; gradients of parameters accumulate. dy is left as it is.
  void backward(Context& ctx, const Linear& up, const Linear& down, const Linear& dup, const Linear& ddown, const Tensor& x,
                const MlpActs& a, const Tensor& dy, const Tensor& dx) const;
};

}  // namespace flashgpt
