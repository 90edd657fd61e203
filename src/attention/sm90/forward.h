// Attention forward on Hopper, the host side: one kernel (forward.cuh).
//
// Full, causal (bottom-right) and window masks, softcap, ALiBi, any lengths, bf16 and fp16, grouped heads, head dims up to 256 (multiples
// of 8, carried by 64, 96, 128, 192 or 256); a batch of one length, or sequences one after the other.
#pragma once
#include "attention/sm90/forward_config.h"
#include "attention/sm90/rows.h"
#include "core/cuda/kernels.h"

namespace flashgpt::attention::sm90 {

struct ForwardCall {
  Rows q, k, v;  // in; varlen: batch = 1, length = that of all sequences
  Rows o;        // out, shape of q
  // Out, may be absent: natural logarithm, -inf where a query sees no key; element (sequence, head, query) at
  // sequence * lse_sequence + head * lse_head + query; varlen: the query counts through all sequences, lse_sequence is not used.
  float* lse = nullptr;
  long long lse_sequence = 0, lse_head = 0;
  // Varlen, in device memory: cu_seqlens, and the tiles of forward_rows() queries that there are ([0] their number, then pairs of sequence
  // and first query). Tokens of no sequence are left alone.
  const int *cu_q = nullptr, *cu_k = nullptr, *list = nullptr;
  float scale = 0;
  bool causal = false;
  Dtype dtype = Dtype::kBF16;
  int window_left = -1, window_right = -1;  // negative: no limit; causal: window_right = 0
  float softcap = 0;                        // 0: none
  bool alibi = false;
  const float* slopes = nullptr;  // of ALiBi, in device memory, at sequence * slopes_sequence + slopes_first + head; null: the paper's
  long long slopes_sequence = 0;
  int slopes_first = 0, head_offset = 0, total_heads = 0;
  int warpgroups = 0, keys = 0;  // the tile, for measurements; 0: the one that is best
};

// Heads of a section (forward_config.h), such that the blocks of threads get equal work: found by counting, once for each shape.
int forward_section(int tiles, int heads, int group, int sq, int sk, ForwardConfig c, int grid);
// Queries of a tile.
int forward_rows(const ForwardCall& c);
// The variant that the call will launch, to compile before.
cuda::KernelKey forward_kernel(const ForwardCall& c);
// Asynchronous, in `stream`, which must be of the current context. Throws Error(kInvalid) where a shape or a stride is wrong. Encodes
// tensor maps and looks the kernel up: the pointers are frozen into a captured graph.
void forward(CUstream stream, const ForwardCall& c);

}  // namespace flashgpt::attention::sm90
