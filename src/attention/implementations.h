// The implementations that run on the CPU, behind the registry of dispatch.cpp. Arguments have been checked.
//   reference   double precision, any spec; tensors fp32 or, with all of them fp64, fp64. Slow: the oracle of the tests.
//   standard    the traditional way: the score matrix of each head in memory, its products by the BLAS. The baseline.
//   cpu         tiled: memory linear in the length.
#pragma once
#include "attention/problem.h"

namespace flashgpt::attention {

void reference_forward(const Forward& op);
void reference_backward(const Backward& op);

std::size_t standard_scratch_bytes(const Target& target, const Forward& op);
std::size_t standard_scratch_bytes(const Target& target, const Backward& op);
void standard_forward(CpuStream s, const Forward& op, Scratch scratch);
void standard_backward(CpuStream s, const Backward& op, Scratch scratch);

std::size_t tiled_scratch_bytes(const Target& target, const Forward& op);
std::size_t tiled_scratch_bytes(const Target& target, const Backward& op);
void tiled_forward(CpuStream s, const Forward& op, Scratch scratch);
void tiled_backward(CpuStream s, const Backward& op, Scratch scratch);

}  // namespace flashgpt::attention
