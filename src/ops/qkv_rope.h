// Between the QKV product and attention, in place: adds the bias and turns q and k by rotary position embedding (Su et al., 2021) in the
// half-split
// ("NeoX") form: for pair (j, j + R/2) of the first R = rope_dim elements of a head, angle = position * inv_freq[j],
//   (u, v) -> (u cos - v sin, v cos + u sin).
// A row of qkv is [heads x head_dim of q | kv_heads x head_dim of k | kv_heads x head_dim of v].
#pragma once
#include "core/run.h"

namespace flashgpt {

struct QkvRope {
  Tensor qkv;        // inout [N, (heads + 2 kv_heads) * head_dim]
  Tensor bias;       // in, columns of qkv, or absent
  Tensor positions;  // in int32 [N]; absent: no rotation
  Tensor inv_freq;   // in fp32 [rope_dim / 2]; absent: no rotation
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

  static constexpr const char* kName = "qkv_rope";
  template <class V> void fields(V& v) const {
    v.inout("qkv", qkv);
    v.in("bias", bias);
    v.in("positions", positions);
    v.in("inv_freq", inv_freq);
  }
};

struct QkvRopeGrad {
  Tensor dqkv;   // inout: gradient behind the rotation -> gradient before it
  Tensor dbias;  // inout, accumulates; or absent
  Tensor positions, inv_freq;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

  static constexpr const char* kName = "qkv_rope_grad";
  template <class V> void fields(V& v) const {
    v.inout("dqkv", dqkv);
    v.inout("dbias", dbias);
    v.in("positions", positions);
    v.in("inv_freq", inv_freq);
  }
};

void check(const QkvRope& op);
void check(const QkvRopeGrad& op);
std::size_t scratch_bytes(const Target& target, const QkvRopeGrad& op);
void launch(CpuStream s, const QkvRope& op, Scratch scratch);
void launch(CpuStream s, const QkvRopeGrad& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const QkvRopeGrad& op);
void launch(CudaStream s, const QkvRope& op, Scratch scratch);
void launch(CudaStream s, const QkvRopeGrad& op, Scratch scratch);

}  // namespace flashgpt
