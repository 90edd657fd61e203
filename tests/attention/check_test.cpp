// Every fault of an argument is an Error that names it, its value and what was expected, before anything runs.
#include <functional>

#include "attention/case.h"

namespace flashgpt::attention::testing {
namespace {

template <class Op> std::string message_of(const Op& op) {
  try {
    check(op);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct Fault {
  std::string expected;  // part of the message
  std::function<void(Forward&)> make;
};

TEST(AttentionCheck, FaultsOfForward) {
  const Fault faults[] = {
      {"heads = 4, expected a multiple of kv_heads = 3", [](Forward& f) { f.spec.kv_heads = 3; }},
      {"head_dim = 0, expected at least 1", [](Forward& f) { f.spec.head_dim = 0; }},
      {"max_q = 2147483648, expected at most 2147483647", [](Forward& f) { f.spec.max_q = std::int64_t{1} << 31; }},
      {"total_heads = -1, expected at least 0", [](Forward& f) { f.spec.total_heads = -1; }},
      {"batch = -1", [](Forward& f) { f.spec.batch = -1; }},
      {"q is missing", [](Forward& f) { f.q = {}; }},
      {"q has shape [2, 5, 4, 16], expected [2, 6, 4, 16]", [](Forward& f) { f.spec.max_q = 6; }},
      {"k has shape [2, 7, 2, 16], expected [2, 9, 2, 16]", [](Forward& f) { f.spec.max_k = 9; }},
      {"v has shape", [](Forward& f) { f.spec.v_head_dim = 8; }},
      {"o has shape", [](Forward& f) { f.o = f.k; }},
      {"lse has shape",
       [](Forward& f) {
         f.lse.shape = {2, 5, 4};
       }},
      {"lse is fp64, expected fp32", [](Forward& f) { f.lse.dtype = Dtype::kF64; }},
      {"q is bf16, expected fp32", [](Forward& f) { f.q.dtype = Dtype::kBF16; }},
      {"q is fp32, expected bf16", [](Forward& f) { f.spec.dtype = Dtype::kBF16; }},
      {"dtype = int32, expected fp32, bf16 or fp16", [](Forward& f) { f.spec.dtype = Dtype::kI32; }},
      {"q has stride 2 in its last dimension, expected 1", [](Forward& f) { f.q.strides[3] = 2; }},
      {"scale = -1", [](Forward& f) { f.spec.scale = -1; }},
      {"scale = nan", [](Forward& f) { f.spec.scale = kNan; }},
      {"softcap = -2", [](Forward& f) { f.spec.softcap = -2; }},
      {"window_left = -2, expected at least -1", [](Forward& f) { f.spec.window_left = -2; }},
      {"window_right = 3 with causal", [](Forward& f) { f.spec.causal = true, f.spec.window_right = 3; }},
      {"dropout = 1, expected 0 or a number from 1/512 to below 511/512", [](Forward& f) { f.spec.dropout = 1.0f; }},
      {"dropout = 0.001", [](Forward& f) { f.spec.dropout = 0.001f; }},
      {"dropout = nan", [](Forward& f) { f.spec.dropout = kNan; }},
      {"dropout_state is missing, expected int64 [2]", [](Forward& f) { f.spec.dropout = 0.1f; }},
      {"dropout_state given, but spec.dropout is 0", [](Forward& f) { f.dropout_state = Tensor(f.lse.data, {2}, Dtype::kI64); }},
      {"sink is missing, expected fp32 [4]", [](Forward& f) { f.spec.sink = true; }},
      {"sink has shape [2], expected [4]", [](Forward& f) { f.spec.sink = true, f.sink = Tensor(f.lse.data, {2}, Dtype::kF32); }},
      {"sink given, but spec.sink is false", [](Forward& f) { f.sink = Tensor(f.lse.data, {4}, Dtype::kF32); }},
      {"block_q = 0, expected at least 1", [](Forward& f) { f.spec.block_mask = true; }},
      {"blocks are missing", [](Forward& f) { f.spec.block_mask = true, f.spec.block_q = f.spec.block_k = 4; }},
      {"blocks given, but spec.block_mask is false",
       [](Forward& f) {
         f.blocks.full_count = Tensor(f.lse.data, {1, 1, 2}, Dtype::kI32);
       }},
      {"blocks.full_count has shape [1, 1, 3], expected [1, 1, 2]",
       [](Forward& f) {
         f.spec.block_mask = true, f.spec.block_q = f.spec.block_k = 4;
         f.blocks.full_count = Tensor(f.lse.data, {1, 1, 3}, Dtype::kI32);
       }},
      {"blocks.full_index has shape [1, 4, 2, 2], expected [1, 1, 2, 2]",
       [](Forward& f) {
         f.spec.block_mask = true, f.spec.block_q = f.spec.block_k = 4;
         f.blocks.full_count = Tensor(f.lse.data, {1, 1, 2}, Dtype::kI32);
         f.blocks.full_index = Tensor(f.lse.data, {1, 4, 2, 2}, Dtype::kI32);
       }},
      {"o is fp32, expected bf16", [](Forward& f) { f.spec.dtype = f.q.dtype = f.k.dtype = f.v.dtype = Dtype::kBF16; }},
      {"head_offset = 2, expected 0 to total_heads - heads = 0", [](Forward& f) { f.spec.head_offset = 2; }},
      {"cu_seqlens given, but spec.varlen is false", [](Forward& f) { f.cu_seqlens_q = f.lse; }},
      {"seqused_k is fp32, expected int32", [](Forward& f) { f.seqused_k = Tensor(f.lse.data, {2}, Dtype::kF32); }},
      {"seqused_q has shape [3], expected [2]", [](Forward& f) { f.seqused_q = Tensor(f.lse.data, {3}, Dtype::kI32); }},
      {"alibi_slopes given, but spec.alibi is false", [](Forward& f) { f.alibi_slopes = Tensor(f.lse.data, {4}, Dtype::kF32); }},
      {"alibi_slopes has shape [5], expected [4]",
       [](Forward& f) { f.spec.alibi = true, f.alibi_slopes = Tensor(f.lse.data, {5}, Dtype::kF32); }},
  };
  for (const Fault& fault : faults) {
    Ops<float> ops;
    build({.name = "", .spec = dense(2, 5, 7, 4, 2, 16)}, 1, ops);
    EXPECT_EQ(message_of(ops.forward), "");
    fault.make(ops.forward);
    EXPECT_NE(message_of(ops.forward).find("attention_forward: " + fault.expected), std::string::npos)
        << "expected: " << fault.expected << "\ngot: " << message_of(ops.forward);
  }
}

TEST(AttentionCheck, FaultsOfBackward) {
  Ops<float> ops;
  build({.name = "", .spec = dense(2, 5, 7, 4, 2, 16), .dlse = true}, 1, ops);
  EXPECT_EQ(message_of(ops.backward), "");
  Backward b = ops.backward;
  b.lse = {};
  EXPECT_NE(message_of(b).find("lse is missing, expected fp32 [2, 4, 5]"), std::string::npos) << message_of(b);
  b = ops.backward;
  b.dk = b.dq;
  EXPECT_NE(message_of(b).find("dk has shape [2, 5, 4, 16], expected [2, 7, 2, 16]"), std::string::npos) << message_of(b);
  b = ops.backward;
  b.dlse.shape = {2, 4, 6};
  EXPECT_NE(message_of(b).find("dlse has shape"), std::string::npos) << message_of(b);
  b = ops.backward;
  b.dsink = Tensor(b.lse.data, {4}, Dtype::kF32);
  EXPECT_NE(message_of(b).find("dsink given, but spec.sink is false"), std::string::npos) << message_of(b);
  b.spec.sink = true;
  b.sink = b.dsink;
  EXPECT_EQ(message_of(b), "");
  b.dsink.shape = {3};
  EXPECT_NE(message_of(b).find("dsink has shape [3], expected [4]"), std::string::npos) << message_of(b);
  b = ops.backward;
  b.key_blocks.partial_count = Tensor(b.lse.data, {1, 1, 2}, Dtype::kI32);
  EXPECT_NE(message_of(b).find("key_blocks given, but spec.block_mask is false"), std::string::npos) << message_of(b);
}

// What a backend lacks is refused with the argument's and the backend's name, when memory is planned and when it runs.
TEST(AttentionCheck, RefusalsNameArgumentAndBackend) {
  const Abilities none{.backend = "attention for tests", .fp32 = false};
  auto message = [&](AttentionSpec s) -> std::string {
    try {
      require_able("op", s, none);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  AttentionSpec s;
  EXPECT_EQ(message(s), "op: dtype = fp32, expected another: attention for tests cannot do it");
  s.dtype = Dtype::kBF16;
  EXPECT_EQ(message(s), "op: dtype = bf16, expected another: attention for tests cannot do it");
  s.block_mask = true;
  EXPECT_EQ(message(s), "op: block_mask = true, expected false: attention for tests cannot do it");
  s.sink = true;
  EXPECT_EQ(message(s), "op: sink = true, expected false: attention for tests cannot do it");
  s.dropout = 0.25f;
  EXPECT_EQ(message(s), "op: dropout = 0.25, expected 0: attention for tests cannot do it");
}

// Lengths are data: they are looked at when the op runs.
TEST(AttentionCheck, LengthsInMemory) {
  ThreadPool pool(1, false);
  auto message = [&](const Forward& f) -> std::string {
    try {
      std::vector<float> scratch(scratch_bytes(cpu_target(1), f) / 4 + 1);
      launch(CpuStream{pool}, f, Scratch{scratch.data(), scratch.size() * 4});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  Ops<float> ops;
  build({.name = "", .spec = dense(0, 0, 0, 2, 2, 8), .lens_q = {3, 4}, .lens_k = {3, 4}}, 1, ops);
  EXPECT_EQ(message(ops.forward), "");
  ops.cu_q = {0, 5, 4};
  EXPECT_NE(message(ops.forward).find("cu_seqlens_q[1] - cu_seqlens_q[0] = 5, expected 0 to max_q = 4"), std::string::npos)
      << message(ops.forward);
  ops.cu_q = {0, 4, 3};
  EXPECT_NE(message(ops.forward).find("cu_seqlens_q[2] - cu_seqlens_q[1] = -1"), std::string::npos) << message(ops.forward);
  ops.cu_q = {1, 4, 7};
  EXPECT_NE(message(ops.forward).find("cu_seqlens_q[0] = 1, expected 0"), std::string::npos) << message(ops.forward);
  ops.cu_q = {0, 4, 8};
  EXPECT_NE(message(ops.forward).find("cu_seqlens_q[2] = 8, expected at most total_q = 7"), std::string::npos) << message(ops.forward);

  Ops<float> used;
  build({.name = "", .spec = dense(1, 3, 4, 2, 2, 8), .used_k = {4}}, 1, used);
  EXPECT_EQ(message(used.forward), "");
  used.used_k = {5};
  EXPECT_NE(message(used.forward).find("seqused_k[0] = 5, expected 0 to 4"), std::string::npos) << message(used.forward);
}

}  // namespace
}  // namespace flashgpt::attention::testing
