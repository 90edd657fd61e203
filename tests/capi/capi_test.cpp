// The C ABI: the same bits as the ops, a status and a message for every fault, no allocation in a call, and nothing else exported.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <thread>

#include "allocations.h"
#include "attention/case.h"
#include "attention/decode.h"
#include "flashgpt/flashgpt.h"

namespace flashgpt::attention::testing {
namespace {

flashgpt_tensor c_tensor(const Tensor& t) {
  flashgpt_tensor r{};
  if (t.rank() == 0) return r;
  r.data = t.data, r.dtype = static_cast<std::int32_t>(t.dtype), r.rank = t.rank();
  for (int i = 0; i < t.rank(); ++i) r.shape[i] = t.dim(i), r.strides[i] = t.strides[i];
  return r;
}
flashgpt_block_lists c_lists(const BlockLists& b) {
  return {c_tensor(b.full_count), c_tensor(b.partial_count), c_tensor(b.full_index), c_tensor(b.partial_index)};
}
flashgpt_attention_spec c_spec(const AttentionSpec& s) {
  flashgpt_attention_spec r;
  flashgpt_attention_spec_init(&r);
  r.batch = s.batch, r.max_q = s.max_q, r.max_k = s.max_k, r.total_q = s.total_q, r.total_k = s.total_k;
  r.heads = s.heads, r.kv_heads = s.kv_heads, r.head_dim = s.head_dim, r.v_head_dim = s.v_head_dim;
  r.varlen = s.varlen, r.dtype = static_cast<std::int32_t>(s.dtype), r.scale = s.scale, r.softcap = s.softcap;
  r.alibi = s.alibi, r.sink = s.sink, r.causal = s.causal, r.block_mask = s.block_mask;
  r.window_left = s.window_left, r.window_right = s.window_right, r.block_q = s.block_q, r.block_k = s.block_k;
  r.dropout = s.dropout, r.dropout_stream = s.dropout_stream, r.head_offset = s.head_offset, r.total_heads = s.total_heads;
  r.partial_output = s.partial_output;
  return r;
}
flashgpt_attention_forward_args c_args(const Forward& f) {
  return {sizeof(flashgpt_attention_forward_args),
          c_tensor(f.o),
          c_tensor(f.lse),
          c_tensor(f.q),
          c_tensor(f.k),
          c_tensor(f.v),
          c_tensor(f.cu_seqlens_q),
          c_tensor(f.cu_seqlens_k),
          c_tensor(f.seqused_q),
          c_tensor(f.seqused_k),
          c_tensor(f.alibi_slopes),
          c_tensor(f.sink),
          c_tensor(f.dropout_state),
          c_lists(f.blocks)};
}
flashgpt_attention_backward_args c_args(const Backward& b) {
  return {sizeof(flashgpt_attention_backward_args),
          c_tensor(b.dq),
          c_tensor(b.dk),
          c_tensor(b.dv),
          c_tensor(b.dout),
          c_tensor(b.q),
          c_tensor(b.k),
          c_tensor(b.v),
          c_tensor(b.o),
          c_tensor(b.lse),
          c_tensor(b.dlse),
          c_tensor(b.cu_seqlens_q),
          c_tensor(b.cu_seqlens_k),
          c_tensor(b.seqused_q),
          c_tensor(b.seqused_k),
          c_tensor(b.alibi_slopes),
          c_tensor(b.sink),
          c_tensor(b.dropout_state),
          c_tensor(b.dsink),
          c_lists(b.blocks),
          c_lists(b.key_blocks)};
}

struct Host {
  flashgpt_context* context = nullptr;
  explicit Host(int threads = 2) {
    const flashgpt_context_options options{sizeof options, FLASHGPT_CPU, threads};
    EXPECT_EQ(flashgpt_create(&options, &context), FLASHGPT_OK) << flashgpt_message();
  }
  ~Host() { flashgpt_destroy(context); }
};

// Every feature at once, so that every field is carried.
Case full_case() {
  Case c{.name = "", .spec = dense(2, 90, 140, 4, 2, 40, true), .slopes_per_batch = true, .dlse = true};
  AttentionSpec& s = c.spec;
  s.sink = s.alibi = s.block_mask = true;
  s.block_q = 32, s.block_k = 48, s.dropout = 0.3f, s.dropout_stream = 4, s.softcap = 6, s.scale = 0.2f, s.v_head_dim = 24,
  s.window_left = 70;
  s.total_heads = 8, s.head_offset = 2;
  c.blocks = [](const AttentionSpec& spec) { return sparse_blocks(spec, 90, 140, {.local = 2, .global = 1}); };
  c.used_k = {140, 120};
  return c;
}

TEST(CApi, ForwardAndBackwardGiveTheBitsOfTheOps) {
  const Host host;
  ThreadPool pool(3, false);
  Case varlen{.name = "", .spec = dense(0, 0, 0, 2, 2, 16, true), .lens_q = {5, 0, 30}, .lens_k = {7, 3, 30}, .tail_q = 3, .tail_k = 2};
  varlen.spec.window_right = 0;
  for (const Case& c : {full_case(), varlen}) {
    Ops<float> want, got;
    build(c, 1, want);
    build(c, 1, got);
    launch_guarded(pool, want.forward);
    launch_guarded(pool, want.backward);
    const flashgpt_attention_spec spec = c_spec(got.forward.spec);
    const flashgpt_attention_forward_args f = c_args(got.forward);
    const flashgpt_attention_backward_args b = c_args(got.backward);
    std::size_t forward_bytes = 0, backward_bytes = 0;
    ASSERT_EQ(flashgpt_attention_forward_prepare(host.context, &spec, &f), FLASHGPT_OK) << flashgpt_message();
    ASSERT_EQ(flashgpt_attention_backward_prepare(host.context, &spec, &b), FLASHGPT_OK) << flashgpt_message();
    ASSERT_EQ(flashgpt_attention_forward_workspace(host.context, &spec, &f, &forward_bytes), FLASHGPT_OK);
    ASSERT_EQ(flashgpt_attention_backward_workspace(host.context, &spec, &b, &backward_bytes), FLASHGPT_OK);
    std::vector<double> workspace(std::max(forward_bytes, backward_bytes) / 8 + 1);
    const std::int64_t before = flashgpt::testing::allocations();
    const flashgpt_status forward = flashgpt_attention_forward(host.context, &spec, &f, workspace.data(), forward_bytes, nullptr);
    const flashgpt_status backward = flashgpt_attention_backward(host.context, &spec, &b, workspace.data(), backward_bytes, nullptr);
    EXPECT_EQ(flashgpt::testing::allocations(), before) << "a call allocates";
    ASSERT_EQ(forward, FLASHGPT_OK) << flashgpt_message();
    ASSERT_EQ(backward, FLASHGPT_OK) << flashgpt_message();
    EXPECT_TRUE(values(got.forward.o) == values(want.forward.o));
    EXPECT_TRUE(values(got.forward.lse) == values(want.forward.lse));
    EXPECT_TRUE(values(got.backward.dq) == values(want.backward.dq));
    EXPECT_TRUE(values(got.backward.dk) == values(want.backward.dk));
    EXPECT_TRUE(values(got.backward.dv) == values(want.backward.dv));
    if (c.spec.sink) {
      EXPECT_TRUE(values(got.backward.dsink) == values(want.backward.dsink));
    }
  }
}

TEST(CApi, DecodeAppendsAndAttends) {
  const Host host;
  Buffers<float> memory;
  std::mt19937 rng(1);
  auto make = [&](Shape shape) {
    Tensor t = memory.make(shape, 0, kNan);
    fill_normal(t, rng, 1.0f);
    return t;
  };
  std::vector<std::int32_t> lengths{9, 3}, pad{1, 0}, index{2, 0};
  auto ints = [](std::vector<std::int32_t>& v) { return Tensor(v.data(), {static_cast<std::int64_t>(v.size())}, Dtype::kI32); };
  Decode d;
  d.spec = dense(2, 2, 12, 4, 2, 8, true);
  d.q = make({2, 2, 4, 8}), d.k_cache = make({3, 12, 2, 8}), d.v_cache = make({3, 12, 2, 8});
  d.k_new = make({2, 2, 2, 8}), d.v_new = make({2, 2, 2, 8}), d.rotary_cos = make({20, 4}), d.rotary_sin = make({20, 4});
  d.rotary_interleaved = true;
  d.lengths = ints(lengths), d.left_pad = ints(pad), d.batch_index = ints(index);
  d.o = make({2, 2, 4, 8}), d.lse = make({2, 4, 2});
  Buffers<float> copies;
  Decode c = d;
  for (auto field : {&Decode::k_cache, &Decode::v_cache, &Decode::o, &Decode::lse}) {
    c.*field = copies.make((d.*field).shape, 0, kNan);
    std::memcpy((c.*field).data, (d.*field).data, (d.*field).bytes());
  }
  ThreadPool pool(2, false);
  launch_guarded(pool, d);
  const flashgpt_attention_spec spec = c_spec(c.spec);
  flashgpt_attention_decode_args a{};
  a.size = sizeof a;
  a.o = c_tensor(c.o), a.lse = c_tensor(c.lse), a.q = c_tensor(c.q), a.k_cache = c_tensor(c.k_cache), a.v_cache = c_tensor(c.v_cache);
  a.k_new = c_tensor(c.k_new), a.v_new = c_tensor(c.v_new), a.lengths = c_tensor(c.lengths), a.batch_index = c_tensor(c.batch_index);
  a.left_pad = c_tensor(c.left_pad), a.rotary_cos = c_tensor(c.rotary_cos), a.rotary_sin = c_tensor(c.rotary_sin);
  a.rotary_interleaved = 1;
  std::size_t bytes = 0;
  ASSERT_EQ(flashgpt_attention_decode_prepare(host.context, &spec, &a), FLASHGPT_OK) << flashgpt_message();
  ASSERT_EQ(flashgpt_attention_decode_workspace(host.context, &spec, &a, &bytes), FLASHGPT_OK);
  std::vector<double> workspace(bytes / 8 + 1);
  const std::int64_t before = flashgpt::testing::allocations();
  const flashgpt_status status = flashgpt_attention_decode(host.context, &spec, &a, workspace.data(), bytes, nullptr);
  EXPECT_EQ(flashgpt::testing::allocations(), before) << "a call allocates";
  ASSERT_EQ(status, FLASHGPT_OK) << flashgpt_message();
  for (auto field : {&Decode::k_cache, &Decode::v_cache, &Decode::o, &Decode::lse}) EXPECT_TRUE(values(c.*field) == values(d.*field));
}

TEST(CApi, FaultsAreStatusAndMessage) {
  const Host host;
  Ops<float> ops;
  build(full_case(), 1, ops);
  const flashgpt_attention_spec spec = c_spec(ops.forward.spec);
  const flashgpt_attention_forward_args args = c_args(ops.forward);
  std::size_t bytes = 0;
  ASSERT_EQ(flashgpt_attention_forward_workspace(host.context, &spec, &args, &bytes), FLASHGPT_OK);
  std::vector<double> workspace(bytes / 8 + 1);
  auto expect = [&](const char* want, flashgpt_status status, flashgpt_status want_status = FLASHGPT_INVALID) {
    EXPECT_EQ(status, want_status);
    EXPECT_NE(std::string(flashgpt_message()).find(want), std::string::npos) << "expected: " << want << "\ngot: " << flashgpt_message();
  };
  auto run = [&](const flashgpt_attention_spec& s, const flashgpt_attention_forward_args& a) {
    return flashgpt_attention_forward(host.context, &s, &a, workspace.data(), bytes, nullptr);
  };
  flashgpt_attention_spec s = spec;
  flashgpt_attention_forward_args a = args;
  s.heads = 5;
  expect("heads = 5, expected a multiple of kv_heads = 2", run(s, args));
  s = spec, s.dtype = 9;
  expect("spec.dtype = 9", run(s, args));
  s = spec, s.size = 3;
  expect("spec->size = 3", run(s, args));
  a.q.rank = 6;
  expect("q.rank = 6, expected 0 to 5", run(spec, a));
  a = args, a.k.dtype = 77;
  expect("k.dtype = 77", run(spec, a));
  a = args, a.v.shape[1] = -1;
  expect("v.shape[1] = -1", run(spec, a));
  a = args, a.o = {};
  expect("o is missing", run(spec, a));
  expect("expected a workspace of at least", flashgpt_attention_forward(host.context, &spec, &args, workspace.data(), bytes - 1, nullptr));
  expect("workspace is NULL", flashgpt_attention_forward(host.context, &spec, &args, nullptr, bytes, nullptr));
  expect("not aligned",
         flashgpt_attention_forward(host.context, &spec, &args, reinterpret_cast<char*>(workspace.data()) + 1, bytes, nullptr));
  expect("stream is given", flashgpt_attention_forward(host.context, &spec, &args, workspace.data(), bytes, workspace.data()));
  expect("context is NULL", flashgpt_attention_forward(nullptr, &spec, &args, workspace.data(), bytes, nullptr));
  expect("args is NULL", flashgpt_attention_forward(host.context, &spec, nullptr, workspace.data(), bytes, nullptr));
  expect("bytes is NULL", flashgpt_attention_forward_workspace(host.context, &spec, &args, nullptr));
  expect("seqused_k[0] = 141, expected 0 to 140", [&] {
    ops.used_k[0] = 141;
    const flashgpt_status r = run(spec, args);
    ops.used_k[0] = 140;
    return r;
  }());
  flashgpt_context* none = nullptr;
  const flashgpt_context_options cuda{sizeof cuda, FLASHGPT_CUDA, 0};
  expect("options.device = 1", flashgpt_create(&cuda, &none), FLASHGPT_DEVICE);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(run(spec, args), FLASHGPT_OK) << flashgpt_message();
  EXPECT_EQ(flashgpt_attention_key_tile(host.context), flash_key_tile(cpu_target(1).isa));
  EXPECT_EQ(flashgpt_attention_key_tile(nullptr), 0);
}

// A caller who knows fewer fields: those behind its struct are absent.
TEST(CApi, OlderStructsAreShorter) {
  const Host host;
  Ops<float> ops;
  build({.name = "", .spec = dense(1, 8, 8, 2, 2, 8, true)}, 1, ops);
  flashgpt_attention_spec spec = c_spec(ops.forward.spec);
  flashgpt_attention_forward_args args = c_args(ops.forward);
  spec.size = offsetof(flashgpt_attention_spec, block_q);
  spec.dropout = 0.5f;  // not known to such a caller
  args.size = offsetof(flashgpt_attention_forward_args, sink);
  args.sink.rank = 77;
  std::size_t bytes = 0;
  ASSERT_EQ(flashgpt_attention_forward_workspace(host.context, &spec, &args, &bytes), FLASHGPT_OK) << flashgpt_message();
  std::vector<double> workspace(bytes / 8 + 1);
  EXPECT_EQ(flashgpt_attention_forward(host.context, &spec, &args, workspace.data(), bytes, nullptr), FLASHGPT_OK) << flashgpt_message();
}

TEST(CApi, ThreadsTakeTurns) {
  const Host host;
  Ops<float> want;
  const Case c{.name = "", .spec = dense(1, 64, 64, 2, 2, 16, true)};
  build(c, 1, want);
  ThreadPool pool(1, false);
  launch_guarded(pool, want.forward);
  auto work = [&] {
    Ops<float> ops;
    build(c, 1, ops);
    const flashgpt_attention_spec spec = c_spec(ops.forward.spec);
    const flashgpt_attention_forward_args args = c_args(ops.forward);
    std::size_t bytes = 0;
    EXPECT_EQ(flashgpt_attention_forward_workspace(host.context, &spec, &args, &bytes), FLASHGPT_OK);
    std::vector<double> workspace(bytes / 8 + 1);
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(flashgpt_attention_forward(host.context, &spec, &args, workspace.data(), bytes, nullptr), FLASHGPT_OK);
    EXPECT_TRUE(values(ops.forward.o) == values(want.forward.o));
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
}

#ifdef FLASHGPT_LIBRARY
TEST(CApi, LibraryExportsTheHeaderOnly) {
  FILE* nm = popen("nm -D --defined-only " FLASHGPT_LIBRARY, "r");
  ASSERT_NE(nm, nullptr);
  char line[1024];
  int symbols = 0;
  while (std::fgets(line, sizeof line, nm)) {
    const std::string name = std::string(line).substr(std::string(line).rfind(' ') + 1);
    EXPECT_EQ(name.rfind("flashgpt_", 0), 0u) << line;
    ++symbols;
  }
  pclose(nm);
  EXPECT_EQ(symbols, 15);
  void* library = dlopen(FLASHGPT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* version = reinterpret_cast<const char* (*)()>(dlsym(library, "flashgpt_version"));
  ASSERT_NE(version, nullptr);
  EXPECT_STREQ(version(), flashgpt_version());
}
#endif

}  // namespace
}  // namespace flashgpt::attention::testing
