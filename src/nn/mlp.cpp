#include "nn/mlp.h"

namespace flashgpt {

void FusedMLP::forward(Context& ctx, const Linear& up, const Linear& down, const Tensor& x, MlpActs& a, const Tensor& y,
                       Steps steps) const {
  if (steps & kUp) FusedDense::forward(ctx, up, x, a.up);
  if (steps & kAct) run(ctx, BiasAct{.y = a.act, .x = a.up, .bias = up.b, .activation = activation});
  if (steps & kDown) FusedDense::forward(ctx, down, a.act, y, true);
}

void FusedMLP::backward(Context& ctx, const Linear& up, const Linear& down, const Linear& dup, const Linear& ddown, const Tensor& x,
                        const MlpActs& a, const Tensor& dy, const Tensor& dx) const {
  const std::int64_t n = x.dim(0);
  Scope scope(ctx);
  const Tensor d_hidden = ctx.tensor({n, hidden}, x.dtype, MemClass::kWorkspace);
  FusedDense::backward(ctx, down, ddown, a.act, dy, d_hidden, true);
  const Tensor d_up = activation == Activation::kSwiGlu ? ctx.tensor({n, 2 * hidden}, x.dtype, MemClass::kWorkspace) : d_hidden;
  run(ctx, BiasActGrad{.dx = d_up, .dbias = dup.b, .dy = d_hidden, .x = a.up, .bias = up.b, .activation = activation});
  FusedDense::backward(ctx, up, dup, x, d_up, dx);
}

}  // namespace flashgpt
