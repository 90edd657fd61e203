// Appends new keys and values to a KV cache, in place: for row b and i < new_lengths[b]
//   k_cache[b, starts[b] + i] = k of qkv[b, i],  v_cache likewise.
// Tokens that would land behind the capacity are an error of the caller, who knows the lengths; they are never written.
#pragma once
#include "core/run.h"

namespace flashgpt {

struct CacheAppend {
  Tensor k_cache, v_cache;  // inout [batch, capacity, kv_heads, head_dim]
  Tensor qkv;               // in [batch * length, (heads + 2 kv_heads) * head_dim]
  Tensor starts;            // in int32 [batch]
  Tensor new_lengths;       // in int32 [batch]
  std::int64_t heads = 0;

  static constexpr const char* kName = "cache_append";
  template <class V> void fields(V& v) const {
    v.inout("k_cache", k_cache);
    v.inout("v_cache", v_cache);
    v.in("qkv", qkv);
    v.in("starts", starts);
    v.in("new_lengths", new_lengths);
  }
};

void check(const CacheAppend& op);
void launch(CpuStream s, const CacheAppend& op, Scratch scratch);
void launch(CudaStream s, const CacheAppend& op, Scratch scratch);

}  // namespace flashgpt
