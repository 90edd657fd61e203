// Attention with a KV cache, in one call: new keys and values are appended in place, queries and new keys are rotated, and each sequence
// attends to what is in its cache.
//
//   slot    row of the cache: a token's slot is its position for the rotation
//   keys    of sequence b: slots [left_pad[b], lengths[b] + new_lengths[b]), the last query beside the last key (bottom-right)
//   cache   dense: [rows, capacity, kv_heads, dim], sequence b in row batch_index[b] (b without it)
//           paged: [pages, page size, kv_heads, dim], slot t of sequence b in page page_table[b, t / page size]
// Keys are split over threads where there are few queries, by the shape of the call alone.
#pragma once
#include "attention/attention.h"

namespace flashgpt::attention {

struct Decode {
  Tensor o;                 // out [batch, max_q, heads, v_head_dim]; of queries behind seqused_q: 0
  Tensor lse;               // out, optional, fp32 [batch, heads, max_q]
  Tensor q;                 // in [batch, max_q, heads, head_dim]
  Tensor k_cache, v_cache;  // inout: new tokens are written, the rest stays
  Tensor k_new, v_new;      // optional [batch, most new tokens, kv_heads, dim]
  Tensor lengths;           // int32 [batch]: tokens in the cache before the call, padding on the left included
  Tensor new_lengths;       // optional int32 [batch]: how many of k_new count; absent: all
  Tensor seqused_q;         // optional int32 [batch]
  Tensor batch_index;       // optional int32 [batch], not with pages. Sequences that append must not share a row
  Tensor left_pad;          // optional int32 [batch]
  Tensor page_table;        // optional int32 [batch, most pages]: where given, the cache is paged
  // Optional [positions, rotary dim / 2], fp32 or spec.dtype. Query i is rotated at lengths + i when the mask is causal or a window, else
  // at lengths; new key t at lengths + t. interleaved: pairs (2c, 2c + 1), else (c, c + rotary dim / 2).
  Tensor rotary_cos, rotary_sin;
  bool rotary_interleaved = false;
  Tensor alibi_slopes, sink;  // as in Forward
  AttentionSpec spec;         // dense; max_k: the capacity of a sequence. No dropout, no block mask

  static constexpr const char* kName = "attention_decode";
  template <class V> void fields(V& v_) const {
    v_.out("o", o);
    v_.out("lse", lse);
    v_.in("q", q);
    v_.inout("k_cache", k_cache);
    v_.inout("v_cache", v_cache);
    v_.in("k_new", k_new);
    v_.in("v_new", v_new);
    v_.in("lengths", lengths);
    v_.in("new_lengths", new_lengths);
    v_.in("seqused_q", seqused_q);
    v_.in("batch_index", batch_index);
    v_.in("left_pad", left_pad);
    v_.in("page_table", page_table);
    v_.in("rotary_cos", rotary_cos);
    v_.in("rotary_sin", rotary_sin);
    v_.in("alibi_slopes", alibi_slopes);
    v_.in("sink", sink);
  }
};

void check(const Decode& op);
std::size_t scratch_bytes(const Target& target, const Decode& op);
// Errors too where lengths, pages or positions leave the cache, the table or the rotation's tables; nothing is written then.
void launch(CpuStream s, const Decode& op, Scratch scratch);

}  // namespace flashgpt::attention
