// The attention ops. Shapes, masks and lengths: flashgpt/attention.h.
//
// Lengths are device data: varlen reads cu_seqlens_q/k [batch + 1] int32 (unused sequences repeat the last value and are empty; tokens past
// the last one get o = 0, lse = -inf and zero gradients); dense may read seqused_q/k [batch] int32, the first tokens of each row that
// count.
#pragma once
#include "core/run.h"
#include "flashgpt/attention.h"

namespace flashgpt::attention {

enum class Implementation : std::uint8_t { kAuto, kReference, kStandard, kFlash };

struct Forward {
  Tensor o;    // out [batch, max_q, heads, v_head_dim] or [total_q, heads, v_head_dim]
  Tensor lse;  // out, optional, fp32 [batch, heads, max_q] or [heads, total_q]: natural log of the sum of exp(score); -inf where no key is
               // seen
  Tensor q, k, v;
  Tensor cu_seqlens_q, cu_seqlens_k;
  Tensor seqused_q, seqused_k;
  Tensor alibi_slopes;  // fp32 [heads] or [batch, heads]; absent with spec.alibi: those of alibi_slopes() below
                        // (of total_heads instead of heads: this rank's begin at head_offset)
  AttentionSpec spec;
  Implementation implementation = Implementation::kAuto;

  static constexpr const char* kName = "attention_forward";
  template <class V> void fields(V& v_) const {
    v_.out("o", o);
    v_.out("lse", lse);
    v_.in("q", q);
    v_.in("k", k);
    v_.in("v", v);
    v_.in("cu_seqlens_q", cu_seqlens_q);
    v_.in("cu_seqlens_k", cu_seqlens_k);
    v_.in("seqused_q", seqused_q);
    v_.in("seqused_k", seqused_k);
    v_.in("alibi_slopes", alibi_slopes);
  }
  static double flops(const Forward& op);  // of the dense rectangle or triangle: capacities, not lengths
};

// dq, dk, dv are overwritten. P is rebuilt from lse; delta = rowsum(do * o).
struct Backward {
  Tensor dq, dk, dv;  // out, shapes of q, k, v
  Tensor dout, q, k, v, o, lse;
  Tensor dlse;  // optional fp32, shape of lse: the gradient that flows into lse
  Tensor cu_seqlens_q, cu_seqlens_k;
  Tensor seqused_q, seqused_k;
  Tensor alibi_slopes;
  AttentionSpec spec;
  Implementation implementation = Implementation::kAuto;

  static constexpr const char* kName = "attention_backward";
  template <class V> void fields(V& v_) const {
    v_.out("dq", dq);
    v_.out("dk", dk);
    v_.out("dv", dv);
    v_.in("dout", dout);
    v_.in("q", q);
    v_.in("k", k);
    v_.in("v", v);
    v_.in("o", o);
    v_.in("lse", lse);
    v_.in("dlse", dlse);
    v_.in("cu_seqlens_q", cu_seqlens_q);
    v_.in("cu_seqlens_k", cu_seqlens_k);
    v_.in("seqused_q", seqused_q);
    v_.in("seqused_k", seqused_k);
    v_.in("alibi_slopes", alibi_slopes);
  }
  static double flops(const Backward& op);
};

void check(const Forward& op);
void check(const Backward& op);
std::size_t scratch_bytes(const Target& target, const Forward& op);
std::size_t scratch_bytes(const Target& target, const Backward& op);
void launch(CpuStream s, const Forward& op, Scratch scratch);
void launch(CpuStream s, const Backward& op, Scratch scratch);
std::size_t cuda_scratch_bytes(const Target& target, const Forward& op);
std::size_t cuda_scratch_bytes(const Target& target, const Backward& op);
void launch(CudaStream s, const Forward& op, Scratch scratch);  // fp32 (attention/cuda/simt.cuh)
void launch(CudaStream s, const Backward& op, Scratch scratch);

// ALiBi's slopes for a number of heads, as in the paper (Press et al., 2022): 2^(-8 i / n) for a power of two n, else interleaved.
void alibi_slopes(std::int64_t heads, float* slopes);

}  // namespace flashgpt::attention
