// The attention ops. Shapes, masks and lengths: flashgpt/attention.h.
//
// Lengths are device data: varlen reads cu_seqlens_q/k [batch + 1] int32 (unused sequences repeat the last value and are empty; tokens past
// the last one get o = 0, lse = -inf and zero gradients); dense may read seqused_q/k [batch] int32, the first tokens of each row that
// count.
#pragma once
#include "core/run.h"
#include "flashgpt/attention.h"

namespace flashgpt::attention {

// Which blocks are seen (spec.block_mask), by block of rows: for queries, block r of head h in sequence b sees the blocks of keys
// full_index[b, h, r, 0 .. full_count[b, h, r]) whole and those of partial_index as far as the mask allows. Numbers rise in each list, and
// no block is in both. int32; the first two sizes may be 1: the same for all sequences, all heads. attention/blocks.h makes the usual ones.
struct BlockLists {
  Tensor full_count, partial_count;  // [batch or 1, heads or 1, blocks of rows]
  Tensor full_index, partial_index;  // [batch or 1, heads or 1, blocks of rows, most]

  explicit operator bool() const { return full_count.rank() > 0 || partial_count.rank() > 0; }
  template <class V> void fields(V& v_) const {
    v_.in("full_count", full_count);
    v_.in("full_index", full_index);
    v_.in("partial_count", partial_count);
    v_.in("partial_index", partial_index);
  }
};

enum class Implementation : std::uint8_t { kAuto, kReference, kStandard, kFlash };

struct Forward {
  Tensor o;    // out [batch, max_q, heads, v_head_dim] or [total_q, heads, v_head_dim]
  Tensor lse;  // out, optional, fp32 [batch, heads, max_q] or [heads, total_q]: natural log of the sum of exp(score); -inf where no key is
               // seen
  Tensor q, k, v;
  Tensor cu_seqlens_q, cu_seqlens_k;
  Tensor seqused_q, seqused_k;
  Tensor alibi_slopes;   // fp32 [heads] or [batch, heads]; absent with spec.alibi: those of alibi_slopes() below
                         // (of total_heads instead of heads: this rank's begin at head_offset)
  Tensor sink;           // with spec.sink: fp32 [heads]
  Tensor dropout_state;  // with spec.dropout: int64 [2], seed and offset
  BlockLists blocks;     // with spec.block_mask: by block of queries
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
    v_.in("sink", sink);
    v_.in("dropout_state", dropout_state);
    blocks.fields(v_);
  }
  static double flops(const Forward& op);  // of the dense rectangle or triangle: capacities, not lengths
};

// dq, dk, dv are overwritten, dsink is added to. P is rebuilt from lse; delta = rowsum(do * o).
struct Backward {
  Tensor dq, dk, dv;  // out, shapes of q, k, v
  Tensor dout, q, k, v, o, lse;
  Tensor dlse;  // optional fp32, shape of lse: the gradient that flows into lse
  Tensor cu_seqlens_q, cu_seqlens_k;
  Tensor seqused_q, seqused_k;
  Tensor alibi_slopes;
  Tensor sink, dropout_state;
  Tensor dsink;           // inout, optional, fp32 [heads]
  BlockLists blocks;      // by block of queries, as in the forward
  BlockLists key_blocks;  // the same by block of keys: optional, for implementations that walk the queries of a block of keys
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
    v_.in("sink", sink);
    v_.in("dropout_state", dropout_state);
    v_.inout("dsink", dsink);
    blocks.fields(v_);
    key_blocks.fields(v_);
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
void launch(CudaStream s, const Forward& op, Scratch scratch);
void launch(CudaStream s, const Backward& op, Scratch scratch);

// What a backend can do of the spec beyond masks, score and lengths. require_able: Error that names the argument and the backend.
struct Abilities {
  const char* backend;
  bool dropout = false, sink = false, block_mask = false, bf16 = false, fp16 = false, fp32 = true;
};
void require_able(const char* op, const AttentionSpec& spec, const Abilities& able);

// Keys that the CPU's kernels take at a time: with spec.block_k a multiple of it, a causal mask given as blocks is causal to the bit.
std::int64_t flash_key_tile(Isa isa);

// ALiBi's slopes for a number of heads, as in the paper (Press et al., 2022): 2^(-8 i / n) for a power of two n, else interleaved.
void alibi_slopes(std::int64_t heads, float* slopes);

}  // namespace flashgpt::attention
