// Tiled forward. A task is a block of query rows of one head of keys; it walks the keys in blocks and keeps a running maximum m, a running
// sum l and an output that is scaled again when the maximum rises:
//   S^T = K Q^T     m' = max(m, rows of S)     P = 2^(S - m')     l = l 2^(m - m') + sum P     O^T = O^T 2^(m - m') + V^T P^T
// The maximum is followed lazily: as long as no score exceeds m by more than kSlack powers of two nothing is scaled, which changes no
// result beyond rounding. K and V blocks are copied to packed rows first (one pass for all rows of the task): tails need no code of their
// own then, and other element types change the copy only. A sink is a key whose value is zero: it starts the maximum and the sum. Dropout
// clears weights after they have been summed.
//
// Where there are few rows (decoding), the keys are split too: each split leaves its output and lse in scratch, and a second sweep merges
// them in order.
#include "attention/cpu/forward.h"

#include <cmath>

#include "attention/cpu/block_lanes.h"
#include "attention/cpu/careful.h"
#include "attention/cpu/dropout_mask.h"
#include "attention/implementations.h"
#include "attention/online_softmax.h"
#include "attention/schedule.h"

namespace flashgpt::attention {
namespace cpu {
namespace {

constexpr float kSlack = 8.0f;
constexpr Index kTaskGroups = 16;  // groups of rows in a task

template <int W> struct Buffers {  // of a worker; floats
  Index qt, ot, k, v, p, max, sum, keep, lanes, drop, total;
  explicit Buffers(const Problem& pr) {
    const Index rows = kTaskGroups * kGroup<W>;
    Index at = 0;
    auto take = [&at](Index n) {
      const Index here = at;
      at += round_up(n, 16);
      return here;
    };
    qt = take(rows * pr.head_dim);
    ot = take(rows * round_up(pr.v_head_dim, 2));
    k = take(kBlock<W> * packed_stride<W>(pr.head_dim));
    v = take(kBlock<W> * packed_stride<W>(pr.v_head_dim));
    p = take(kBlock<W> * kGroup<W>);
    max = take(rows);
    sum = take(rows);
    lanes = take(kTaskGroups * static_cast<Index>(sizeof(LaneInfo<W>) / sizeof(float)));
    keep = take(pr.dropout_threshold > 0 ? kBlock<W> * kGroup<W> : 0);
    drop = take(pr.dropout_threshold > 0 ? kTaskGroups * static_cast<Index>(sizeof(DropoutLanes<W>) / sizeof(float)) : 0);
    total = at;
  }
};

// Scores of keys [0, keys) of a block (keys: whole tiles) for one group into p, and their largest into `largest`. Keys outside
// [all_first, all_last) need the mask. key0: index in the sequence of the block's first key.
struct Scores {
  template <int W> [[gnu::always_inline]] static void run(float* p, float* largest, const float* k, Index k_stride, const float* qt,
                                                          Index depth, Index first, Index last, Index key0, const LaneInfo<W>* lanes) {
    constexpr int kTile = kRows<W>;
    F<W> most[2] = {splat<W>(-__builtin_inff()), splat<W>(-__builtin_inff())};
    for (Index j = first; j < last; j += kTile) {
      F<W> acc[kTile][2];
      clear<W, kTile>(acc);
      multiply<W, kTile>(acc, k + j * k_stride, k_stride, 1, qt, kGroup<W>, depth);
      const Index key = key0 + j;
      if (key < lanes->see_all_first || key + kTile > lanes->see_all_last) {
#pragma GCC unroll 8
        for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 2
          for (int n = 0; n < 2; ++n) acc[r][n] = sees<W>(*lanes, n, key + r) ? acc[r][n] : splat<W>(-__builtin_inff());
      }
#pragma GCC unroll 8
      for (int r = 0; r < kTile; ++r) {
        most[0] = max_else_b<W>(acc[r][0], most[0]);
        most[1] = max_else_b<W>(acc[r][1], most[1]);
      }
      store_tile<W, kTile>(acc, p + j * kGroup<W>, kGroup<W>);
    }
    store<W>(largest, most[0]);
    store<W>(largest + W, most[1]);
  }
};

// The same for scores that are more than the product (softcap, ALiBi), from the products that Scores has left in p.
struct ScoreRows {
  template <int W> [[gnu::always_inline]] static void run(float* p, float* largest, Index first, Index last, Index key0,
                                                          const LaneInfo<W>* lanes, const ScoreKind* kind) {
    for (int n = 0; n < 2; ++n) {
      F<W> most = splat<W>(-__builtin_inff()), unused;
      for (Index j = first; j < last; ++j) {
        float* at = p + j * kGroup<W> + n * W;
        const F<W> x = score_vec<W>(*kind, *lanes, n, key0 + j, load<W>(at), unused);
        const F<W> s = sees<W>(*lanes, n, key0 + j) ? x : splat<W>(-__builtin_inff());
        most = max_else_b<W>(s, most);
        store<W>(at, s);
      }
      store<W>(largest + n * W, most);
    }
  }
};

// p = 2^(p - shift), sum += p.
struct Exponentials {
  template <int W> [[gnu::always_inline]] static void run(float* p, Index first, Index last, const float* shift, float* sum) {
    const F<W> m0 = load<W>(shift), m1 = load<W>(shift + W);
    F<W> s0 = load<W>(sum), s1 = load<W>(sum + W);
    for (Index j = first; j < last; j += 2) {
      float* row = p + j * kGroup<W>;
      const F<W> a0 = exp2_of<W>(load<W>(row) - m0), a1 = exp2_of<W>(load<W>(row + W) - m1);
      const F<W> b0 = exp2_of<W>(load<W>(row + 2 * W) - m0), b1 = exp2_of<W>(load<W>(row + 3 * W) - m1);
      s0 = s0 + (a0 + b0);
      s1 = s1 + (a1 + b1);
      store<W>(row, a0);
      store<W>(row + W, a1);
      store<W>(row + 2 * W, b0);
      store<W>(row + 3 * W, b1);
    }
    store<W>(sum, s0);
    store<W>(sum + W, s1);
  }
};

struct Call : ForwardRun {
  TaskTable table;
  float* workers;                // buffers of all workers
  float* partial_o = nullptr;    // [split][query of the call][head][v_head_dim]
  float* partial_lse = nullptr;  // [split][query of the call][head]
  Dropout dropout;

  Index splits(const Sequence& s) const { return query_splits(p, s.len_k); }
  View<float> o_of(Index split) const {
    const Index row = p.heads * p.v_head_dim;
    return {partial_o + split * p.total_q * row, p.varlen ? 0 : p.max_q * row, row, p.v_head_dim};
  }
  View<float> lse_of(Index split) const {
    return {partial_lse + split * p.total_q * p.heads, p.varlen ? 0 : p.max_q * p.heads, p.heads, 1};
  }

  template <int W> [[gnu::always_inline]] void run(Index task, Index worker) const {
    constexpr Index kLanes = kGroup<W>, kTaskRows = kTaskGroups * kLanes;
    const Index entry = table.find(task);
    const Sequence s = p.sequence(table.sequence[entry]);
    const Index all_rows = s.len_q * p.group, blocks = ceil_div(all_rows, kTaskRows), count = splits(s);
    const Index local = (task - table.first_task[entry]) / count, split = (task - table.first_task[entry]) % count;
    const Index kv = local / blocks, block = blocks - 1 - local % blocks;  // causal: long ones first
    const Index row0 = block * kTaskRows, rows = std::min(kTaskRows, all_rows - row0), groups = ceil_div(rows, kLanes);

    const Buffers<W> b(p);
    float* memory = workers + worker * b.total;
    float *kb = memory + b.k, *vb = memory + b.v, *pb = memory + b.p;
    auto* lanes = reinterpret_cast<LaneInfo<W>*>(memory + b.lanes);
    auto* drop = reinterpret_cast<DropoutLanes<W>*>(memory + b.drop);
    auto* keep = reinterpret_cast<std::int32_t*>(memory + b.keep);
    const ScoreKind kind = score_kind(p);
    LaneInfo<W> sees_all, of_segment;
    sees_all.see_all_first = 0, sees_all.see_all_last = INT64_MAX;
    const QueryRows q_rows{q, s.index, s.q_first, kv * p.group, p.group};
    const Index v_rows = round_up(p.v_head_dim, 2), k_stride = packed_stride<W>(p.head_dim), v_stride = packed_stride<W>(p.v_head_dim);

    Index first_key = s.len_k, last_key = 0;
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kLanes, n = std::min(kLanes, rows - r);
      pack_lanes<W>(memory + b.qt + r * p.head_dim, q_rows, row0 + r, n, p.head_dim, kind.fold);
      fill_lanes<W>(lanes[g], p, s, kv, row0 + r, n);
      first_key = std::min(first_key, lanes[g].see_any_first);
      last_key = std::max(last_key, lanes[g].see_any_last);
      for (Index lane = 0; lane < kLanes; ++lane) {
        const float sink = p.sinks && split == 0
                               ? static_cast<float>(p.sink(kv * p.group + (row0 + r + std::min(lane, n - 1)) % p.group)) * kLog2e
                               : -__builtin_inff();
        memory[b.max + r + lane] = sink;
        memory[b.sum + r + lane] = sink == -__builtin_inff() ? 0.0f : 1.0f;
      }
      for (Index i = 0; i < kLanes * v_rows; ++i) memory[b.ot + r * v_rows + i] = 0.0f;
      if (dropout.threshold > 0) drop[g].fill(p, s, kv, row0 + r, n);
    }
    if (p.blocks) first_key = 0, last_key = s.len_k;
    if (count > 1) {
      const Index share = round_up(ceil_div(s.len_k, count), kBlock<W>);
      first_key = std::max(first_key, split * share);
      last_key = std::min(last_key, (split + 1) * share);
    }

    for (Index key0 = first_key, end; key0 < last_key; key0 = end) {
      end = segment_end(p, key0, std::min<Index>(key0 + kBlock<W>, last_key));
      const Index keys = end - key0, padded = round_up(keys, kRows<W>);
      bool packed = false, finite = true, v_finite = true;
      for (Index g = 0; g < groups; ++g) {
        const Index r = g * kLanes;
        const LaneInfo<W>* info = lanes + g;
        if (p.blocks) {
          if (!block_lanes<W>(of_segment, lanes[g], p, s, kv, row0 + r, std::min(kLanes, rows - r), key0, end)) continue;
          info = &of_segment;
        }
        const Index first = std::max<Index>(0, info->see_any_first - key0) / kRows<W> * kRows<W>;
        const Index last = std::min(padded, round_up(std::max<Index>(0, info->see_any_last - key0), kRows<W>));
        if (first >= last) continue;
        if (!packed) {
          pack_keys<W>(kb, k_stride, k, s.index, s.k_first + key0, kv, p.head_dim, keys, padded, finite);
          pack_keys<W>(vb, v_stride, v, s.index, s.k_first + key0, kv, p.v_head_dim, keys, padded, v_finite);
          packed = true;
        }
        float *max = memory + b.max + r, *sum = memory + b.sum + r, *ot = memory + b.ot + r * v_rows;
        alignas(64) float largest[kLanes], shift[kLanes];
        Outlined<W>::template call<Scores>(pb, &largest[0], static_cast<const float*>(kb), k_stride,
                                           static_cast<const float*>(memory + b.qt + r * p.head_dim), p.head_dim, first, last, key0,
                                           static_cast<const LaneInfo<W>*>(kind.plain() ? info : &sees_all));
        if (!kind.plain()) Outlined<W>::template call<ScoreRows>(pb, &largest[0], first, last, key0, info, &kind);
        follow_maximum<W>(largest, max, sum, shift, ot, v_rows);
        Outlined<W>::template call<Exponentials>(pb, first, last, static_cast<const float*>(shift), sum);
        const std::int32_t* kept = nullptr;
        if (dropout.threshold > 0) {
          Outlined<W>::template call<FillDropout>(keep, static_cast<const DropoutLanes<W>*>(drop + g), &dropout, key0, first, last);
          Outlined<W>::template call<DropWeights>(pb, kLanes, static_cast<const std::int32_t*>(keep), first, last);
          kept = keep;
        }
        const bool masked = kept || key0 + first < info->see_all_first || key0 + last > info->see_all_last;
        if (!v_finite && masked)
          Outlined<W>::template call<AddTransposedSeen>(ot, v_rows, static_cast<const float*>(vb), v_stride, static_cast<const float*>(pb),
                                                        kLanes, first, last, key0, info, kept);
        else
          Outlined<W>::template call<AddTransposed>(ot, v_rows, static_cast<const float*>(vb + first * v_stride), v_stride,
                                                    static_cast<const float*>(pb + first * kLanes), kLanes, last - first, false);
      }
    }

    const QueryRows o_rows{count > 1 ? stored(o_of(split)) : o, s.index, s.q_first, kv * p.group, p.group};
    const View<float> lse_rows = count > 1 ? lse_of(split) : lse;
    const float kept_scale = dropout.threshold > 0 ? dropout_scale(dropout.threshold) : 1.0f;
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kLanes, n = std::min(kLanes, rows - r);
      const float *max = memory + b.max + r, *sum = memory + b.sum + r;
      float inverse[kLanes];
      for (Index lane = 0; lane < n; ++lane) {
        inverse[lane] = sum[lane] == 0.0f ? 0.0f : kept_scale / sum[lane];
        if (!lse_rows) continue;
        const Index row = row0 + r + lane;
        *lse_rows.at(s.index, s.q_first + row / p.group, kv * p.group + row % p.group) =
            sum[lane] == 0.0f ? -__builtin_inff() : (max[lane] + std::log2(sum[lane])) * kLn2;
      }
      unpack_lanes<W>(o_rows, row0 + r, n, memory + b.ot + r * v_rows, p.v_head_dim, inverse, false);
    }
  }

  // o and lse of all splits of a query, merged in order.
  void merge_splits(const TaskTable& merges, Index task) const {
    const Index entry = merges.find(task), i = task - merges.first_task[entry];
    const Sequence s = p.sequence(merges.sequence[entry]);
    const Index count = splits(s), row = s.q_first + i;
    for (Index h = 0; h < p.heads; ++h) {
      float* sum = o_of(0).at(s.index, row, h);
      float total = *lse_of(0).at(s.index, row, h);
      for (Index split = 1; split < count; ++split) {
        MergeFactors<float> w{};
        total = merge_normalised(total, *lse_of(split).at(s.index, row, h), w);
        const float* part = o_of(split).at(s.index, row, h);
        for (Index c = 0; c < p.v_head_dim; ++c) sum[c] = weighted(w.a, sum[c]) + weighted(w.b, part[c]);
      }
      store_row<4>(o.at(s.index, row, h), o.dtype, sum, p.v_head_dim, 1.0f);
      if (lse) *lse.at(s.index, row, h) = total;
    }
  }
  static float weighted(float weight, float x) { return weight == 0.0f ? 0.0f : weight * x; }

  // shift: what the exponents of this block refer to: the maximum so far, 0 where nothing has been seen yet (exp2(-inf - 0) = 0, while
  // -inf - -inf would be NaN).
  template <int W>
  [[gnu::always_inline]] static void follow_maximum(const float* largest, float* max, float* sum, float* shift, float* ot, Index v_rows) {
    F<W> factor[2];
    bool rises = false;
    for (int n = 0; n < 2; ++n) {
      const F<W> old = load<W>(max + n * W), most = load<W>(largest + n * W);
      rises |= any<W>(most > old + splat<W>(kSlack));
    }
    for (int n = 0; n < 2; ++n) {
      const F<W> lowest = splat<W>(-__builtin_inff());
      const F<W> old = load<W>(max + n * W);
      const F<W> now = rises ? max_else_b<W>(load<W>(largest + n * W), old) : old;
      const F<W> from = now == lowest ? F<W>{} : now;
      store<W>(max + n * W, now);
      store<W>(shift + n * W, from);
      if (!rises) continue;
      factor[n] = exp2_of<W>(old - from);
      store<W>(sum + n * W, load<W>(sum + n * W) * factor[n]);
    }
    if (!rises) return;
    for (Index c = 0; c < v_rows; ++c)
      for (int n = 0; n < 2; ++n) {
        float* x = ot + c * kGroup<W> + n * W;
        store<W>(x, load<W>(x) * factor[n]);
      }
  }
};

template <int W> Index worker_floats(const Problem& p) { return Buffers<W>(p).total; }

Index worker_floats(Isa isa, const Problem& p) {
  switch (isa) {
    case Isa::kAvx512: return worker_floats<16>(p);
    case Isa::kAvx2: return worker_floats<8>(p);
    case Isa::kPortable: return worker_floats<4>(p);
  }
  return 0;
}

std::size_t partial_floats(const Problem& p) {
  const Index most = query_splits(p, p.max_k);
  return most == 1 ? 0 : static_cast<std::size_t>(most * p.total_q * p.heads * (p.v_head_dim + 1));
}

constexpr Index task_rows(Isa isa) { return kTaskGroups * 2 * (isa == Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4); }

}  // namespace
}  // namespace cpu

std::int64_t flash_key_tile(Isa isa) { return isa == Isa::kAvx512 ? cpu::kBlock<16> : isa == Isa::kAvx2 ? cpu::kBlock<8> : cpu::kBlock<4>; }

std::size_t tiled_scratch_bytes(const Target& target, const Forward& op) {
  return cpu::forward_scratch_bytes(target.threads, problem_of(op));
}

void tiled_forward(CpuStream stream, const Forward& op, Scratch scratch) {
  cpu::ForwardRun run;
  run.p = problem_of(op);
  const bool varlen = run.p.varlen;
  run.q = cpu::stored(op.q, varlen);
  run.k.view = cpu::stored(op.k, varlen);
  run.v.view = cpu::stored(op.v, varlen);
  run.o = cpu::stored(op.o, varlen);
  run.lse = lse_view<float>(op.lse, varlen);
  cpu::run_forward(stream, run, scratch);
}

std::size_t cpu::forward_scratch_bytes(int threads, const Problem& p) {
  return 2 * table_bytes(p.batch) + static_cast<std::size_t>(threads * worker_floats(Isa::kAvx512, p)) * sizeof(float) +
         partial_floats(p) * sizeof(float) + 64;
}

void cpu::run_forward(CpuStream stream, const ForwardRun& run, Scratch scratch) {
  Call c{run};
  const Problem& p = c.p;
  c.dropout = p.dropout();
  const Isa isa = simd::isa();
  const Index rows = cpu::task_rows(isa);
  auto* memory = static_cast<std::byte*>(scratch.data);
  c.table = make_table(p, memory, [&](const Sequence& s) { return p.kv_heads * ceil_div(s.len_q * p.group, rows) * c.splits(s); });
  const TaskTable merges =
      make_table(p, memory + table_bytes(p.batch), [&](const Sequence& s) { return c.splits(s) > 1 ? s.len_q : Index{0}; });
  const auto address = reinterpret_cast<std::uintptr_t>(memory) + 2 * table_bytes(p.batch);
  c.workers = reinterpret_cast<float*>((address + 63) / 64 * 64);
  c.partial_o = c.workers + stream.pool.size() * cpu::worker_floats(isa, p);
  c.partial_lse = c.partial_o + query_splits(p, p.max_k) * p.total_q * p.heads * p.v_head_dim;
  stream.pool.parallel_for(c.table.tasks(), [&](Index task, int worker) { simd::call(isa, c, task, static_cast<Index>(worker)); });
  stream.pool.parallel_for(merges.tasks(), [&](Index task, int) { c.merge_splits(merges, task); });

  unused_rows(p, true, [&](Index b, Index first, Index count) {
    for (Index i = first; i < first + count; ++i)
      for (Index h = 0; h < p.heads; ++h) {
        cpu::fill_zero(c.o.at(b, i, h), c.o.dtype, p.v_head_dim);
        if (c.lse) *c.lse.at(b, i, h) = -__builtin_inff();
      }
  });
}

}  // namespace flashgpt::attention
