// The fp32 attention kernels, host side.
#include "attention/cuda/arguments.h"
#include "attention/cuda/implementations.h"
#include "attention/problem.h"
#include "core/cuda/call.h"

namespace flashgpt::attention::simt {
namespace {

using cuda::blocks_for;

constexpr const char* kFile = "attention/cuda/simt.cuh";

Rows rows(const Tensor& t, bool varlen) {
  const View<float> v = rows_view<float>(t, varlen);
  return {v.data, v.sequence, v.row, v.head};
}
Rows lse_rows(const Tensor& t, bool varlen) {
  const View<float> v = lse_view<float>(t, varlen);
  return {v.data, v.sequence, v.row, v.head};
}

template <class Op> Arguments arguments_of(const Op& op, const Problem& p) {
  return {.q = rows(op.q, p.varlen),
          .k = rows(op.k, p.varlen),
          .v = rows(op.v, p.varlen),
          .o = rows(op.o, p.varlen),
          .dout = {},
          .dq = {},
          .dk = {},
          .dv = {},
          .lse = lse_rows(op.lse, p.varlen),
          .dlse = {},
          .delta = nullptr,
          .cu_q = p.cu_q,
          .cu_k = p.cu_k,
          .used_q = p.used_q,
          .used_k = p.used_k,
          .slopes = p.slopes,
          .slopes_batch_stride = p.slopes_batch_stride,
          .slopes_first = p.slopes_first,
          .total_heads = p.total_heads,
          .head_offset = p.head_offset,
          .batch = p.batch,
          .max_q = p.max_q,
          .max_k = p.max_k,
          .total_q = p.total_q,
          .total_k = p.total_k,
          .heads = p.heads,
          .kv_heads = p.kv_heads,
          .group = p.group,
          .head_dim = p.head_dim,
          .v_head_dim = p.v_head_dim,
          .varlen = p.varlen,
          .alibi = p.alibi,
          .q_tiles = nullptr,
          .k_tiles = nullptr,
          .mask = p.mask,
          .scale = p.scale,
          .softcap = p.softcap};
}

int padded_dim(const Problem& p) {
  int dim = 32;
  while (dim < p.head_dim || dim < p.v_head_dim) dim *= 2;
  return dim;
}

// `tiles` and `scores`: how many of each lie in shared memory.
void call(CudaStream s, const char* name, int dim, int block, Index grid, int tiles, int scores, const Arguments& a) {
  if (grid == 0) return;
  const cuda::Kernel& k = cuda::kernel({.file = kFile,
                                        .expression = cat("flashgpt::attention::simt::", name, "<", dim, ", ", block, ">"),
                                        .arch = cuda::arch_of(s.capability),
                                        .options = {}});
  cuda::launch(
      k,
      {.grid = static_cast<unsigned>(grid), .block = kThreads, .shared_bytes = shared_bytes(dim, block, tiles, scores), .stream = s.stream},
      a);
}

struct TileShape {
  int dim, block;
};
TileShape forward_shape(const Problem& p) { return {padded_dim(p), padded_dim(p) <= 128 ? 64 : 32}; }
TileShape backward_shape(const Problem& p) { return {padded_dim(p), padded_dim(p) <= 128 ? 32 : 16}; }

void clear_tail(CudaStream s, const Rows& r, const Rows& lse, const std::int32_t* cu, Index total, Index batch, Index heads,
                Index columns) {
  cuda::call(s, kFile, "flashgpt::attention::simt::clear_tail", static_cast<unsigned>(total),
             TailArguments{.rows = r, .lse = lse, .cu = cu, .batch = batch, .heads = heads, .columns = columns}, 64);
}

bool carries_spec(const AttentionSpec& s) {
  return s.dtype == Dtype::kF32 && s.dropout == 0 && !s.sink && !s.block_mask && s.head_dim <= 256 && s.v_head_dim <= 256;
}

}  // namespace

std::size_t list_bytes(Index total, Index batch, int block) {
  return static_cast<std::size_t>(1 + 2 * most_tiles(total, batch, block)) * sizeof(std::int32_t);
}

void list_tiles(CudaStream s, int* out, const std::int32_t* cu, Index batch, int block) {
  cuda::call(s, kFile, "flashgpt::attention::simt::list_tiles", 1, ListArguments{.out = out, .cu = cu, .batch = batch, .block = block},
             simt::kListThreads);
}

Index grid_of(CudaStream s, const Problem& p, Index longest, Index heads, int block) {
  if (!p.varlen) return blocks_for(longest, block) * heads * p.batch;
  const Index total = longest == 0 ? 0 : most_tiles(p.total_q + p.total_k, p.batch, block) * heads;
  return std::min<Index>(total, s.multiprocessors * 8);
}

bool carries(int, const Forward& op) { return carries_spec(op.spec); }
bool carries(int, const Backward& op) { return carries_spec(op.spec); }

std::size_t scratch_bytes(const Target&, const Forward& op) {
  const Problem p = problem_of(op);
  return p.varlen ? list_bytes(p.total_q, p.batch, forward_shape(p).block) : 0;
}

void launch(CudaStream s, const Forward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  Arguments a = arguments_of(op, p);
  const auto [dim, block] = forward_shape(p);
  if (p.varlen) {
    list_tiles(s, static_cast<int*>(scratch.data), a.cu_q, p.batch, block);
    a.q_tiles = static_cast<const int*>(scratch.data);
  }
  call(s, "forward", dim, block, grid_of(s, p, p.max_q, p.heads, block), 2, 1, a);
  if (p.varlen) clear_tail(s, a.o, a.lse, a.cu_q, p.total_q, p.batch, p.heads, p.v_head_dim);
}

namespace {

struct BackwardScratch {
  std::size_t delta, q_tiles, k_tiles;  // bytes
};
BackwardScratch backward_scratch(const Problem& p) {
  const int block = backward_shape(p).block;
  return {static_cast<std::size_t>(p.total_q * p.heads) * sizeof(float), p.varlen ? list_bytes(p.total_q, p.batch, block) : 0,
          p.varlen ? list_bytes(p.total_k, p.batch, block) : 0};
}

}  // namespace

std::size_t scratch_bytes(const Target&, const Backward& op) {
  const BackwardScratch m = backward_scratch(problem_of(op));
  return m.delta + m.q_tiles + m.k_tiles;
}

void launch(CudaStream s, const Backward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  const BackwardScratch m = backward_scratch(p);
  Arguments a = arguments_of(op, p);
  a.dout = rows(op.dout, p.varlen);
  a.dq = rows(op.dq, p.varlen);
  a.dk = rows(op.dk, p.varlen);
  a.dv = rows(op.dv, p.varlen);
  a.dlse = lse_rows(op.dlse, p.varlen);
  a.delta = static_cast<float*>(scratch.data);
  const auto [dim, block] = backward_shape(p);
  if (p.varlen) {
    int* q_tiles = reinterpret_cast<int*>(static_cast<char*>(scratch.data) + m.delta);
    int* k_tiles = reinterpret_cast<int*>(static_cast<char*>(scratch.data) + m.delta + m.q_tiles);
    list_tiles(s, q_tiles, a.cu_q, p.batch, block);
    list_tiles(s, k_tiles, a.cu_k, p.batch, block);
    a.q_tiles = q_tiles;
    a.k_tiles = k_tiles;
  }
  cuda::call(s, kFile, "flashgpt::attention::simt::row_delta", blocks_for(p.total_q * p.heads, kThreads / 32), a, kThreads);
  call(s, "backward_keys", dim, block, grid_of(s, p, p.max_k, p.kv_heads, block), 4, 1, a);
  call(s, "backward_queries", dim, block, grid_of(s, p, p.max_q, p.heads, block), 4, 1, a);
  if (p.varlen) {
    clear_tail(s, a.dq, {}, a.cu_q, p.total_q, p.batch, p.heads, p.head_dim);
    clear_tail(s, a.dk, {}, a.cu_k, p.total_k, p.batch, p.kv_heads, p.head_dim);
    clear_tail(s, a.dv, {}, a.cu_k, p.total_k, p.batch, p.kv_heads, p.v_head_dim);
  }
}

}  // namespace flashgpt::attention::simt
