// The forward on 16-bit types: host side.
#include "attention/cuda/implementations.h"
#include "attention/sm80/host.h"

namespace flashgpt::attention::sm80 {

bool carries(int capability, const Forward& op) { return carries_spec(capability, op.spec); }

std::size_t scratch_bytes(const Target& target, const Forward& op) {
  const Problem p = problem_of(op);
  const Shape shape = forward_shape(variant_of(op.spec, target.compute_capability, true));
  return p.varlen ? simt::list_bytes(p.total_q, p.batch, shape.rows) : 0;
}

void launch(CudaStream s, const Forward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  Arguments a = arguments_of(op, p);
  const bool whole = is_whole(op.q) && is_whole(op.k) && is_whole(op.v) && (op.spec.partial_output || is_whole(op.o));
  const Variant v = variant_of(op.spec, s.capability, whole);
  const Shape shape = forward_shape(v);
  if (p.varlen) {
    simt::list_tiles(s, static_cast<int*>(scratch.data), p.cu_q, p.batch, shape.rows);
    a.q_tiles = static_cast<const int*>(scratch.data);
  }
  start(s, kernel_key("forward", v, cuda::arch_of(s.capability)), simt::grid_of(s, p, p.max_q, p.heads, shape.rows), shape.warps,
        forward_shared(v), a);
  if (p.varlen)
    clear_tail(s, {.rows = a.o, .wide = a.wide_o, .lse = a.lse, .cu = p.cu_q, .batch = p.batch, .heads = p.heads, .columns = p.v_head_dim},
               p.total_q);
}

}  // namespace flashgpt::attention::sm80
