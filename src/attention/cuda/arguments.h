// device: shared
// What the fp32 attention kernels are handed: the op, resolved, with addresses on the GPU.
#pragma once
#include "attention/score.h"

namespace flashgpt::attention::simt {

// By (sequence, row, head, column); strides in elements, columns are contiguous. Varlen: sequence stride 0.
struct Rows {
  float* data;
  Int64 sequence, row, head;
  FLASHGPT_HD float* at(Int64 b, Int64 i, Int64 h) const { return data + b * sequence + i * row + h * head; }
};

struct Arguments {
  Rows q, k, v, o, dout, dq, dk, dv;
  Rows lse, dlse;  // a column each; data may be null
  float* delta;    // [heads, queries of all sequences]: rowsum(dout o) - dlse
  const int *cu_q, *cu_k, *used_q, *used_k;
  const float* slopes;
  Int64 slopes_batch_stride, slopes_first;
  Int64 total_heads, head_offset;  // for the paper's slopes, where none are given
  Int64 batch, max_q, max_k, total_q, total_k;
  Int64 heads, kv_heads, group, head_dim, v_head_dim;
  bool varlen, alibi;
  const int *q_tiles, *k_tiles;  // varlen: lists of the tiles that there are (list_tiles); dense: null
  Mask mask;
  float scale, softcap;
};

// The tiles of Block rows of a varlen batch: out[0] is their number, then (sequence, first row) of each. Lengths are known on the GPU only,
// and most of the sequences that a batch may hold are empty.
struct ListArguments {
  int* out;
  const int* cu;
  Int64 batch;
  int block;
};
constexpr int kListThreads = 1024;
FLASHGPT_HD Int64 most_tiles(Int64 total, Int64 batch, Int64 block) { return total / block + (batch < total ? batch : total); }

struct TailArguments {  // rows behind the last sequence of a varlen batch
  Rows rows, lse;       // one of them may have no data
  const int* cu;
  Int64 batch, heads, columns;
};

constexpr int kThreads = 256;  // 16 x 16; each does (Block / 16)^2 scores

// Bytes of shared memory of the kernels: `tiles` tiles of Block x (Dim + 1) and `scores` of Block x (Block + 1).
constexpr int shared_bytes(int dim, int block, int tiles, int scores) { return 4 * block * (tiles * (dim + 1) + scores * (block + 1)); }

}  // namespace flashgpt::attention::simt
