// An id outside its table is a fault of the data, which the loader finds; here it gives a row of NaN (so the step is skipped and counted)
// and no gradient, and never touches memory outside the table.
#include "ops/embedding.h"

#include <limits>

#include "core/cpu/simd.h"
#include "ops/check.h"
#include "ops/cpu/token_sum.h"

namespace flashgpt {
namespace {

using namespace simd;
using Index = std::int64_t;

constexpr Index kColumns = 64;  // of a task of the gradient: whole cache lines, enough tasks for some threads

struct Rows {
  const std::int32_t* ids = nullptr;
  Index count = 0;
  bool valid(Index n) const { return !ids || (ids[n] >= 0 && ids[n] < count); }
};

struct Forward {
  float* y;
  const float *table, *position_table;
  Rows tokens, positions;
  Index columns;

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    for (Index n = first; n < last; ++n) {
      float* out = y + n * columns;
      const bool valid = tokens.valid(n) && positions.valid(n);
      const float* row = valid ? table + tokens.ids[n] * columns : nullptr;
      const float* place = valid && position_table ? position_table + positions.ids[n] * columns : nullptr;
      for (Index c = 0; c < columns; c += kLanes) {
        const Index left = columns - c;
        Vec<W> v = splat<W>(std::numeric_limits<float>::quiet_NaN());
        if (row) v = load_upto<W>(row + c, left);
        if (place) v = v + load_upto<W>(place + c, left);
        store_upto<W>(out + c, v, left);
      }
    }
  }
};

// A task owns a slice of columns of the whole table and walks the tokens in order: no two tasks touch the same element, and every
// element is summed in the order of n.
struct Backward {
  float *dtable, *dposition_table;
  const float* dy;
  Rows tokens, positions;
  Index n, columns;

  template <int W> [[gnu::always_inline]] void run(Index first, Index last) const {
    for (Index i = 0; i < n; ++i) {
      if (!tokens.valid(i) || !positions.valid(i)) continue;
      float* row = dtable + tokens.ids[i] * columns;
      float* place = dposition_table ? dposition_table + positions.ids[i] * columns : nullptr;
      const float* d = dy + i * columns;
      for (Index c = first; c < last; c += kLanes) {
        const Index left = last - c;
        const Vec<W> g = load_upto<W>(d + c, left);
        store_upto<W>(row + c, load_upto<W>(row + c, left) + g, left);
        if (place) store_upto<W>(place + c, load_upto<W>(place + c, left) + g, left);
      }
    }
  }
};

Rows rows(const Tensor& ids, const Tensor& table) { return {ids.as<std::int32_t>(), table.dim(0)}; }

}  // namespace

void check(const Embedding& op) {
  constexpr const char* kOp = Embedding::kName;
  expect_rank(kOp, "y", op.y, 2);
  expect_rank(kOp, "table", op.table, 2);
  const Index n = op.y.dim(0), c = op.y.dim(1);
  expect(kOp, "y", op.y, {n, c});
  expect(kOp, "tokens", op.tokens, {n}, Dtype::kI32);
  expect(kOp, "table", op.table, {op.table.dim(0), c});
  if (!given(op.position_table)) return;
  expect_rank(kOp, "position_table", op.position_table, 2);
  expect(kOp, "position_table", op.position_table, {op.position_table.dim(0), c});
  expect(kOp, "positions", op.positions, {n}, Dtype::kI32);
}

void launch(CpuStream s, const Embedding& op, Scratch) {
  const Index n = op.y.dim(0), c = op.y.dim(1);
  if (n * c == 0) return;
  const Forward kernel{.y = op.y.as<float>(),
                       .table = data_or_null<float>(op.table),
                       .position_table = data_or_null<float>(op.position_table),
                       .tokens = rows(op.tokens, op.table),
                       .positions = op.position_table ? rows(op.positions, op.position_table) : Rows{},
                       .columns = c};
  const Index each = rows_of_task(c);
  s.pool.parallel_for((n + each - 1) / each, [&](Index task, int) { call(isa(), kernel, task * each, std::min(n, (task + 1) * each)); });
}

void check(const EmbeddingGrad& op) {
  constexpr const char* kOp = EmbeddingGrad::kName;
  expect_rank(kOp, "dy", op.dy, 2);
  expect_rank(kOp, "dtable", op.dtable, 2);
  const Index n = op.dy.dim(0), c = op.dy.dim(1);
  expect(kOp, "dy", op.dy, {n, c});
  expect(kOp, "tokens", op.tokens, {n}, Dtype::kI32);
  expect(kOp, "dtable", op.dtable, {op.dtable.dim(0), c});
  if (!given(op.dposition_table)) return;
  expect_rank(kOp, "dposition_table", op.dposition_table, 2);
  expect(kOp, "dposition_table", op.dposition_table, {op.dposition_table.dim(0), c});
  expect(kOp, "positions", op.positions, {n}, Dtype::kI32);
}

std::size_t scratch_bytes(const Target&, const EmbeddingGrad&) { return 0; }

void launch(CpuStream s, const EmbeddingGrad& op, Scratch) {
  const Index n = op.dy.dim(0), c = op.dy.dim(1);
  if (n * c == 0) return;
  const Backward kernel{.dtable = data_or_null<float>(op.dtable),
                        .dposition_table = data_or_null<float>(op.dposition_table),
                        .dy = op.dy.as<float>(),
                        .tokens = rows(op.tokens, op.dtable),
                        .positions = op.dposition_table ? rows(op.positions, op.dposition_table) : Rows{},
                        .n = n,
                        .columns = c};
  s.pool.parallel_for((c + kColumns - 1) / kColumns,
                      [&](Index task, int) { call(isa(), kernel, task * kColumns, std::min(c, (task + 1) * kColumns)); });
}

}  // namespace flashgpt
