// The C ABI of flashgpt/flashgpt.h: structs translated into ops, exceptions into a status and a message. No maths.
#include "flashgpt/flashgpt.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include "attention/decode.h"
#include "core/target.h"

struct flashgpt_context {
  explicit flashgpt_context(int threads) : pool(threads, false), target(flashgpt::cpu_target(threads)) {}
  flashgpt::ThreadPool pool;
  flashgpt::Target target;
  std::mutex turn;
};

namespace {

using namespace flashgpt;

// Fixed, so that even a failure allocates nothing here.
thread_local char last_message[1024] = "";

flashgpt_status failed(flashgpt_status status, const char* message) {
  std::snprintf(last_message, sizeof last_message, "%s", message);
  return status;
}

template <class F> flashgpt_status guarded(F&& f) {
  try {
    f();
    return FLASHGPT_OK;
  } catch (const Error& e) {
    return failed(e.code() == ErrorCode::kDevice    ? FLASHGPT_DEVICE
                  : e.code() == ErrorCode::kFailure ? FLASHGPT_FAILURE
                                                    : FLASHGPT_INVALID,
                  e.what());
  } catch (const std::bad_alloc&) {
    return failed(FLASHGPT_DEVICE, "out of memory");
  } catch (const std::exception& e) {
    return failed(FLASHGPT_FAILURE, e.what());
  } catch (...) {
    return failed(FLASHGPT_FAILURE, "unknown failure");
  }
}

// A caller's struct, as far as the caller knows it; what is missing is zero.
template <class T> T received(const T* from, const char* name) {
  require(from != nullptr, name, " is NULL");
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  require(size >= sizeof size && size <= 4096, name, "->size = ", size, ", expected the size of the struct, ", sizeof(T));
  T to{};
  std::memcpy(&to, from, size < sizeof to ? size : sizeof to);
  return to;
}

Tensor tensor(const char* name, const flashgpt_tensor& t) {
  require(t.rank >= 0 && t.rank <= kMaxRank, name, ".rank = ", t.rank, ", expected 0 to ", kMaxRank);
  if (t.rank == 0) {
    require(t.data == nullptr, name, ".rank = 0, expected the number of its dimensions");
    return {};
  }
  require(
      t.dtype == FLASHGPT_F32 || t.dtype == FLASHGPT_BF16 || t.dtype == FLASHGPT_F16 || t.dtype == FLASHGPT_I64 || t.dtype == FLASHGPT_I32,
      name, ".dtype = ", t.dtype, ", expected one of FLASHGPT_F32, BF16, F16, I64, I32");
  Tensor r;
  r.data = t.data;
  r.dtype = static_cast<Dtype>(t.dtype);
  r.shape.rank = t.rank;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
  std::int64_t elements = 1;
  for (int i = 0; i < t.rank; ++i) {
    require(t.shape[i] >= 0 && t.shape[i] <= INT32_MAX, name, ".shape[", i, "] = ", t.shape[i], ", expected 0 to ", INT32_MAX);
    require(t.strides[i] >= -kMostElements && t.strides[i] <= kMostElements, name, ".strides[", i, "] = ", t.strides[i],
            ", expected at most ", kMostElements);
    require(t.shape[i] <= kMostElements / elements, name, " has too many elements, expected at most ", kMostElements);
    elements *= t.shape[i] > 0 ? t.shape[i] : 1;
    r.shape.dims[i] = t.shape[i];
    r.strides[i] = t.strides[i];
  }
  return r;
}
static_assert(static_cast<int>(Dtype::kF32) == FLASHGPT_F32 && static_cast<int>(Dtype::kBF16) == FLASHGPT_BF16 &&
              static_cast<int>(Dtype::kF16) == FLASHGPT_F16 && static_cast<int>(Dtype::kI64) == FLASHGPT_I64 &&
              static_cast<int>(Dtype::kI32) == FLASHGPT_I32);

AttentionSpec spec_of(const flashgpt_attention_spec* from) {
  const flashgpt_attention_spec s = received(from, "spec");
  require(s.dtype == FLASHGPT_F32 || s.dtype == FLASHGPT_BF16 || s.dtype == FLASHGPT_F16, "spec.dtype = ", s.dtype,
          ", expected FLASHGPT_F32, BF16 or F16");
  AttentionSpec r;
  r.batch = s.batch, r.max_q = s.max_q, r.max_k = s.max_k, r.total_q = s.total_q, r.total_k = s.total_k;
  r.heads = s.heads, r.kv_heads = s.kv_heads, r.head_dim = s.head_dim, r.v_head_dim = s.v_head_dim;
  r.varlen = s.varlen != 0;
  r.dtype = static_cast<Dtype>(s.dtype);
  r.scale = s.scale, r.softcap = s.softcap;
  r.alibi = s.alibi != 0, r.sink = s.sink != 0, r.causal = s.causal != 0, r.block_mask = s.block_mask != 0;
  r.window_left = s.window_left, r.window_right = s.window_right;
  r.block_q = s.block_q, r.block_k = s.block_k;
  r.dropout = s.dropout, r.dropout_stream = s.dropout_stream;
  r.head_offset = s.head_offset, r.total_heads = s.total_heads;
  r.partial_output = s.partial_output != 0;
  return r;
}

attention::BlockLists lists(const flashgpt_block_lists& b) {
  return {tensor("full_count", b.full_count), tensor("partial_count", b.partial_count), tensor("full_index", b.full_index),
          tensor("partial_index", b.partial_index)};
}

attention::Forward op_of(const flashgpt_attention_spec* spec, const flashgpt_attention_forward_args* args) {
  const flashgpt_attention_forward_args a = received(args, "args");
  attention::Forward f;
  f.spec = spec_of(spec);
  f.o = tensor("o", a.o), f.lse = tensor("lse", a.lse);
  f.q = tensor("q", a.q), f.k = tensor("k", a.k), f.v = tensor("v", a.v);
  f.cu_seqlens_q = tensor("cu_seqlens_q", a.cu_seqlens_q), f.cu_seqlens_k = tensor("cu_seqlens_k", a.cu_seqlens_k);
  f.seqused_q = tensor("seqused_q", a.seqused_q), f.seqused_k = tensor("seqused_k", a.seqused_k);
  f.alibi_slopes = tensor("alibi_slopes", a.alibi_slopes), f.sink = tensor("sink", a.sink);
  f.dropout_state = tensor("dropout_state", a.dropout_state);
  f.blocks = lists(a.blocks);
  return f;
}

attention::Backward op_of(const flashgpt_attention_spec* spec, const flashgpt_attention_backward_args* args) {
  const flashgpt_attention_backward_args a = received(args, "args");
  attention::Backward b;
  b.spec = spec_of(spec);
  b.dq = tensor("dq", a.dq), b.dk = tensor("dk", a.dk), b.dv = tensor("dv", a.dv), b.dout = tensor("dout", a.dout);
  b.q = tensor("q", a.q), b.k = tensor("k", a.k), b.v = tensor("v", a.v), b.o = tensor("o", a.o);
  b.lse = tensor("lse", a.lse), b.dlse = tensor("dlse", a.dlse);
  b.cu_seqlens_q = tensor("cu_seqlens_q", a.cu_seqlens_q), b.cu_seqlens_k = tensor("cu_seqlens_k", a.cu_seqlens_k);
  b.seqused_q = tensor("seqused_q", a.seqused_q), b.seqused_k = tensor("seqused_k", a.seqused_k);
  b.alibi_slopes = tensor("alibi_slopes", a.alibi_slopes), b.sink = tensor("sink", a.sink);
  b.dropout_state = tensor("dropout_state", a.dropout_state), b.dsink = tensor("dsink", a.dsink);
  b.blocks = lists(a.blocks), b.key_blocks = lists(a.key_blocks);
  return b;
}

attention::Decode op_of(const flashgpt_attention_spec* spec, const flashgpt_attention_decode_args* args) {
  const flashgpt_attention_decode_args a = received(args, "args");
  attention::Decode d;
  d.spec = spec_of(spec);
  d.o = tensor("o", a.o), d.lse = tensor("lse", a.lse), d.q = tensor("q", a.q);
  d.k_cache = tensor("k_cache", a.k_cache), d.v_cache = tensor("v_cache", a.v_cache);
  d.k_new = tensor("k_new", a.k_new), d.v_new = tensor("v_new", a.v_new);
  d.lengths = tensor("lengths", a.lengths), d.new_lengths = tensor("new_lengths", a.new_lengths);
  d.seqused_q = tensor("seqused_q", a.seqused_q), d.batch_index = tensor("batch_index", a.batch_index);
  d.left_pad = tensor("left_pad", a.left_pad), d.page_table = tensor("page_table", a.page_table);
  d.rotary_cos = tensor("rotary_cos", a.rotary_cos), d.rotary_sin = tensor("rotary_sin", a.rotary_sin);
  d.alibi_slopes = tensor("alibi_slopes", a.alibi_slopes), d.sink = tensor("sink", a.sink);
  d.rotary_interleaved = a.rotary_interleaved != 0;
  return d;
}

// Checks, and what the call will need.
template <class Args> std::size_t plan(const flashgpt_context* context, const flashgpt_attention_spec* spec, const Args* args) {
  require(context != nullptr, "context is NULL");
  const auto op = op_of(spec, args);
  check(op);
  return scratch_bytes(context->target, op);
}

template <class Args> flashgpt_status call(flashgpt_context* context, const flashgpt_attention_spec* spec, const Args* args,
                                           void* workspace, std::size_t bytes, const void* stream) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(stream == nullptr, "stream is given, expected NULL on the CPU");
    const auto op = op_of(spec, args);
    check(op);
    const std::size_t needed = scratch_bytes(context->target, op);
    require(bytes >= needed, "bytes = ", bytes, ", expected a workspace of at least ", needed);
    require(workspace != nullptr || needed == 0, "workspace is NULL, expected ", needed, " bytes");
    require(reinterpret_cast<std::uintptr_t>(workspace) % alignof(std::int64_t) == 0, "workspace is not aligned to 8 bytes");
    const std::lock_guard lock(context->turn);
    launch(CpuStream{context->pool}, op, Scratch{workspace, needed});
  });
}

template <class Args> flashgpt_status prepare(const flashgpt_context* context, const flashgpt_attention_spec* spec, const Args* args) {
  return guarded([&] { plan(context, spec, args); });
}
template <class Args>
flashgpt_status workspace_of(const flashgpt_context* context, const flashgpt_attention_spec* spec, const Args* args, std::size_t* bytes) {
  return guarded([&] {
    require(bytes != nullptr, "bytes is NULL");
    *bytes = plan(context, spec, args);
  });
}

}  // namespace

extern "C" {

const char* flashgpt_version(void) { return FLASHGPT_VERSION; }
const char* flashgpt_message(void) { return last_message; }

flashgpt_status flashgpt_create(const flashgpt_context_options* options, flashgpt_context** context) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    *context = nullptr;
    const flashgpt_context_options o = received(options, "options");
    if (o.device != FLASHGPT_CPU)
      throw Error(ErrorCode::kDevice, cat("options.device = ", o.device, ", expected FLASHGPT_CPU: this library has no other yet"));
    require(o.threads >= 0 && o.threads <= 4096, "options.threads = ", o.threads, ", expected 0 to 4096");
    *context = new flashgpt_context(o.threads > 0 ? o.threads : default_threads());
  });
}
void flashgpt_destroy(flashgpt_context* context) { delete context; }

int64_t flashgpt_attention_key_tile(const flashgpt_context* context) {
  return context ? attention::flash_key_tile(context->target.isa) : 0;
}

void flashgpt_attention_spec_init(flashgpt_attention_spec* spec) {
  if (spec == nullptr) return;
  *spec = {};
  spec->size = sizeof *spec;
  spec->window_left = spec->window_right = kNoWindow;
}

flashgpt_status flashgpt_attention_forward_prepare(flashgpt_context* c, const flashgpt_attention_spec* s,
                                                   const flashgpt_attention_forward_args* a) {
  return prepare(c, s, a);
}
flashgpt_status flashgpt_attention_forward_workspace(flashgpt_context* c, const flashgpt_attention_spec* s,
                                                     const flashgpt_attention_forward_args* a, size_t* bytes) {
  return workspace_of(c, s, a, bytes);
}
flashgpt_status flashgpt_attention_forward(flashgpt_context* c, const flashgpt_attention_spec* s, const flashgpt_attention_forward_args* a,
                                           void* workspace, size_t bytes, void* stream) {
  return call(c, s, a, workspace, bytes, stream);
}

flashgpt_status flashgpt_attention_backward_prepare(flashgpt_context* c, const flashgpt_attention_spec* s,
                                                    const flashgpt_attention_backward_args* a) {
  return prepare(c, s, a);
}
flashgpt_status flashgpt_attention_backward_workspace(flashgpt_context* c, const flashgpt_attention_spec* s,
                                                      const flashgpt_attention_backward_args* a, size_t* bytes) {
  return workspace_of(c, s, a, bytes);
}
flashgpt_status flashgpt_attention_backward(flashgpt_context* c, const flashgpt_attention_spec* s,
                                            const flashgpt_attention_backward_args* a, void* workspace, size_t bytes, void* stream) {
  return call(c, s, a, workspace, bytes, stream);
}

flashgpt_status flashgpt_attention_decode_prepare(flashgpt_context* c, const flashgpt_attention_spec* s,
                                                  const flashgpt_attention_decode_args* a) {
  return prepare(c, s, a);
}
flashgpt_status flashgpt_attention_decode_workspace(flashgpt_context* c, const flashgpt_attention_spec* s,
                                                    const flashgpt_attention_decode_args* a, size_t* bytes) {
  return workspace_of(c, s, a, bytes);
}
flashgpt_status flashgpt_attention_decode(flashgpt_context* c, const flashgpt_attention_spec* s, const flashgpt_attention_decode_args* a,
                                          void* workspace, size_t bytes, void* stream) {
  return call(c, s, a, workspace, bytes, stream);
}

}  // extern "C"
