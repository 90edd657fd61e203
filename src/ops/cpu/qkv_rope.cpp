// Bias and rotary embedding on the CPU, in place. Sines are computed where they are used: a table would have to be read as well, and in
// double, so that long positions are exact.
#include "ops/qkv_rope.h"

#include "core/cpu/simd_math.h"
#include "ops/check.h"
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

// Turns the q and k heads of one row by its position; back again with `sign` -1. Sixteen pairs at a time for all heads, so that each
// sine is computed once a row.
template <int W> [[gnu::always_inline]] inline void rotate(float* row, double position, const float* inv_freq, Index half, Index heads,
                                                           Index head_dim, float sign) {
  for (Index j = 0; j < half; j += kLanes) {
    const Index left = half - j;
    Vec<W> sine, cosine;
    sine_cosine<W>(position, load_upto<W>(inv_freq + j, left), sine, cosine);
    sine = sine * splat<W>(sign);
    for (Index h = 0; h < heads; ++h) {
      float *up = row + h * head_dim + j, *vp = up + half;
      const Vec<W> u = load_upto<W>(up, left), v = load_upto<W>(vp, left);
      store_upto<W>(up, u * cosine - v * sine, left);
      store_upto<W>(vp, v * cosine + u * sine, left);
    }
  }
}

struct Forward {
  float* qkv;
  const float* bias;
  const std::int32_t* positions;  // null: no rotation
  const float* inv_freq;
  Index columns, half, heads, head_dim;  // heads of q and k together

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    for (Index n = first; n < last; ++n) {
      float* row = qkv + n * columns;
      if (bias)
        for (Index c = 0; c < columns; c += kLanes)
          store_upto<W>(row + c, load_upto<W>(row + c, columns - c) + load_upto<W>(bias + c, columns - c), columns - c);
      if (positions) rotate<W>(row, positions[n], inv_freq, half, heads, head_dim, 1.0f);
    }
  }
};

struct Backward {
  float *dqkv, *partial;  // partial: null when the bias wants no gradient
  const std::int32_t* positions;
  const float* inv_freq;
  Index columns, half, heads, head_dim;

  template <int W> [[gnu::always_inline]] void run(Index block, Index first, Index last) const {
    float* sum = partial ? partial + block * columns : nullptr;
    if (sum)
      for (Index i = 0; i < columns; ++i) sum[i] = 0.0f;
    for (Index n = first; n < last; ++n) {
      float* row = dqkv + n * columns;
      if (positions) rotate<W>(row, positions[n], inv_freq, half, heads, head_dim, -1.0f);
      if (sum)
        for (Index c = 0; c < columns; c += kLanes)
          store_upto<W>(sum + c, load_upto<W>(sum + c, columns - c) + load_upto<W>(row + c, columns - c), columns - c);
    }
  }
};

template <class Op> void check_common(const Op& op, const char* name, const Tensor& qkv) {
  expect_rank(Op::kName, name, qkv, 2);
  require(op.heads > 0 && op.kv_heads > 0 && op.head_dim > 0, Op::kName, ": heads = ", op.heads, ", kv_heads = ", op.kv_heads,
          ", head_dim = ", op.head_dim, ", expected positive numbers");
  expect(Op::kName, name, qkv, {qkv.dim(0), (op.heads + 2 * op.kv_heads) * op.head_dim});
  if (!given(op.positions) || !given(op.inv_freq)) return;
  expect(Op::kName, "positions", op.positions, {qkv.dim(0)}, Dtype::kI32);
  expect_rank(Op::kName, "inv_freq", op.inv_freq, 1);
  expect(Op::kName, "inv_freq", op.inv_freq, {op.inv_freq.dim(0)});
  require(2 * op.inv_freq.dim(0) <= op.head_dim, Op::kName, ": inv_freq has ", op.inv_freq.dim(0),
          " frequencies, expected at most half of head_dim = ", op.head_dim);
}

template <class Op> bool rotates(const Op& op) { return op.positions && op.inv_freq; }

}  // namespace

void check(const QkvRope& op) {
  check_common(op, "qkv", op.qkv);
  expect_if_given(QkvRope::kName, "bias", op.bias, {op.qkv.dim(1)});
}

void launch(CpuStream s, const QkvRope& op, Scratch) {
  const Index n = op.qkv.dim(0), columns = op.qkv.dim(1);
  const bool turn = rotates(op);
  if (n == 0 || (!turn && !op.bias)) return;
  const Forward kernel{.qkv = op.qkv.as<float>(),
                       .bias = data_or_null<float>(op.bias),
                       .positions = turn ? op.positions.as<std::int32_t>() : nullptr,
                       .inv_freq = data_or_null<float>(op.inv_freq),
                       .columns = columns,
                       .half = turn ? op.inv_freq.dim(0) : 0,
                       .heads = op.heads + op.kv_heads,
                       .head_dim = op.head_dim};
  const Index rows = rows_of_task(columns);
  s.pool.parallel_for((n + rows - 1) / rows, [&](Index task, int) { call(isa(), kernel, task * rows, std::min(n, (task + 1) * rows)); });
}

void check(const QkvRopeGrad& op) {
  check_common(op, "dqkv", op.dqkv);
  expect_if_given(QkvRopeGrad::kName, "dbias", op.dbias, {op.dqkv.dim(1)});
}

std::size_t scratch_bytes(const Target&, const QkvRopeGrad& op) {
  return given(op.dbias) ? static_cast<std::size_t>(token_blocks(op.dqkv.dim(0)).count * op.dqkv.dim(1)) * sizeof(float) : 0;
}

void launch(CpuStream s, const QkvRopeGrad& op, Scratch scratch) {
  const Index n = op.dqkv.dim(0), columns = op.dqkv.dim(1);
  const bool turn = rotates(op);
  if (n == 0 || (!turn && !op.dbias)) return;
  const TokenBlocks blocks = token_blocks(n);
  const Backward kernel{.dqkv = op.dqkv.as<float>(),
                        .partial = op.dbias ? static_cast<float*>(scratch.data) : nullptr,
                        .positions = turn ? op.positions.as<std::int32_t>() : nullptr,
                        .inv_freq = data_or_null<float>(op.inv_freq),
                        .columns = columns,
                        .half = turn ? op.inv_freq.dim(0) : 0,
                        .heads = op.heads + op.kv_heads,
                        .head_dim = op.head_dim};
  s.pool.parallel_for(blocks.count,
                      [&](Index block, int) { call(isa(), kernel, block, block * blocks.rows, std::min(n, (block + 1) * blocks.rows)); });
  if (op.dbias) add_partials(s, kernel.partial, blocks.count, columns, columns, op.dbias.as<float>());
}

}  // namespace flashgpt
