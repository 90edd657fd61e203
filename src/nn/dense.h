// FusedDense: y = x w^T, with the bias left to the op that reads y (BiasAct, QkvRope) or, where none does, added in place.
#pragma once
#include "core/gemm.h"
#include "nn/params.h"

namespace flashgpt {

struct FusedDense {
  // x [N, in], y [N, out]. add_bias: y += b in a pass of its own.
  static void forward(Context& ctx, const Linear& weights, const Tensor& x, const Tensor& y, bool add_bias = false);
  // dx [N, in] is overwritten (absent: not wanted); dw and, with add_bias, db accumulate.
  static void backward(Context& ctx, const Linear& weights, const Linear& grads, const Tensor& x, const Tensor& dy, const Tensor& dx,
                       bool add_bias = false);
};

}  // namespace flashgpt
