// Checks, and which implementation does what. On the CPU: auto and flash are the tiled kernels.
#include "attention/blocks.h"
#include "attention/checker.h"
#include "attention/implementations.h"

namespace flashgpt::attention {
namespace {

// On the CPU.
Abilities abilities_of(Implementation implementation) {
  switch (implementation) {
    case Implementation::kReference:
      return {.backend = "attention reference", .dropout = true, .sink = true, .block_mask = true, .bf16 = true, .fp16 = true};
    case Implementation::kStandard: return {.backend = "attention standard on the CPU"};
    default:
      return {.backend = "attention flash on the CPU", .dropout = true, .sink = true, .block_mask = true, .bf16 = true, .fp16 = true};
  }
}

double pairs_of(const AttentionSpec& s) {
  const Mask mask{s.window_left, s.causal ? 0 : s.window_right};
  double sequences = static_cast<double>(s.batch);
  if (s.varlen) sequences = s.max_q > 0 ? static_cast<double>(s.total_q) / static_cast<double>(s.max_q) : 0;
  return sequences * static_cast<double>(s.heads) * visible_pairs(mask, s.max_q, s.max_k);
}

}  // namespace

void check(const Forward& op) {
  const Checker c{Forward::kName, op.spec};
  c.common(op);
  if (given(op.lse)) c.lse("lse", op.lse);
}

void check(const Backward& op) {
  const Checker c{Backward::kName, op.spec};
  c.common(op);
  c.rows("dq", op.dq, true, op.spec.heads, op.spec.head_dim);
  c.rows("dk", op.dk, false, op.spec.kv_heads, op.spec.head_dim);
  c.rows("dv", op.dv, false, op.spec.kv_heads, op.spec.v_head_dim);
  c.rows("dout", op.dout, true, op.spec.heads, op.spec.v_head_dim);
  c.lse("lse", op.lse);
  if (given(op.dlse)) c.lse("dlse", op.dlse);
  if (given(op.dsink)) c.asked_for(op.spec.sink, "sink is false", "dsink", op.dsink, {op.spec.heads}, Dtype::kF32);
  require(op.spec.block_mask || !op.key_blocks, Backward::kName, ": key_blocks given, but spec.block_mask is false");
  if (op.key_blocks) c.lists(Checker::kKeyBlocks, op.key_blocks, false);
}

void require_able(const char* op, const AttentionSpec& spec, const Abilities& able) {
  auto lacks = [&](bool asked, bool can, const char* name, const auto& value, const char* expected) {
    require(!asked || can, op, ": ", name, " = ", value, ", expected ", expected, ": ", able.backend, " cannot do it");
  };
  lacks(spec.dropout > 0, able.dropout, "dropout", spec.dropout, "0");
  lacks(spec.sink, able.sink, "sink", "true", "false");
  lacks(spec.block_mask, able.block_mask, "block_mask", "true", "false");
  lacks(spec.dtype == Dtype::kBF16, able.bf16, "dtype", "bf16", "another");
  lacks(spec.dtype == Dtype::kF16, able.fp16, "dtype", "fp16", "another");
  lacks(spec.dtype == Dtype::kF32, able.fp32, "dtype", "fp32", "another");
}

double Forward::flops(const Forward& op) { return 2.0 * pairs_of(op.spec) * static_cast<double>(op.spec.head_dim + op.spec.v_head_dim); }
double Backward::flops(const Backward& op) {
  return 2.0 * pairs_of(op.spec) * static_cast<double>(3 * op.spec.head_dim + 2 * op.spec.v_head_dim);
}

std::size_t scratch_bytes(const Target& target, const Forward& op) {
  require_able(Forward::kName, op.spec, abilities_of(op.implementation));
  switch (op.implementation) {
    case Implementation::kReference: return 0;
    case Implementation::kStandard: return standard_scratch_bytes(target, op);
    default: return tiled_scratch_bytes(target, op);
  }
}
std::size_t scratch_bytes(const Target& target, const Backward& op) {
  require_able(Backward::kName, op.spec, abilities_of(op.implementation));
  switch (op.implementation) {
    case Implementation::kReference: return 0;
    case Implementation::kStandard: return standard_scratch_bytes(target, op);
    default: return tiled_scratch_bytes(target, op);
  }
}

void launch(CpuStream s, const Forward& op, Scratch scratch) {
  require_able(Forward::kName, op.spec, abilities_of(op.implementation));
  check_blocks(op.blocks, op.spec);
  check_lengths(problem_of(op));
  switch (op.implementation) {
    case Implementation::kReference: return reference_forward(op);
    case Implementation::kStandard: return standard_forward(s, op, scratch);
    default: return tiled_forward(s, op, scratch);
  }
}
void launch(CpuStream s, const Backward& op, Scratch scratch) {
  require_able(Backward::kName, op.spec, abilities_of(op.implementation));
  check_blocks(op.blocks, op.spec);
  check_lengths(problem_of(op));
  switch (op.implementation) {
    case Implementation::kReference: return reference_backward(op);
    case Implementation::kStandard: return standard_backward(s, op, scratch);
    default: return tiled_backward(s, op, scratch);
  }
}

void alibi_slopes(std::int64_t heads, float* slopes) {
  require(heads >= 1, "alibi_slopes: heads = ", heads, ", expected at least 1");
  for (std::int64_t h = 0; h < heads; ++h) slopes[h] = alibi_slope(heads, h);
}

}  // namespace flashgpt::attention
