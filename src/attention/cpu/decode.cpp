// Attention with a KV cache: append and rotate the new keys, rotate the queries into scratch (fp32), then the tiled forward over the cache
// where it lies.
#include "attention/decode.h"

#include <cmath>
#include <cstring>

#include "attention/checker.h"
#include "attention/cpu/forward.h"

namespace flashgpt::attention {
namespace {

using cpu::KeyRows;
using cpu::Stored;

const std::int32_t* ints(const Tensor& t) { return static_cast<const std::int32_t*>(t.data); }

float element(const char* row, Dtype dtype, Index i) {
  switch (dtype) {
    case Dtype::kBF16: return reinterpret_cast<const Bf16*>(row)[i];
    case Dtype::kF16: return reinterpret_cast<const Fp16*>(row)[i];
    default: return reinterpret_cast<const float*>(row)[i];
  }
}
void put(char* row, Dtype dtype, Index i, float x) {
  switch (dtype) {
    case Dtype::kBF16: reinterpret_cast<Bf16*>(row)[i] = Bf16(x); return;
    case Dtype::kF16: reinterpret_cast<Fp16*>(row)[i] = Fp16(x); return;
    default: reinterpret_cast<float*>(row)[i] = x;
  }
}

struct Call {
  const Decode& op;
  Problem p;
  Index most_new = 0;
  bool turning = false;  // queries turn with their position (causal, window), or all stand at `lengths`

  explicit Call(const Decode& d) : op(d) {
    const AttentionSpec& s = d.spec;
    p.batch = s.batch, p.max_q = s.max_q, p.max_k = s.max_k;
    p.total_q = s.batch * s.max_q, p.total_k = s.batch * s.max_k;
    p.heads = s.heads, p.kv_heads = s.kv_heads, p.group = s.heads / s.kv_heads;
    p.head_dim = s.head_dim, p.v_head_dim = s.v_head_dim;
    p.mask = {s.window_left, s.causal ? 0 : s.window_right};
    p.scale = s.scale != 0 ? s.scale : 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    p.softcap = s.softcap;
    p.alibi = s.alibi;
    p.total_heads = s.total_heads != 0 ? s.total_heads : s.heads;
    p.head_offset = s.head_offset;
    p.used_q = ints(d.seqused_q);
    p.k_starts = ints(d.left_pad);
    if (const Tensor& t = d.alibi_slopes; s.alibi && t.data) {
      p.slopes = static_cast<const float*>(t.data);
      p.slopes_batch_stride = t.rank() == 2 ? t.strides[0] : 0;
      p.slopes_first = t.dim(-1) == s.heads ? 0 : s.head_offset;
    }
    if (s.sink) p.sinks = d.sink.data;
    most_new = given(d.k_new) ? d.k_new.dim(1) : 0;
    turning = p.mask.left >= 0 || p.mask.right >= 0;
  }

  Index new_tokens(Index b) const { return most_new == 0 ? 0 : op.new_lengths.data ? ints(op.new_lengths)[b] : most_new; }
  Index queries(Index b) const { return p.used_q ? p.used_q[b] : p.max_q; }
  KeyRows rows_of(const Tensor& cache) const {
    KeyRows k{cpu::stored(cache, false), ints(op.batch_index)};
    if (op.page_table.data) {
      k.pages = ints(op.page_table);
      k.page_size = cache.dim(1);
      k.most_pages = op.page_table.dim(1);
    }
    return k;
  }

  void check_numbers() const {
    for (Index b = 0; b < p.batch; ++b) {
      auto in_range = [&](const char* name, Index x, Index least, Index most) {
        require(x >= least && x <= most, Decode::kName, ": ", name, "[", b, "] = ", x, ", expected ", least, " to ", most);
      };
      const Index length = ints(op.lengths)[b], added = new_tokens(b);
      if (op.new_lengths.data) in_range("new_lengths", added, 0, most_new);
      in_range("lengths", length, 0, p.max_k);
      require(length + added <= p.max_k, Decode::kName, ": lengths[", b, "] = ", length, " and ", added,
              " new tokens, expected at most the capacity of the cache, ", p.max_k);
      if (op.left_pad.data) in_range("left_pad", ints(op.left_pad)[b], 0, length + added);
      if (op.seqused_q.data) in_range("seqused_q", p.used_q[b], 0, p.max_q);
      if (op.batch_index.data) in_range("batch_index", ints(op.batch_index)[b], 0, op.k_cache.dim(0) - 1);
      if (op.page_table.data) {
        const Index size = op.k_cache.dim(1), used = (length + added + size - 1) / size;
        for (Index i = (op.left_pad.data ? ints(op.left_pad)[b] : 0) / size; i < used; ++i) {
          const Index page = ints(op.page_table)[b * op.page_table.dim(1) + i];
          require(page >= 0 && page < op.k_cache.dim(0), Decode::kName, ": page_table[", b, ", ", i, "] = ", page, ", expected 0 to ",
                  op.k_cache.dim(0) - 1);
        }
      }
      if (op.rotary_cos.data) {
        const Index last = std::max(added, turning ? queries(b) : Index{1});
        require(length + last <= op.rotary_cos.dim(0), Decode::kName, ": rotary_cos has ", op.rotary_cos.dim(0),
                " positions, expected at least ", length + last, " for sequence ", b);
      }
    }
  }

  // to = from rotated to `position`.
  void rotate(char* to, Dtype to_dtype, const char* from, Dtype from_dtype, Index columns, Index position) const {
    const Index pairs = op.rotary_cos.dim(1);
    const Dtype dtype = op.rotary_cos.dtype;
    const Index size = static_cast<Index>(size_of(dtype));
    const char *cosine = static_cast<const char*>(op.rotary_cos.data) + position * op.rotary_cos.strides[0] * size,
               *sine = static_cast<const char*>(op.rotary_sin.data) + position * op.rotary_sin.strides[0] * size;
    for (Index c = 0; c < pairs; ++c) {
      const Index i = op.rotary_interleaved ? 2 * c : c, j = op.rotary_interleaved ? 2 * c + 1 : c + pairs;
      const float x = element(from, from_dtype, i), y = element(from, from_dtype, j);
      const float cos = element(cosine, dtype, c), sin = element(sine, dtype, c);
      put(to, to_dtype, i, x * cos - y * sin);
      put(to, to_dtype, j, x * sin + y * cos);
    }
    for (Index i = 2 * pairs; i < columns; ++i) put(to, to_dtype, i, element(from, from_dtype, i));
  }

  void append(Index b, Index t) const {
    const KeyRows k = rows_of(op.k_cache), v = rows_of(op.v_cache);
    const Stored k_new = cpu::stored(op.k_new, false), v_new = cpu::stored(op.v_new, false);
    const Index slot = ints(op.lengths)[b] + t;
    const std::size_t size = size_of(op.spec.dtype);
    for (Index h = 0; h < p.kv_heads; ++h) {
      if (op.rotary_cos.data)
        rotate(k.at(b, slot, h), op.spec.dtype, k_new.at(b, t, h), op.spec.dtype, p.head_dim, slot);
      else
        std::memcpy(k.at(b, slot, h), k_new.at(b, t, h), static_cast<std::size_t>(p.head_dim) * size);
      std::memcpy(v.at(b, slot, h), v_new.at(b, t, h), static_cast<std::size_t>(p.v_head_dim) * size);
    }
  }

  std::size_t rotated_bytes() const {
    return given(op.rotary_cos) ? static_cast<std::size_t>((p.total_q * p.heads * p.head_dim * 4 + 63) / 64 * 64) : 0;
  }
  std::size_t lengths_bytes() const { return static_cast<std::size_t>((p.batch * 4 + 63) / 64 * 64); }
};

}  // namespace

void check(const Decode& op) {
  const AttentionSpec& s = op.spec;
  const Checker c{Decode::kName, s};
  c.numbers();
  require_able(Decode::kName, s, {.backend = "attention with a cache", .sink = true, .bf16 = true, .fp16 = true});
  require(!s.varlen, c.op, ": varlen = true, expected false: sequences are told apart by lengths");
  c.rows("q", op.q, true, s.heads, s.head_dim);
  c.rows("o", op.o, true, s.heads, s.v_head_dim, s.partial_output ? Dtype::kF32 : s.dtype);
  if (given(op.lse)) c.lse("lse", op.lse);
  c.lengths("lengths", op.lengths, s.batch);
  require(op.k_cache.rank() == 4, c.op, ": k_cache has shape ", op.k_cache.shape.str(), ", expected four dimensions");
  const bool paged = given(op.page_table);
  const Index rows = op.k_cache.dim(0), capacity = op.k_cache.dim(1);
  if (paged) {
    require(capacity >= 1, c.op, ": k_cache has pages of ", capacity, ", expected at least 1");
    require(op.page_table.rank() == 2, c.op, ": page_table has shape ", op.page_table.shape.str(), ", expected two dimensions");
    c.tensor("page_table", op.page_table, {s.batch, op.page_table.dim(1)}, Dtype::kI32);
    require(op.page_table.contiguous(), c.op, ": page_table is strided, expected numbers side by side");
    require(s.max_k == op.page_table.dim(1) * capacity, c.op, ": max_k = ", s.max_k, ", expected ", op.page_table.dim(1), " pages of ",
            capacity);
    require(!given(op.batch_index), c.op, ": batch_index given with page_table, expected one of them");
  } else {
    require(s.max_k == capacity, c.op, ": max_k = ", s.max_k, ", expected the capacity of k_cache, ", capacity);
    require(given(op.batch_index) || rows == s.batch, c.op, ": k_cache has ", rows, " rows, expected batch = ", s.batch,
            " without batch_index");
  }
  auto cache = [&](const char* name, const Tensor& t, const Shape& shape) {
    c.tensor(name, t, shape, s.dtype);
    require(t.stride(-1) == 1 || t.dim(-1) == 1, c.op, ": ", name, " has stride ", t.stride(-1), " in its last dimension, expected 1");
  };
  cache("k_cache", op.k_cache, {rows, capacity, s.kv_heads, s.head_dim});
  cache("v_cache", op.v_cache, {rows, capacity, s.kv_heads, s.v_head_dim});
  require(given(op.k_new) == given(op.v_new), c.op, ": of k_new and v_new one is missing, expected both or none");
  if (given(op.k_new)) {
    const Index most = op.k_new.rank() == 4 ? op.k_new.dim(1) : 0;
    cache("k_new", op.k_new, {s.batch, most, s.kv_heads, s.head_dim});
    cache("v_new", op.v_new, {s.batch, most, s.kv_heads, s.v_head_dim});
  }
  if (given(op.new_lengths)) {
    require(given(op.k_new), c.op, ": new_lengths given, but k_new is missing");
    c.lengths("new_lengths", op.new_lengths, s.batch);
  }
  if (given(op.seqused_q)) c.lengths("seqused_q", op.seqused_q, s.batch);
  if (given(op.batch_index)) c.lengths("batch_index", op.batch_index, s.batch);
  if (given(op.left_pad)) c.lengths("left_pad", op.left_pad, s.batch);
  require(given(op.rotary_cos) == given(op.rotary_sin), c.op, ": of rotary_cos and rotary_sin one is missing, expected both or none");
  if (given(op.rotary_cos)) {
    const Shape shape{op.rotary_cos.dim(0), op.rotary_cos.rank() == 2 ? op.rotary_cos.dim(1) : 0};
    const Dtype dtype = op.rotary_cos.dtype == Dtype::kF32 ? Dtype::kF32 : s.dtype;
    c.tensor("rotary_cos", op.rotary_cos, shape, dtype);
    c.tensor("rotary_sin", op.rotary_sin, shape, dtype);
    require(2 * shape[1] <= s.head_dim, c.op, ": rotary_cos has ", shape[1], " columns, expected at most head_dim / 2 = ", s.head_dim / 2);
    require(op.rotary_cos.stride(-1) == 1 && op.rotary_sin.stride(-1) == 1, c.op,
            ": rotary_cos or rotary_sin is strided in its last dimension, expected 1");
  }
  c.asked_for(s.sink, "sink is false", "sink", op.sink, {s.heads}, Dtype::kF32);
  c.slopes(op.alibi_slopes);
}

std::size_t scratch_bytes(const Target& target, const Decode& op) {
  const Call c(op);
  return c.lengths_bytes() + c.rotated_bytes() + cpu::forward_scratch_bytes(target.threads, c.p) + 64;
}

void launch(CpuStream stream, const Decode& op, Scratch scratch) {
  Call c(op);
  Problem& p = c.p;
  c.check_numbers();
  const auto address = (reinterpret_cast<std::uintptr_t>(scratch.data) + 63) / 64 * 64;
  auto* lengths = reinterpret_cast<std::int32_t*>(address);
  auto* rotated = reinterpret_cast<float*>(address + c.lengths_bytes());
  for (Index b = 0; b < p.batch; ++b)
    lengths[b] = static_cast<std::int32_t>(ints(op.lengths)[b] + c.new_tokens(b) - (p.k_starts ? p.k_starts[b] : 0));
  p.used_k = lengths;

  if (c.most_new > 0)
    stream.pool.parallel_for(p.batch * c.most_new, [&](Index task, int) {
      const Index b = task / c.most_new, t = task % c.most_new;
      if (t < c.new_tokens(b)) c.append(b, t);
    });

  cpu::ForwardRun run;
  run.q = cpu::stored(op.q, false);
  if (op.rotary_cos.data) {
    const View<float> to{rotated, p.max_q * p.heads * p.head_dim, p.heads * p.head_dim, p.head_dim};
    const Stored q = run.q, turned = cpu::stored(to);
    stream.pool.parallel_for(p.total_q, [&](Index task, int) {
      const Index b = task / p.max_q, i = task % p.max_q;
      if (i >= c.queries(b)) return;
      const Index position = ints(op.lengths)[b] + (c.turning ? i : 0);
      for (Index h = 0; h < p.heads; ++h) c.rotate(turned.at(b, i, h), Dtype::kF32, q.at(b, i, h), q.dtype, p.head_dim, position);
    });
    run.q = turned;
  }
  run.p = p;
  run.o = cpu::stored(op.o, false);
  run.k = c.rows_of(op.k_cache);
  run.v = c.rows_of(op.v_cache);
  run.lse = lse_view<float>(op.lse, false);
  const std::uintptr_t rest = address + c.lengths_bytes() + c.rotated_bytes();
  cpu::run_forward(stream, run, {reinterpret_cast<void*>(rest), scratch.bytes - (rest - reinterpret_cast<std::uintptr_t>(scratch.data))});
}

}  // namespace flashgpt::attention
