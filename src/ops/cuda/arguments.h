// device: shared
// What the kernels of the ops are handed: addresses on the GPU and sizes, with the names of the ops. Absent tensors are null.
#pragma once
#include "core/host_device.h"
#include "core/step_scalars.h"

namespace flashgpt::ops {

struct AddNormArguments {
  float *y, *sum, *mean, *rstd;
  const float *x, *delta, *w, *b;
  Int64 columns;
  float eps;
  bool layer_norm;
};

struct AddNormGradArguments {
  float* dx;
  const float *dy, *x, *w, *mean, *rstd;
  Int64 rows, columns;
  float* partial;  // [row blocks, columns] of dw
  bool layer_norm;
};

// Sums over rows: first of kRowsOfBlock rows each into partial [row blocks, columns], then over the blocks into out.
constexpr int kRowsOfBlock = 256;
constexpr int kColumnsOfBlock = 32;
struct ColumnSumArguments {
  const float* x;  // [rows, columns]
  Int64 rows, columns;
  float* partial;
};
struct AddPartialsArguments {
  float* out;  // [columns], accumulates
  const float* partial;
  Int64 blocks, columns;
};

struct BiasActArguments {
  float* y;
  const float *x, *bias;
  Int64 rows, columns;  // of y
};
struct BiasActGradArguments {
  float* dx;
  const float *dy, *x, *bias;
  Int64 rows, columns;  // of dy
};

struct QkvRopeArguments {
  float* qkv;
  const float* bias;
  const int* positions;
  const float* inv_freq;
  Int64 rows, columns;
  Int64 turned_heads, head_dim, half;  // half: pairs of a head that are turned; 0: no rotation
  float sign;
};

struct QkNormArguments {
  float *qkv, *x, *rstd;
  const float *q_weight, *k_weight;
  Int64 rows, columns, heads, kv_heads, head_dim;
  float eps;
};
struct QkNormGradArguments {
  float* dqkv;
  const float *x, *rstd, *q_weight, *k_weight;
  Int64 rows, columns, heads, kv_heads, head_dim;
  float* partial;
  Int64 first_head, weight_heads;  // of the weight whose gradient is wanted
};

struct EmbeddingArguments {
  float* y;
  const int *tokens, *positions;
  const float *table, *position_table;
  Int64 rows, columns, table_rows, position_rows;
};

// Sorting (id, row) pairs by id, rows in order: 8 bits a pass.
constexpr int kSortThreads = 256;
constexpr int kSortItems = 2048;  // of a block
struct SortArguments {
  const int *keys_in, *values_in;  // values absent: 0, 1, 2, ...
  int *keys_out, *values_out;
  int* counts;  // [256, blocks]
  Int64 n;
  int shift, end;  // ids are below end
};
struct SegmentSumArguments {
  float* dtable;
  const float* dy;
  const int *keys, *rows;         // sorted
  const int *tokens, *positions;  // a row counts when both are valid
  Int64 n, columns, table_rows, tokens_end, positions_end;
};

struct CrossEntropyArguments {
  float* logits;  // [rows, vocabulary]; the gradient comes in their place
  const int* targets;
  double* losses;
  const StepScalars* scalars;
  Int64 rows, vocabulary;
  bool gradient;
};
struct SumLossesArguments {
  StepScalars* scalars;
  float* out;  // [n] or null
  const double* losses;
  Int64 n;
};

struct CacheAppendArguments {
  float *k_cache, *v_cache;
  const float* qkv;
  const int *starts, *new_lengths;
  Int64 length, capacity, row, q_columns, qkv_stride;
};

}  // namespace flashgpt::ops
