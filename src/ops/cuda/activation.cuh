// Bias and activation: one thread an element of the output.
#pragma once
#include "core/tile/types.cuh"
#include "ops/cuda/arguments.h"

namespace flashgpt::ops {

enum class Act : int { kNone, kGeluTanh, kGelu, kSwiGlu };  // the order of Activation

constexpr int kElementThreads = 256;
constexpr float kRootTwoOverPi = 0.7978845608028654f, kRootHalf = 0.7071067811865476f, kInverseRootTwoPi = 0.3989422804014327f;

struct ValueAndSlope {
  float value, slope;
};

// The activation and its derivative at z; for SwiGLU those of the gate.
template <Act A> DEVICE ValueAndSlope activation(float z) {
  if constexpr (A == Act::kGeluTanh) {
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which loses no digits for negative u.
    const float s = 1 / (1 + expf(-2 * kRootTwoOverPi * (z + 0.044715f * z * z * z))), rest = s * (1 - s);
    return {z * s, rest == 0 ? s : s + z * rest * 2 * kRootTwoOverPi * (1 + 3 * 0.044715f * z * z)};
  } else if constexpr (A == Act::kGelu) {
    const float cdf = 0.5f * erfcf(-z * kRootHalf);
    return {z * cdf, cdf + z * expf(-0.5f * z * z) * kInverseRootTwoPi};
  } else if constexpr (A == Act::kSwiGlu) {
    const float s = 1 / (1 + expf(-z));
    return {z * s, s * (1 + z * (1 - s))};
  } else {
    return {z, 1};
  }
}

template <Act A> __global__ void __launch_bounds__(kElementThreads) bias_act(BiasActArguments a) {
  const Int64 i = Int64(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= a.rows * a.columns) return;
  const Int64 n = i / a.columns, c = i % a.columns;
  if constexpr (A == Act::kSwiGlu) {
    const float* x = a.x + n * 2 * a.columns;
    float gate = x[c], up = x[a.columns + c];
    if (a.bias) gate += a.bias[c], up += a.bias[a.columns + c];
    a.y[i] = activation<A>(gate).value * up;
  } else {
    a.y[i] = activation<A>(a.bias ? a.x[i] + a.bias[c] : a.x[i]).value;
  }
}

template <Act A> __global__ void __launch_bounds__(kElementThreads) bias_act_grad(BiasActGradArguments a) {
  const Int64 i = Int64(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= a.rows * a.columns) return;
  const Int64 n = i / a.columns, c = i % a.columns;
  const float dy = a.dy[i];
  if constexpr (A == Act::kSwiGlu) {
    const Int64 at = n * 2 * a.columns + c;
    float gate = a.x[at], up = a.x[at + a.columns];
    if (a.bias) gate += a.bias[c], up += a.bias[a.columns + c];
    const ValueAndSlope act = activation<A>(gate);
    a.dx[at] = dy * act.slope * up;
    a.dx[at + a.columns] = dy * act.value;
  } else if constexpr (A == Act::kNone) {
    a.dx[i] = dy;
  } else {
    a.dx[i] = dy * activation<A>(a.bias ? a.x[i] + a.bias[c] : a.x[i]).slope;
  }
}

}  // namespace flashgpt::ops
