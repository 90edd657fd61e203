// The Hopper kernels behind the table of attention/cuda/dispatch.cpp: which ops they carry, and the calls.
#include "attention/sm80/host.h"

#include <algorithm>

#include "attention/cuda/implementations.h"
#include "attention/sm90/backward.h"
#include "attention/sm90/forward.h"

namespace flashgpt::attention::sm90 {
namespace {

constexpr std::size_t kWorkspaceAlignment = 1024;

constexpr Index kLongest = 1 << 29;  // positions are 32-bit numbers in the kernels

// What the forward has a variant for that has been checked on a GPU: windows, softcap and ALiBi up to head dim 192.
bool has_forward(int capability, const AttentionSpec& s) {
  const bool window = s.window_left != kNoWindow || (!s.causal && s.window_right > 0);
  if ((window || s.softcap != 0 || s.alibi) && std::max(s.head_dim, s.v_head_dim) > 192) return false;
  return capability == 90 && (s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16) && s.head_dim <= 256 && s.v_head_dim <= 256 &&
         s.head_dim % 8 == 0 && s.v_head_dim % 8 == 0 && !s.sink && !s.block_mask && s.dropout == 0 && !s.partial_output && s.scale >= 0 &&
         s.max_q <= kLongest && s.max_k <= kLongest;
}
// The backward.
bool plain(int capability, const AttentionSpec& s) {
  const bool full = s.window_left == kNoWindow && (s.causal ? s.window_right <= 0 : s.window_right == kNoWindow);
  return capability == 90 && (s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16) && s.head_dim == s.v_head_dim &&
         (s.head_dim == 64 || s.head_dim == 128 || s.head_dim == 256) && full && s.softcap == 0 && !s.alibi && !s.sink && !s.block_mask &&
         s.dropout == 0 && !s.partial_output && s.scale >= 0;
}

// Rows that a tensor map can describe.
bool mappable(const Tensor& t) {
  bool good = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  for (int i = 0; i < t.rank() - 1; ++i) good = good && t.strides[i] > 0 && t.strides[i] % 8 == 0 && t.strides[i] < std::int64_t{1} << 33;
  return good;
}
template <class... T> bool all_mappable(const T&... t) { return (mappable(t) && ...); }

bool contiguous(const Tensor& t) {
  std::int64_t expected = 1;
  for (int i = t.rank() - 1; i >= 0; --i) {
    if (t.dim(i) > 1 && t.strides[i] != expected) return false;
    expected *= t.dim(i);
  }
  return true;
}

Rows rows(const Tensor& t, bool varlen) {
  const View<unsigned short> v = rows_view<unsigned short>(t, varlen);
  const int length = static_cast<int>(t.dim(varlen ? 0 : 1));
  return {v.data,
          varlen ? 1 : static_cast<int>(t.dim(0)),
          length,
          static_cast<int>(t.dim(-2)),
          static_cast<int>(t.dim(-1)),
          {varlen ? length * v.row : v.sequence, v.row, v.head}};
}

ForwardCall call_of(const Forward& op, const Problem& p, const int* list) {
  ForwardCall c{.q = rows(op.q, p.varlen), .k = rows(op.k, p.varlen), .v = rows(op.v, p.varlen), .o = rows(op.o, p.varlen)};
  if (op.lse) {
    const View<float> lse = lse_view<float>(op.lse, p.varlen);
    c.lse = lse.data;
    c.lse_sequence = lse.sequence;
    c.lse_head = lse.head;
  }
  if (p.varlen) {
    c.cu_q = p.cu_q;
    c.cu_k = p.cu_k;
    c.list = list;
  }
  const auto limit = [](Index window) { return static_cast<int>(std::min(window, kLongest)); };
  c.scale = p.scale;
  c.causal = p.mask.right == 0;
  c.window_left = limit(p.mask.left);
  c.window_right = limit(p.mask.right);
  c.softcap = p.softcap;
  c.alibi = p.alibi;
  c.slopes = p.slopes;
  c.slopes_sequence = p.slopes_batch_stride;
  c.slopes_first = static_cast<int>(p.slopes_first);
  c.head_offset = static_cast<int>(p.head_offset);
  c.total_heads = static_cast<int>(p.total_heads);
  c.dtype = op.spec.dtype;
  return c;
}

BackwardCall call_of(const Backward& op, const Problem& p) {
  BackwardCall c{.q = rows(op.q, false),
                 .k = rows(op.k, false),
                 .v = rows(op.v, false),
                 .o = rows(op.o, false),
                 .dout = rows(op.dout, false),
                 .dq = rows(op.dq, false),
                 .dk = rows(op.dk, false),
                 .dv = rows(op.dv, false)};
  c.lse = static_cast<const float*>(op.lse.data);
  c.scale = p.scale;
  c.causal = op.spec.causal || op.spec.window_right == 0;
  c.dtype = op.spec.dtype;
  c.deterministic = op.spec.deterministic;
  return c;
}

}  // namespace

bool carries(int capability, const Forward& op) {
  return has_forward(capability, op.spec) && !op.seqused_q && !op.seqused_k && all_mappable(op.q, op.k, op.v, op.o) &&
         (!op.lse || op.lse.strides[op.lse.rank() - 1] == 1);
}
bool carries(int capability, const Backward& op) {
  return plain(capability, op.spec) && !op.spec.varlen && !op.seqused_q && !op.seqused_k && !op.dlse &&
         !(op.spec.deterministic && op.spec.head_dim == 64) && contiguous(op.lse) &&
         all_mappable(op.q, op.k, op.v, op.o, op.dout, op.dq, op.dk, op.dv);
}

std::size_t scratch_bytes(const Target&, const Forward& op) {
  const Problem p = problem_of(op);
  return p.varlen ? simt::list_bytes(p.total_q, p.batch, kGroupRows) : 0;  // of the smallest tile there could be
}
std::size_t scratch_bytes(const Target&, const Backward& op) {
  return backward_workspace(call_of(op, problem_of(op))) + kWorkspaceAlignment;
}

void launch(CudaStream s, const Forward& op, Scratch scratch) {
  const Problem p = problem_of(op);
  int* list = p.varlen ? static_cast<int*>(scratch.data) : nullptr;
  const ForwardCall c = call_of(op, p, list);
  if (p.varlen) simt::list_tiles(s, list, p.cu_q, p.batch, forward_rows(c));
  forward(s.stream, c);
  if (p.varlen)
    sm80::clear_tail(s,
                     {.rows = sm80::rows_of(op.o, true),
                      .wide = {},
                      .lse = sm80::column_of(op.lse, true),
                      .cu = p.cu_q,
                      .batch = p.batch,
                      .heads = p.heads,
                      .columns = p.v_head_dim},
                     p.total_q);
}

void launch(CudaStream s, const Backward& op, Scratch scratch) {
  BackwardCall c = call_of(op, problem_of(op));
  const auto at = (reinterpret_cast<std::uintptr_t>(scratch.data) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  c.workspace = reinterpret_cast<void*>(at);
  c.workspace_bytes = scratch.bytes - kWorkspaceAlignment;
  backward(s.stream, c);
}

}  // namespace flashgpt::attention::sm90
