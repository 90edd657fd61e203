#include "attention/implementations.h"
namespace flashgpt::attention {
std::size_t standard_scratch_bytes(const Target&, const Forward&) { return 0; }
std::size_t standard_scratch_bytes(const Target&, const Backward&) { return 0; }
void standard_forward(CpuStream, const Forward& op, Scratch) { reference_forward(op); }
void standard_backward(CpuStream, const Backward& op, Scratch) { reference_backward(op); }
}  // namespace flashgpt::attention
