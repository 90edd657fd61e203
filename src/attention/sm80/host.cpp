#include "attention/sm80/host.h"

#include <algorithm>

namespace flashgpt::attention::sm80 {
namespace {

constexpr Index kSectionBytes = 24ll << 20;  // of L2: keys and values of the heads that run together
constexpr Index kLongest = 1 << 29;          // positions are 32-bit numbers in the kernels

template <class T> View<T> view(const attention::View<T>& v) { return {v.data, v.sequence, v.row, v.head}; }

int as_int(Index x) { return static_cast<int>(x); }
BlockList list_of(const BlockView::List& l) { return {l.count, l.index, l.batch_stride, l.head_stride, l.room}; }
int limit(Index window) { return as_int(std::min(window, kLongest)); }

}  // namespace

bool carries_spec(int capability, const AttentionSpec& s) {
  return capability >= 80 && (s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16) &&
         (!s.block_mask || (s.block_q >= kLeastBlock && s.block_k >= kLeastBlock)) && s.head_dim <= 256 && s.v_head_dim <= 256 &&
         s.max_q <= kLongest && s.max_k <= kLongest;
}

bool is_whole(const Tensor& t) {
  bool whole = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && t.dim(-1) % 8 == 0;
  for (int i = 0; i < t.rank() - 1; ++i) whole = whole && (t.strides[i] % 8 == 0 || t.dim(i) <= 1);
  return whole;
}

Rows rows_of(const Tensor& t, bool varlen) { return view(rows_view<unsigned short>(t, varlen)); }
Column column_of(const Tensor& t, bool varlen) { return view(lse_view<float>(t, varlen)); }

template <class Op> Arguments arguments_of(const Op& op, const Problem& p) {
  const bool wide = op.spec.partial_output;
  const Index head_bytes = p.max_k * (p.head_dim + p.v_head_dim) * 2 / p.group;
  return {.q = rows_of(op.q, p.varlen),
          .k = rows_of(op.k, p.varlen),
          .v = rows_of(op.v, p.varlen),
          .o = wide ? Rows{} : rows_of(op.o, p.varlen),
          .wide_o = wide ? view(rows_view<float>(op.o, p.varlen)) : View<float>{},
          .lse = column_of(op.lse, p.varlen),
          .cu_q = p.cu_q,
          .cu_k = p.cu_k,
          .used_q = p.used_q,
          .used_k = p.used_k,
          .slopes = p.slopes,
          .slopes_batch_stride = p.slopes_batch_stride,
          .slopes_first = p.slopes_first,
          .total_heads = p.total_heads,
          .head_offset = p.head_offset,
          .batch = as_int(p.batch),
          .max_q = as_int(p.max_q),
          .max_k = as_int(p.max_k),
          .heads = as_int(p.heads),
          .kv_heads = as_int(p.kv_heads),
          .group = as_int(p.group),
          .head_dim = as_int(p.head_dim),
          .v_head_dim = as_int(p.v_head_dim),
          .varlen = p.varlen,
          .q_tiles = nullptr,
          .k_tiles = nullptr,
          .left = limit(p.mask.left),
          .right = limit(p.mask.right),
          .section = as_int(std::clamp<Index>(kSectionBytes / std::max<Index>(head_bytes, 1), 1, std::max<Index>(1, p.batch * p.heads))),
          .scale = p.softcap > 0 ? p.scale / p.softcap : p.scale,
          .softcap = p.softcap,
          .dropout_state = reinterpret_cast<const Int64*>(p.dropout_state),
          .dropout_stream = p.dropout_stream,
          .dropout_threshold = p.dropout_threshold,
          .sinks = static_cast<const float*>(p.sinks),
          .full = list_of(p.blocks.full),
          .partial = list_of(p.blocks.partial),
          .block_q = as_int(p.blocks.block_q),
          .block_k = as_int(p.blocks.block_k),
          .dout = {},
          .dq = {},
          .dk = {},
          .dv = {},
          .dlse = {},
          .lse2 = nullptr,
          .delta = nullptr,
          .dq_sum = nullptr,
          .total_q = p.total_q,
          .dsink = nullptr,
          .gradient_scale = p.scale};
}
template Arguments arguments_of(const Forward&, const Problem&);
template Arguments arguments_of(const Backward&, const Problem&);

void start(CudaStream s, const cuda::KernelKey& key, Index grid, int warps, int shared_bytes, const Arguments& a) {
  if (grid == 0) return;
  cuda::launch(
      cuda::kernel(key),
      {.grid = static_cast<unsigned>(grid), .block = static_cast<unsigned>(warps) * 32, .shared_bytes = shared_bytes, .stream = s.stream},
      a);
}

void clear_tail(CudaStream s, const TailArguments& a, Index total) {
  cuda::call(s, "attention/sm80/rows.cuh", "flashgpt::attention::sm80::clear_tail", static_cast<unsigned>(total), a, 64);
}

}  // namespace flashgpt::attention::sm80
