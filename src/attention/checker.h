// Checks of arguments that the attention ops share. Shapes, types and numbers only: no pointer is followed.
#pragma once
#include <cmath>

#include "attention/attention.h"

namespace flashgpt::attention {

inline bool given(const Tensor& t) { return t.data != nullptr || t.rank() > 0; }

struct Checker {
  const char* op;
  const AttentionSpec& spec;

  void tensor(const char* name, const Tensor& t, const Shape& shape, Dtype dtype) const {
    require(given(t), op, ": ", name, " is missing, expected ", name_of(dtype), " ", shape.str());
    require(t.shape == shape, op, ": ", name, " has shape ", t.shape.str(), ", expected ", shape.str());
    require(t.dtype == dtype, op, ": ", name, " is ", name_of(t.dtype), ", expected ", name_of(dtype));
    require(t.data != nullptr || t.numel() == 0, op, ": ", name, " of shape ", shape.str(), " has no address");
  }
  // [batch, length, heads, columns] or [total, heads, columns]; columns must lie side by side.
  void rows(const char* name, const Tensor& t, bool queries, std::int64_t heads, std::int64_t columns) const {
    rows(name, t, queries, heads, columns, spec.dtype);
  }
  void rows(const char* name, const Tensor& t, bool queries, std::int64_t heads, std::int64_t columns, Dtype dtype) const {
    const std::int64_t length = queries ? spec.max_q : spec.max_k, total = queries ? spec.total_q : spec.total_k;
    tensor(name, t, spec.varlen ? Shape{total, heads, columns} : Shape{spec.batch, length, heads, columns}, dtype);
    require(t.stride(-1) == 1 || columns == 1, op, ": ", name, " has stride ", t.stride(-1), " in its last dimension, expected 1");
  }
  void lse(const char* name, const Tensor& t) const {
    tensor(name, t, spec.varlen ? Shape{spec.heads, spec.total_q} : Shape{spec.batch, spec.heads, spec.max_q}, Dtype::kF32);
  }
  void lengths(const char* name, const Tensor& t, std::int64_t n) const {
    tensor(name, t, {n}, Dtype::kI32);
    require(t.contiguous(), op, ": ", name, " is strided, expected numbers side by side");
  }
  // Sizes fit 32 bits (products of them need not): nothing that is computed from them overflows.
  void at_least(const char* name, std::int64_t value, std::int64_t least) const {
    require(value >= least, op, ": ", name, " = ", value, ", expected at least ", least);
    require(value <= INT32_MAX, op, ": ", name, " = ", value, ", expected at most ", INT32_MAX);
  }

  void numbers() const {
    at_least("batch", spec.batch, 0);
    at_least("max_q", spec.max_q, 0);
    at_least("max_k", spec.max_k, 0);
    at_least("heads", spec.heads, 1);
    at_least("kv_heads", spec.kv_heads, 1);
    require(spec.heads % spec.kv_heads == 0, op, ": heads = ", spec.heads, ", expected a multiple of kv_heads = ", spec.kv_heads);
    at_least("head_dim", spec.head_dim, 1);
    at_least("v_head_dim", spec.v_head_dim, 1);
    if (spec.varlen) {
      at_least("total_q", spec.total_q, 0);
      at_least("total_k", spec.total_k, 0);
    }
    require(spec.dtype == Dtype::kF32 || spec.dtype == Dtype::kBF16 || spec.dtype == Dtype::kF16, op, ": dtype = ", name_of(spec.dtype),
            ", expected fp32, bf16 or fp16");
    require(std::isfinite(spec.scale) && spec.scale >= 0, op, ": scale = ", spec.scale,
            ", expected a positive number, or 0 for 1/sqrt(head_dim)");
    require(std::isfinite(spec.softcap) && spec.softcap >= 0, op, ": softcap = ", spec.softcap,
            ", expected a positive number, or 0 for none");
    at_least("window_left", spec.window_left, kNoWindow);
    at_least("window_right", spec.window_right, kNoWindow);
    require(!spec.causal || spec.window_right <= 0, op, ": window_right = ", spec.window_right, " with causal, expected 0 or ", kNoWindow);
    require(spec.dropout == 0.0f || (spec.dropout >= 1.0f / 512 && spec.dropout < 511.0f / 512), op, ": dropout = ", spec.dropout,
            ", expected 0 or a number from 1/512 to below 511/512");
    if (spec.block_mask) {
      at_least("block_q", spec.block_q, 1);
      at_least("block_k", spec.block_k, 1);
    }
    at_least("head_offset", spec.head_offset, 0);
    at_least("total_heads", spec.total_heads, 0);
    const std::int64_t all = spec.total_heads != 0 ? spec.total_heads : spec.heads;
    require(spec.head_offset >= 0 && spec.head_offset + spec.heads <= all, op, ": head_offset = ", spec.head_offset,
            ", expected 0 to total_heads - heads = ", all - spec.heads);
  }

  // Of a tensor that spec.<flag> asks for.
  void asked_for(bool flag, const char* flag_name, const char* name, const Tensor& t, const Shape& shape, Dtype dtype) const {
    if (flag) {
      tensor(name, t, shape, dtype);
      require(t.contiguous(), op, ": ", name, " is strided, expected numbers side by side");
    } else {
      require(!given(t), op, ": ", name, " given, but spec.", flag_name);
    }
  }

  struct ListNames {
    const char *full_count, *full_index, *partial_count, *partial_index;
  };
  static constexpr ListNames kBlocks{"blocks.full_count", "blocks.full_index", "blocks.partial_count", "blocks.partial_index"};
  static constexpr ListNames kKeyBlocks{"key_blocks.full_count", "key_blocks.full_index", "key_blocks.partial_count",
                                        "key_blocks.partial_index"};
  void lists(const ListNames& name, const BlockLists& lists, bool queries) const {
    const std::int64_t size = queries ? spec.block_q : spec.block_k, length = queries ? spec.max_q : spec.max_k;
    list(name.full_count, lists.full_count, name.full_index, lists.full_index, (length + size - 1) / size);
    list(name.partial_count, lists.partial_count, name.partial_index, lists.partial_index, (length + size - 1) / size);
  }
  // Both or neither may be absent: an empty list.
  void list(const char* count_name, const Tensor& count, const char* index_name, const Tensor& index, std::int64_t blocks) const {
    if (!given(count) && !given(index)) return;
    auto broadcast = [](const Tensor& t, int i, std::int64_t all) { return t.rank() > i && t.shape[i] == 1 ? 1 : all; };
    const std::int64_t b = broadcast(count, 0, spec.batch), h = broadcast(count, 1, spec.heads);
    tensor(count_name, count, {b, h, blocks}, Dtype::kI32);
    tensor(index_name, index, {b, h, blocks, index.rank() == 4 ? index.dim(3) : 0}, Dtype::kI32);
    require(count.contiguous() && index.contiguous(), op, ": ", count_name, " or ", index_name,
            " is strided, expected numbers side by side");
  }

  void slopes(const Tensor& t) const {
    if (!given(t)) return;
    require(spec.alibi, op, ": alibi_slopes given, but spec.alibi is false");
    const std::int64_t n = t.dim(-1);
    require(n == spec.heads || n == spec.total_heads, op, ": alibi_slopes has shape ", t.shape.str(), ", expected [", spec.heads, "] or [",
            spec.batch, ", ", spec.heads, "]");
    tensor("alibi_slopes", t, t.rank() == 2 ? Shape{spec.batch, n} : Shape{n}, Dtype::kF32);
    require(t.stride(-1) == 1 || n == 1, op, ": alibi_slopes has stride ", t.stride(-1), " in its last dimension, expected 1");
  }

  template <class Op> void common(const Op& o) const {
    numbers();
    rows("q", o.q, true, spec.heads, spec.head_dim);
    rows("k", o.k, false, spec.kv_heads, spec.head_dim);
    rows("v", o.v, false, spec.kv_heads, spec.v_head_dim);
    rows("o", o.o, true, spec.heads, spec.v_head_dim, spec.partial_output ? Dtype::kF32 : spec.dtype);
    asked_for(spec.sink, "sink is false", "sink", o.sink, {spec.heads}, Dtype::kF32);
    asked_for(spec.dropout > 0, "dropout is 0", "dropout_state", o.dropout_state, {2}, Dtype::kI64);
    if (spec.block_mask) {
      require(static_cast<bool>(o.blocks), op, ": blocks are missing, expected lists of full or partial blocks with spec.block_mask");
      lists(kBlocks, o.blocks, true);
    } else {
      require(!o.blocks, op, ": blocks given, but spec.block_mask is false");
    }
    if (spec.varlen) {
      lengths("cu_seqlens_q", o.cu_seqlens_q, spec.batch + 1);
      lengths("cu_seqlens_k", o.cu_seqlens_k, spec.batch + 1);
    } else {
      require(!given(o.cu_seqlens_q) && !given(o.cu_seqlens_k), op, ": cu_seqlens given, but spec.varlen is false");
    }
    if (given(o.seqused_q)) lengths("seqused_q", o.seqused_q, spec.batch);
    if (given(o.seqused_k)) lengths("seqused_k", o.seqused_k, spec.batch);
    slopes(o.alibi_slopes);
  }
};

}  // namespace flashgpt::attention
