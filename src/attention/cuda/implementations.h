// The implementations that run on a GPU, behind the table of dispatch.cpp. Arguments have been checked; `carries` says which ops one does.
//   sm90   16-bit types on Hopper (wgmma, TMA). Forward: windows, varlen, softcap, ALiBi, head dims that are multiples of 8. Backward: full
//          or causal, head dims 64, 128, 256, one length
//   sm80   16-bit types on tensor cores (mma.sync), any GPU from Ampere on
//   simt   fp32 without tensor cores, any GPU
#pragma once
#include "attention/attention.h"
#include "attention/problem.h"

namespace flashgpt::attention {

namespace sm90 {
bool carries(int capability, const Forward& op);
bool carries(int capability, const Backward& op);
std::size_t scratch_bytes(const Target& target, const Forward& op);
std::size_t scratch_bytes(const Target& target, const Backward& op);
void launch(CudaStream s, const Forward& op, Scratch scratch);
void launch(CudaStream s, const Backward& op, Scratch scratch);
}  // namespace sm90

namespace sm80 {
bool carries(int capability, const Forward& op);
bool carries(int capability, const Backward& op);
std::size_t scratch_bytes(const Target& target, const Forward& op);
std::size_t scratch_bytes(const Target& target, const Backward& op);
void launch(CudaStream s, const Forward& op, Scratch scratch);
void launch(CudaStream s, const Backward& op, Scratch scratch);
}  // namespace sm80

namespace simt {
bool carries(int capability, const Forward& op);
bool carries(int capability, const Backward& op);
std::size_t scratch_bytes(const Target& target, const Forward& op);
std::size_t scratch_bytes(const Target& target, const Backward& op);
void launch(CudaStream s, const Forward& op, Scratch scratch);
void launch(CudaStream s, const Backward& op, Scratch scratch);

// The tiles of `block` rows of a varlen batch, for kernels that walk them (ListArguments): bytes of the list, and the launch that makes it.
std::size_t list_bytes(Index total, Index batch, int block);
void list_tiles(CudaStream s, int* out, const std::int32_t* cu, Index batch, int block);
// Blocks for tiles of a dense batch, or of a varlen one, whose number only the GPU knows: a few for each multiprocessor.
Index grid_of(CudaStream s, const Problem& p, Index longest, Index heads, int block);
}  // namespace simt

}  // namespace flashgpt::attention
