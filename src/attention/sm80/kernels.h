// The 16-bit attention kernels by name: which variant an op needs, and all that the tests compile.
#pragma once
#include "attention/problem.h"
#include "attention/sm80/arguments.h"
#include "core/cuda/call.h"

namespace flashgpt::attention::sm80 {

// The variant for an op of this spec on a GPU of this compute capability. whole: as Variant says.
Variant variant_of(const AttentionSpec& spec, int capability, bool whole);

std::string expression(const char* kernel, const Variant& v);
// forward; backward, or backward_keys and backward_queries, with prepare before and finish behind.
cuda::KernelKey kernel_key(const char* kernel, const Variant& v, const std::string& arch);

// One of each head dim and type, each feature alone and all together, for GPUs of this compute capability.
std::vector<cuda::KernelKey> all_kernels(int capability);

}  // namespace flashgpt::attention::sm80
