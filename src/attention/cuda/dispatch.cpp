// Which implementation does what on a GPU: the first row of the table that carries the op.
#include <algorithm>

#include "attention/cuda/implementations.h"

namespace flashgpt::attention {
namespace {

template <class Op> struct Row {
  const char* name;
  bool (*carries)(int capability, const Op&);
  std::size_t (*scratch_bytes)(const Target&, const Op&);
  void (*launch)(CudaStream, const Op&, Scratch);
};

// The fastest first.
template <class Op> constexpr Row<Op> kRows[] = {
    {"sm90", sm90::carries, sm90::scratch_bytes, sm90::launch},
    {"sm80", sm80::carries, sm80::scratch_bytes, sm80::launch},
    {"simt", simt::carries, simt::scratch_bytes, simt::launch},
};

template <class Op> const Row<Op>& row_of(int capability, const Op& op) {
  for (const Row<Op>& row : kRows<Op>)
    if (row.carries(capability, op)) return row;
  // Why none does.
  const bool narrow = op.spec.dtype != Dtype::kF32;
  require_able(Op::kName, op.spec,
               {.backend = narrow ? "attention in 16 bits on a GPU" : "attention in fp32 on a GPU",
                .dropout = narrow,
                .sink = narrow,
                .block_mask = narrow,
                .bf16 = true,
                .fp16 = true});
  require(!op.spec.block_mask || std::min(op.spec.block_q, op.spec.block_k) >= 8, Op::kName, ": block_q = ", op.spec.block_q,
          ", block_k = ", op.spec.block_k, ", expected at least 8 on a GPU");
  throw Error(ErrorCode::kInvalid, cat(Op::kName, ": head_dim = ", op.spec.head_dim, ", v_head_dim = ", op.spec.v_head_dim,
                                       ", dtype = ", name_of(op.spec.dtype), ", compute capability ", capability,
                                       ": no kernel; expected head dims up to 256, and 16-bit types from capability 80 on"));
}

}  // namespace

std::size_t cuda_scratch_bytes(const Target& target, const Forward& op) {
  return row_of(target.compute_capability, op).scratch_bytes(target, op);
}
std::size_t cuda_scratch_bytes(const Target& target, const Backward& op) {
  return row_of(target.compute_capability, op).scratch_bytes(target, op);
}
void launch(CudaStream s, const Forward& op, Scratch scratch) { row_of(s.capability, op).launch(s, op, scratch); }
void launch(CudaStream s, const Backward& op, Scratch scratch) { row_of(s.capability, op).launch(s, op, scratch); }

}  // namespace flashgpt::attention
