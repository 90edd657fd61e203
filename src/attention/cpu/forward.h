// The tiled forward, for ops that come to it with their tensors in other shapes (decode.cpp).
#pragma once
#include "attention/cpu/pack.h"
#include "core/context.h"

namespace flashgpt::attention::cpu {

struct ForwardRun {
  Problem p;
  Stored q, o;
  KeyRows k, v;
  View<float> lse;  // may be absent
};

std::size_t forward_scratch_bytes(int threads, const Problem& p);
void run_forward(CpuStream stream, const ForwardRun& run, Scratch scratch);

}  // namespace flashgpt::attention::cpu
