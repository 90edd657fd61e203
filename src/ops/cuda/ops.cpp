// The ops on the GPU, host side: arguments, scratch, grids. The kernels are in the .cuh files beside this one.
#include <algorithm>

#include "core/cuda/call.h"
#include "core/gemm.h"
#include "ops/add_norm.h"
#include "ops/bias_act.h"
#include "ops/cache_append.h"
#include "ops/check.h"
#include "ops/cuda/column_sum.h"
#include "ops/embedding.h"
#include "ops/linear_cross_entropy.h"
#include "ops/qk_norm.h"
#include "ops/qkv_rope.h"

namespace flashgpt {

using cuda::blocks_for, cuda::call, cuda::kThreads;
using Index = std::int64_t;

namespace ops {

void add_partials(CudaStream s, const float* partial, Int64 blocks, Int64 columns, float* out) {
  call(s, "ops/cuda/column_sum.cuh", "flashgpt::ops::add_partials", blocks_for(columns, kThreads),
       AddPartialsArguments{.out = out, .partial = partial, .blocks = blocks, .columns = columns});
}

void add_column_sums(CudaStream s, const float* x, Int64 rows, Int64 columns, float* partial, float* out) {
  call(s, "ops/cuda/column_sum.cuh", "flashgpt::ops::column_sum", static_cast<unsigned>(column_grid(rows, columns)),
       ColumnSumArguments{.x = x, .rows = rows, .columns = columns, .partial = partial});
  add_partials(s, partial, row_blocks(rows), columns, out);
}

}  // namespace ops

namespace {

const float* floats(const Tensor& t) { return data_or_null<float>(t); }
float* floats_out(const Tensor& t) { return data_or_null<float>(t); }
const int* ints(const Tensor& t) { return data_or_null<std::int32_t>(t); }
unsigned grid_of(Index n) { return static_cast<unsigned>(n); }

}  // namespace

// ---- add_norm

void launch(CudaStream s, const AddNorm& op, Scratch) {
  call(s, "ops/cuda/norm.cuh", "flashgpt::ops::add_norm", grid_of(op.x.dim(0)),
       ops::AddNormArguments{.y = floats_out(op.y),
                             .sum = floats_out(op.sum),
                             .mean = floats_out(op.mean),
                             .rstd = floats_out(op.rstd),
                             .x = floats(op.x),
                             .delta = floats(op.delta),
                             .w = floats(op.w),
                             .b = floats(op.b),
                             .columns = op.x.dim(1),
                             .eps = op.eps,
                             .layer_norm = op.kind == NormKind::kLayerNorm});
}

std::size_t cuda_scratch_bytes(const Target&, const AddNormGrad& op) { return ops::partial_bytes(op.x.dim(0), op.x.dim(1)); }

void launch(CudaStream s, const AddNormGrad& op, Scratch scratch) {
  const Index rows = op.x.dim(0), columns = op.x.dim(1);
  const ops::AddNormGradArguments a{.dx = floats_out(op.dx),
                                    .dy = floats(op.dy),
                                    .x = floats(op.x),
                                    .w = floats(op.w),
                                    .mean = floats(op.mean),
                                    .rstd = floats(op.rstd),
                                    .rows = rows,
                                    .columns = columns,
                                    .partial = static_cast<float*>(scratch.data),
                                    .layer_norm = op.kind == NormKind::kLayerNorm};
  call(s, "ops/cuda/norm.cuh", "flashgpt::ops::add_norm_grad", grid_of(rows), a);
  if (op.dw) {
    call(s, "ops/cuda/norm.cuh", "flashgpt::ops::norm_dw_partials", grid_of(ops::column_grid(rows, columns)), a);
    ops::add_partials(s, a.partial, ops::row_blocks(rows), columns, floats_out(op.dw));
  }
  if (op.db) ops::add_column_sums(s, a.dy, rows, columns, a.partial, floats_out(op.db));
}

// ---- bias_act

namespace {

std::string activation_kernel(const char* name, Activation a) {
  return cat("flashgpt::ops::", name, "<flashgpt::ops::Act(", static_cast<int>(a), ")>");
}

}  // namespace

void launch(CudaStream s, const BiasAct& op, Scratch) {
  call(s, "ops/cuda/activation.cuh", activation_kernel("bias_act", op.activation), blocks_for(op.y.numel(), kThreads),
       ops::BiasActArguments{
           .y = floats_out(op.y), .x = floats(op.x), .bias = floats(op.bias), .rows = op.y.dim(0), .columns = op.y.dim(1)});
}

std::size_t cuda_scratch_bytes(const Target&, const BiasActGrad& op) {
  return given(op.dbias) ? ops::partial_bytes(op.dx.dim(0), op.dx.dim(1)) : 0;
}

void launch(CudaStream s, const BiasActGrad& op, Scratch scratch) {
  call(s, "ops/cuda/activation.cuh", activation_kernel("bias_act_grad", op.activation), blocks_for(op.dy.numel(), kThreads),
       ops::BiasActGradArguments{.dx = floats_out(op.dx),
                                 .dy = floats(op.dy),
                                 .x = floats(op.x),
                                 .bias = floats(op.bias),
                                 .rows = op.dy.dim(0),
                                 .columns = op.dy.dim(1)});
  if (op.dbias) ops::add_column_sums(s, floats(op.dx), op.dx.dim(0), op.dx.dim(1), static_cast<float*>(scratch.data), floats_out(op.dbias));
}

// ---- qkv_rope

namespace {

template <class Op> ops::QkvRopeArguments rope_arguments(const Op& op, const Tensor& qkv, float sign) {
  const bool turn = op.positions && op.inv_freq;
  return {.qkv = floats_out(qkv),
          .bias = nullptr,
          .positions = ints(op.positions),
          .inv_freq = floats(op.inv_freq),
          .rows = qkv.dim(0),
          .columns = qkv.dim(1),
          .turned_heads = op.heads + op.kv_heads,
          .head_dim = op.head_dim,
          .half = turn ? op.inv_freq.dim(0) : 0,
          .sign = sign};
}

void call_rope(CudaStream s, const ops::QkvRopeArguments& a) {
  const Index units = a.columns - a.turned_heads * a.half;
  call(s, "ops/cuda/qkv_rope.cuh", "flashgpt::ops::qkv_rope", blocks_for(a.rows * units, kThreads), a);
}

}  // namespace

void launch(CudaStream s, const QkvRope& op, Scratch) {
  ops::QkvRopeArguments a = rope_arguments(op, op.qkv, 1.0f);
  a.bias = floats(op.bias);
  if (a.half > 0 || a.bias) call_rope(s, a);
}

std::size_t cuda_scratch_bytes(const Target&, const QkvRopeGrad& op) {
  return given(op.dbias) ? ops::partial_bytes(op.dqkv.dim(0), op.dqkv.dim(1)) : 0;
}

void launch(CudaStream s, const QkvRopeGrad& op, Scratch scratch) {
  const ops::QkvRopeArguments a = rope_arguments(op, op.dqkv, -1.0f);
  if (a.half > 0) call_rope(s, a);
  if (op.dbias) ops::add_column_sums(s, a.qkv, a.rows, a.columns, static_cast<float*>(scratch.data), floats_out(op.dbias));
}

// ---- qk_norm

void launch(CudaStream s, const QkNorm& op, Scratch) {
  const Index rows = op.qkv.dim(0), heads = op.heads + op.kv_heads;
  call(s, "ops/cuda/qk_norm.cuh", "flashgpt::ops::qk_norm", blocks_for(rows * heads, kThreads / 32),
       ops::QkNormArguments{.qkv = floats_out(op.qkv),
                            .x = floats_out(op.x),
                            .rstd = floats_out(op.rstd),
                            .q_weight = floats(op.q_weight),
                            .k_weight = floats(op.k_weight),
                            .rows = rows,
                            .columns = op.qkv.dim(1),
                            .heads = op.heads,
                            .kv_heads = op.kv_heads,
                            .head_dim = op.q_weight.dim(0),
                            .eps = op.eps});
}

std::size_t cuda_scratch_bytes(const Target&, const QkNormGrad& op) {
  return ops::partial_bytes(op.dqkv.dim(0) * std::max(op.heads, op.kv_heads), op.q_weight.dim(0));
}

void launch(CudaStream s, const QkNormGrad& op, Scratch scratch) {
  const Index rows = op.dqkv.dim(0), heads = op.heads + op.kv_heads;
  ops::QkNormGradArguments a{.dqkv = floats_out(op.dqkv),
                             .x = floats(op.x),
                             .rstd = floats(op.rstd),
                             .q_weight = floats(op.q_weight),
                             .k_weight = floats(op.k_weight),
                             .rows = rows,
                             .columns = op.dqkv.dim(1),
                             .heads = op.heads,
                             .kv_heads = op.kv_heads,
                             .head_dim = op.q_weight.dim(0),
                             .partial = static_cast<float*>(scratch.data),
                             .first_head = 0,
                             .weight_heads = op.heads};
  const auto add_weight = [&](const Tensor& dw, Index first_head, Index weight_heads) {
    if (!dw) return;
    a.first_head = first_head;
    a.weight_heads = weight_heads;
    const Index items = rows * weight_heads;
    call(s, "ops/cuda/qk_norm.cuh", "flashgpt::ops::qk_norm_dw_partials", grid_of(ops::column_grid(items, a.head_dim)), a);
    ops::add_partials(s, a.partial, ops::row_blocks(items), a.head_dim, floats_out(dw));
  };
  add_weight(op.dq_weight, 0, op.heads);
  add_weight(op.dk_weight, op.heads, op.kv_heads);
  call(s, "ops/cuda/qk_norm.cuh", "flashgpt::ops::qk_norm_grad", blocks_for(rows * heads, kThreads / 32), a);
}

// ---- embedding

void launch(CudaStream s, const Embedding& op, Scratch) {
  call(s, "ops/cuda/embedding.cuh", "flashgpt::ops::embedding", blocks_for(op.y.numel(), kThreads),
       ops::EmbeddingArguments{.y = floats_out(op.y),
                               .tokens = ints(op.tokens),
                               .positions = ints(op.positions),
                               .table = floats(op.table),
                               .position_table = floats(op.position_table),
                               .rows = op.y.dim(0),
                               .columns = op.y.dim(1),
                               .table_rows = op.table.dim(0),
                               .position_rows = op.position_table ? op.position_table.dim(0) : 0});
}

namespace {

Index sort_blocks(Index n) { return (n + ops::kSortItems - 1) / ops::kSortItems; }

}  // namespace

std::size_t cuda_scratch_bytes(const Target&, const EmbeddingGrad& op) {
  const Index n = op.dy.dim(0);
  return static_cast<std::size_t>(4 * n + 256 * sort_blocks(n)) * sizeof(std::int32_t);
}

void launch(CudaStream s, const EmbeddingGrad& op, Scratch scratch) {
  const Index n = op.dy.dim(0);
  int* memory = static_cast<int*>(scratch.data);
  const Tensor& positions = op.dposition_table ? op.positions : Tensor{};
  // The ids sorted, and the rows they came from; then each id's rows are summed.
  const auto scatter = [&](const Tensor& ids, const Tensor& table) {
    ops::SortArguments sort{.keys_in = ints(ids),
                            .values_in = nullptr,
                            .keys_out = memory,
                            .values_out = memory + n,
                            .counts = memory + 4 * n,
                            .n = n,
                            .shift = 0,
                            .end = static_cast<int>(table.dim(0))};
    for (; sort.shift == 0 || sort.end >> sort.shift; sort.shift += 8) {
      const auto blocks = grid_of(sort_blocks(n));
      call(s, "ops/cuda/embedding.cuh", "flashgpt::ops::sort_count", blocks, sort, ops::kSortThreads);
      call(s, "ops/cuda/embedding.cuh", "flashgpt::ops::sort_scan", blocks ? 1 : 0, sort, ops::kSortThreads);
      call(s, "ops/cuda/embedding.cuh", "flashgpt::ops::sort_scatter", blocks, sort, ops::kSortThreads);
      int* const other = sort.keys_out == memory ? memory + 2 * n : memory;
      sort.keys_in = sort.keys_out;
      sort.values_in = sort.values_out;
      sort.keys_out = other;
      sort.values_out = other + n;
    }
    call(s, "ops/cuda/embedding.cuh", "flashgpt::ops::segment_sum", grid_of(n),
         ops::SegmentSumArguments{.dtable = floats_out(table),
                                  .dy = floats(op.dy),
                                  .keys = sort.keys_in,
                                  .rows = sort.values_in,
                                  .tokens = ints(op.tokens),
                                  .positions = ints(positions),
                                  .n = n,
                                  .columns = op.dy.dim(1),
                                  .table_rows = table.dim(0),
                                  .tokens_end = op.dtable.dim(0),
                                  .positions_end = op.dposition_table ? op.dposition_table.dim(0) : 0});
  };
  scatter(op.tokens, op.dtable);
  if (op.dposition_table) scatter(op.positions, op.dposition_table);
}

// ---- linear_cross_entropy

namespace {

// A chunk of logits of 256 MB at most: the product is large enough for the whole GPU, and the weights are read once a chunk.
constexpr Index kChunkFloats = Index{1} << 26, kMostRows = 16384, kLeastRows = 128;

struct LossScratch {
  Index chunk;
  std::size_t losses, logits, workspace;  // bytes
};

std::size_t rounded(std::size_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

LossScratch loss_scratch(const LinearCrossEntropy& op) {
  const Index n = op.x.dim(0), v = op.w.dim(0);
  const Index automatic = std::clamp(kChunkFloats / v / 128 * 128, kLeastRows, kMostRows);
  const Index chunk = std::max<Index>(1, std::min(n, op.chunk_rows > 0 ? op.chunk_rows : automatic));
  return {chunk, rounded(static_cast<std::size_t>(n) * sizeof(double)), rounded(static_cast<std::size_t>(chunk * v) * sizeof(float)),
          cuda_scratch_bytes(Target{}, Gemm{})};
}

}  // namespace

std::size_t cuda_scratch_bytes(const Target&, const LinearCrossEntropy& op) {
  const LossScratch m = loss_scratch(op);
  return m.losses + m.logits + m.workspace;
}

void launch(CudaStream s, const LinearCrossEntropy& op, Scratch scratch) {
  const Index n = op.x.dim(0), v = op.w.dim(0);
  const LossScratch m = loss_scratch(op);
  char* memory = static_cast<char*>(scratch.data);
  auto* losses = reinterpret_cast<double*>(memory);
  const Scratch workspace{memory + m.losses + m.logits, m.workspace};
  auto* scalars = reinterpret_cast<StepScalars*>(op.scalars.data);
  for (Index first = 0; first < n; first += m.chunk) {
    const Index rows = std::min(m.chunk, n - first);
    const Tensor x = op.x.slice(0, first, rows), logits(memory + m.losses, {rows, v}, Dtype::kF32, op.x.device);
    launch(s, Gemm{.c = logits, .a = x, .b = op.w, .trans_b = true}, workspace);
    call(s, "ops/cuda/cross_entropy.cuh", "flashgpt::ops::cross_entropy", grid_of(rows),
         ops::CrossEntropyArguments{.logits = floats_out(logits),
                                    .targets = ints(op.targets) + first,
                                    .losses = losses + first,
                                    .scalars = scalars,
                                    .rows = rows,
                                    .vocabulary = v,
                                    .gradient = static_cast<bool>(op.dx)},
         512);
    if (!op.dx) continue;
    launch(s, Gemm{.c = op.dx.slice(0, first, rows), .a = logits, .b = op.w}, workspace);
    if (op.dw) launch(s, Gemm{.c = op.dw, .a = logits, .b = x, .trans_a = true, .accumulate = true}, workspace);
  }
  call(s, "ops/cuda/cross_entropy.cuh", "flashgpt::ops::sum_losses", n > 0 ? 1 : 0,
       ops::SumLossesArguments{.scalars = scalars, .out = floats_out(op.losses), .losses = losses, .n = n}, 512);
}

// ---- cache_append

void launch(CudaStream s, const CacheAppend& op, Scratch) {
  const Index batch = op.k_cache.dim(0), row = op.k_cache.dim(2) * op.k_cache.dim(3);
  call(s, "ops/cuda/cache_append.cuh", "flashgpt::ops::cache_append", grid_of(op.qkv.dim(0)),
       ops::CacheAppendArguments{.k_cache = floats_out(op.k_cache),
                                 .v_cache = floats_out(op.v_cache),
                                 .qkv = floats(op.qkv),
                                 .starts = ints(op.starts),
                                 .new_lengths = ints(op.new_lengths),
                                 .length = op.qkv.dim(0) / batch,
                                 .capacity = op.k_cache.dim(1),
                                 .row = row,
                                 .q_columns = op.heads * op.k_cache.dim(3),
                                 .qkv_stride = op.qkv.stride(0)});
}

}  // namespace flashgpt
