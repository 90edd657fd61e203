// The optimizer's ops on the GPU, host side.
#include "core/cuda/call.h"
#include "ops/check.h"
#include "optim/cuda/arguments.h"
#include "optim/ops.h"

namespace flashgpt {
namespace {

using cuda::blocks_for;
using Index = std::int64_t;

constexpr const char* kFile = "optim/cuda/optim.cuh";

StepScalars* scalars_at(const Tensor& t) { return static_cast<StepScalars*>(t.data); }
Index sum_blocks(Index n) { return blocks_for(n, optim::kElementsOfBlock); }
Index row_blocks(const Adafactor& op) { return op.w.rank() == 2 ? blocks_for(op.w.dim(0), optim::kRowsOfBlock) : 1; }

template <class Arguments> void call(CudaStream s, const char* name, Index grid, const Arguments& a, unsigned threads = optim::kThreads) {
  cuda::call(s, kFile, cat("flashgpt::optim::", name), static_cast<unsigned>(grid), a, threads);
}

}  // namespace

std::size_t cuda_scratch_bytes(const Target&, const SumSquares& op) {
  return static_cast<std::size_t>(sum_blocks(op.g.numel())) * sizeof(double);
}

void launch(CudaStream s, const SumSquares& op, Scratch scratch) {
  const Index n = op.g.numel(), blocks = sum_blocks(n);
  if (n == 0) return;
  const optim::SumSquaresArguments a{
      .scalars = scalars_at(op.scalars), .g = op.g.as<float>(), .partial = static_cast<double*>(scratch.data), .n = n, .blocks = blocks};
  call(s, "sum_squares", blocks, a);
  call(s, "add_squares", 1, a);
}

void launch(CudaStream s, const FinishNorm& op, Scratch) { call(s, "finish_norm", 1, scalars_at(op.scalars), 1); }

void launch(CudaStream s, const AdamW& op, Scratch) {
  const Index n = op.w.numel();
  call(s, "adamw", blocks_for(n, 4 * optim::kThreads),
       optim::AdamWArguments{.w = data_or_null<float>(op.w),
                             .m = data_or_null<float>(op.m),
                             .v = data_or_null<float>(op.v),
                             .g = data_or_null<float>(op.g),
                             .scalars = scalars_at(op.scalars),
                             .n = n,
                             .beta1 = op.beta1,
                             .beta2 = op.beta2,
                             .eps = op.eps,
                             .weight_decay = op.weight_decay});
}

std::size_t cuda_scratch_bytes(const Target&, const Adafactor& op) {
  if (op.w.numel() == 0) return 0;
  return static_cast<std::size_t>(2 * sum_blocks(op.w.numel()) + 1) * sizeof(double) +
         static_cast<std::size_t>(row_blocks(op) * op.w.dim(-1)) * sizeof(float);
}

void launch(CudaStream s, const Adafactor& op, Scratch scratch) {
  const Index n = op.w.numel(), columns = op.w.dim(-1);
  if (n == 0) return;
  const bool matrix = op.w.rank() == 2;
  auto* sums = static_cast<double*>(scratch.data);
  const Index blocks = sum_blocks(n);
  const optim::AdafactorArguments a{.w = op.w.as<float>(),
                                    .row = matrix ? op.row.as<float>() : nullptr,
                                    .col = op.col.as<float>(),
                                    .g = op.g.as<float>(),
                                    .scalars = scalars_at(op.scalars),
                                    .rows = n / columns,
                                    .columns = columns,
                                    .decay_rate = op.decay_rate,
                                    .eps1 = op.eps1,
                                    .eps2 = op.eps2,
                                    .clip_threshold = op.clip_threshold,
                                    .weight_decay = op.weight_decay,
                                    .relative_step = op.relative_step,
                                    .partial = reinterpret_cast<float*>(sums + 2 * blocks + 1),
                                    .w_sum = sums,
                                    .u_sum = sums + blocks,
                                    .row_mean = sums + 2 * blocks,
                                    .row_blocks = row_blocks(op),
                                    .sum_blocks = blocks};
  if (matrix) {
    call(s, "adafactor_rows", a.rows, a);
    call(s, "adafactor_row_mean", 1, a);
  }
  call(s, "adafactor_column_partials", a.row_blocks * blocks_for(columns, optim::kThreads), a);
  call(s, "adafactor_columns", blocks_for(columns, optim::kThreads), a);
  call(s, "adafactor_sums", blocks, a);
  call(s, "adafactor_update", blocks, a);
}

}  // namespace flashgpt
