// Bias and activation behind a linear layer.
//   kNone:     y = x + b
//   kGeluTanh: y = gelu(x + b), gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
//   kGelu:     y = z/2 (1 + erf(z / sqrt 2)), z = x + b
//   kSwiGlu:   x = [gate | up] of 2F columns, y = silu(gate + b_gate) * (up + b_up) of F columns
#pragma once
#include "core/run.h"

namespace flashgpt {

enum class Activation : std::uint8_t { kNone, kGeluTanh, kGelu, kSwiGlu };

struct BiasAct {
  Tensor y;     // out [N, F]; may be x's memory unless SwiGLU
  Tensor x;     // in [N, F], SwiGLU [N, 2F]
  Tensor bias;  // in, columns of x, or absent
  Activation activation = Activation::kNone;

  static constexpr const char* kName = "bias_act";
  template <class V> void fields(V& v) const {
    v.out("y", y);
    v.in("x", x);
    v.in("bias", bias);
  }
};

struct BiasActGrad {
  Tensor dx;     // out, shape of x; may be the memory of x, or of dy unless SwiGLU
  Tensor dbias;  // inout, accumulates; or absent
  Tensor dy;     // in
  Tensor x;      // in; absent for kNone
  Tensor bias;   // in, or absent
  Activation activation = Activation::kNone;

  static constexpr const char* kName = "bias_act_grad";
  template <class V> void fields(V& v) const {
    v.out("dx", dx);
    v.inout("dbias", dbias);
    v.in("dy", dy);
    v.in("x", x);
    v.in("bias", bias);
  }
};

void check(const BiasAct& op);
void check(const BiasActGrad& op);
std::size_t scratch_bytes(const Target& target, const BiasActGrad& op);
void launch(CpuStream s, const BiasAct& op, Scratch scratch);
void launch(CpuStream s, const BiasActGrad& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const BiasActGrad& op);
void launch(CudaStream s, const BiasAct& op, Scratch scratch);
void launch(CudaStream s, const BiasActGrad& op, Scratch scratch);

}  // namespace flashgpt
