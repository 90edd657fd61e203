#include "nn/dense.h"

#include "ops/bias_act.h"

namespace flashgpt {

void FusedDense::forward(Context& ctx, const Linear& weights, const Tensor& x, const Tensor& y, bool add_bias) {
  run(ctx, Gemm{.c = y, .a = x, .b = weights.w, .trans_b = true});
  if (add_bias && weights.b) run(ctx, BiasAct{.y = y, .x = y, .bias = weights.b});
}

void FusedDense::backward(Context& ctx, const Linear& weights, const Linear& grads, const Tensor& x, const Tensor& dy, const Tensor& dx,
                          bool add_bias) {
  if (add_bias && grads.b) run(ctx, BiasActGrad{.dx = dy, .dbias = grads.b, .dy = dy});
  run(ctx, Gemm{.c = grads.w, .a = dy, .b = x, .trans_a = true, .accumulate = true});
  if (dx) run(ctx, Gemm{.c = dx, .a = dy, .b = weights.w});
}

}  // namespace flashgpt
