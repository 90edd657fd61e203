// In place of the CPU kernels, which clang does not take: the fuzzer of arguments never runs one.
#include "attention/cpu/forward.h"
#include "attention/implementations.h"

namespace flashgpt::attention {

void reference_forward(const Forward&) {}
void reference_backward(const Backward&) {}
std::size_t standard_scratch_bytes(const Target&, const Forward&) { return 0; }
std::size_t standard_scratch_bytes(const Target&, const Backward&) { return 0; }
void standard_forward(CpuStream, const Forward&, Scratch) {}
void standard_backward(CpuStream, const Backward&, Scratch) {}
std::size_t tiled_scratch_bytes(const Target&, const Forward& op) { return static_cast<std::size_t>(problem_of(op).total_q); }
std::size_t tiled_scratch_bytes(const Target&, const Backward& op) { return static_cast<std::size_t>(problem_of(op).total_k); }
void tiled_forward(CpuStream, const Forward&, Scratch) {}
void tiled_backward(CpuStream, const Backward&, Scratch) {}
std::size_t cpu::forward_scratch_bytes(int, const Problem& p) { return static_cast<std::size_t>(p.total_q); }
void cpu::run_forward(CpuStream, const ForwardRun&, Scratch) {}

}  // namespace flashgpt::attention
