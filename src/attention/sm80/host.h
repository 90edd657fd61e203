// What the forward's and the backward's host side share.
#pragma once
#include "attention/sm80/kernels.h"

namespace flashgpt::attention::sm80 {

bool carries_spec(int capability, const AttentionSpec& spec);

// Rows start at multiples of 16 bytes, and there is nothing but whole pieces of 16 bytes in them.
bool is_whole(const Tensor& t);

Rows rows_of(const Tensor& t, bool varlen);
Column column_of(const Tensor& t, bool varlen);

// All that forward and backward have in common.
template <class Op> Arguments arguments_of(const Op& op, const Problem& p);

void start(CudaStream s, const cuda::KernelKey& key, Index grid, int warps, int shared_bytes, const Arguments& a);
void clear_tail(CudaStream s, const TailArguments& a, Index total);

}  // namespace flashgpt::attention::sm80
