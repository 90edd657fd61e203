// Tiled backward; P is rebuilt from lse, so nothing of the size of the score matrix is kept:
//   P^T = 2^(K Q^T - lse)     dP^T = V dO^T     dS^T = P^T (dP^T - delta) score'     delta = rowsum(dO o) - dlse
//   dQ^T += K^T dS^T          dV += P^T dO      dK += dS^T Q                         dQ, dK times scale at the end
// A task is a range of keys of one head of keys: it owns dK and dV of its keys and goes over all rows of queries that see them. dQ is
// complete after it when the keys are not split; else each split has a partial dQ in scratch and a second sweep adds them in order. Keys
// are taken kPass at a time, so that K, V, dK, dV of a long sequence stay in the cache while its queries go by.
#include <cmath>

#include "attention/cpu/pack.h"
#include "attention/cpu/score_vec.h"
#include "attention/implementations.h"
#include "attention/schedule.h"

namespace flashgpt::attention {
namespace cpu {
namespace {

constexpr Index kBlockGroups = 4;  // groups of rows handled together
constexpr Index kPass = 1152;      // keys of a pass, at most; whole blocks
constexpr Index kSumRows = 64;     // queries in a task of the sweep over partial dQ

template <int W> constexpr Index pass_keys() { return kPass / kBlock<W> * kBlock<W>; }
template <int W> constexpr Index block_rows() { return kBlockGroups * kGroup<W>; }

// Floats from one key to the next in P and dS: the rows of a block, padded to an odd number of cache lines.
template <int W> constexpr Index score_stride() { return block_rows<W>() + 16; }

template <int W> struct Buffers {  // of a worker; floats
  Index k, v, dk, dv, qt, dot, q, dout, dqt, lse, delta, p, ds, lanes, total;
  explicit Buffers(const Problem& pr) {
    const Index rows = block_rows<W>(), keys = round_up(std::min(pass_keys<W>(), std::max<Index>(pr.max_k, 1)), kRows<W>);
    const Index k_stride = packed_stride<W>(pr.head_dim), v_stride = packed_stride<W>(pr.v_head_dim);
    Index at = 0;
    auto take = [&at](Index n) {
      const Index here = at;
      at += round_up(n, 16);
      return here;
    };
    k = take(keys * k_stride);
    v = take(keys * v_stride);
    dk = take(keys * k_stride);
    dv = take(keys * v_stride);
    qt = take(rows * pr.head_dim);
    dot = take(rows * pr.v_head_dim);
    q = take(rows * k_stride);
    dout = take(rows * v_stride);
    dqt = take(rows * round_up(pr.head_dim, 2));
    lse = take(rows);
    delta = take(rows);
    p = take(score_stride<W>() * kBlock<W>);
    ds = take(score_stride<W>() * kBlock<W>);
    lanes = take(kBlockGroups * static_cast<Index>(sizeof(LaneInfo<W>) / sizeof(float)));
    total = at;
  }
};

// Pointers into the buffers that a step reads; k and v begin at the block's first key.
struct TileArgs {
  const float *k, *v;
  Index k_stride, v_stride;
  const float *qt, *dot;
  Index depth, v_depth;
  const float *lse, *delta;
  float *p, *ds;
  Index first, last, key0;
};

// P and dS of one group for keys [first, last) of a block. With `products` the plain products K Q^T and V dO^T instead.
struct Gradients {
  template <int W> [[gnu::always_inline]] static void run(const TileArgs* a, const LaneInfo<W>* lanes, bool products) {
    constexpr int kTile = kRows<W>;
    constexpr Index kScores = score_stride<W>();
    for (Index j = a->first; j < a->last; j += kTile) {
      F<W> acc[kTile][2];
      float *p = a->p + j * kScores, *ds = a->ds + j * kScores;
      clear<W, kTile>(acc);
      multiply<W, kTile>(acc, a->k + j * a->k_stride, a->k_stride, 1, a->qt, kGroup<W>, a->depth);
      const Index key = a->key0 + j;
      if (!products) {
        const bool masked = key < lanes->see_all_first || key + kTile > lanes->see_all_last;
        const F<W> l0 = load<W>(a->lse), l1 = load<W>(a->lse + W);
#pragma GCC unroll 8
        for (int r = 0; r < kTile; ++r) {
          acc[r][0] = exp2_of<W>(acc[r][0] - l0);
          acc[r][1] = exp2_of<W>(acc[r][1] - l1);
        }
        if (masked) {
#pragma GCC unroll 8
          for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 2
            for (int n = 0; n < 2; ++n) acc[r][n] = sees<W>(*lanes, n, key + r) ? acc[r][n] : F<W>{};
        }
      }
      store_tile<W, kTile>(acc, p, kScores);
      clear<W, kTile>(acc);
      multiply<W, kTile>(acc, a->v + j * a->v_stride, a->v_stride, 1, a->dot, kGroup<W>, a->v_depth);
      if (!products) {
        const F<W> d0 = load<W>(a->delta), d1 = load<W>(a->delta + W);
#pragma GCC unroll 8
        for (int r = 0; r < kTile; ++r) {
          acc[r][0] = (acc[r][0] - d0) * load<W>(p + r * kScores);
          acc[r][1] = (acc[r][1] - d1) * load<W>(p + r * kScores + W);
        }
      }
      store_tile<W, kTile>(acc, ds, kScores);
    }
  }
};

// From the products to P and dS where the score is more than the product.
struct GradientRows {
  template <int W> [[gnu::always_inline]] static void run(const TileArgs* a, const LaneInfo<W>* lanes, const ScoreKind* kind) {
    for (int n = 0; n < 2; ++n) {
      const F<W> l = load<W>(a->lse + n * W), delta = load<W>(a->delta + n * W);
      for (Index j = a->first; j < a->last; ++j) {
        float *p = a->p + j * score_stride<W>() + n * W, *ds = a->ds + j * score_stride<W>() + n * W;
        F<W> derivative = splat<W>(1.0f);
        const F<W> x = score_vec<W>(*kind, *lanes, n, a->key0 + j, load<W>(p), derivative);
        const F<W> w = sees<W>(*lanes, n, a->key0 + j) ? exp2_of<W>(x - l) : F<W>{};
        store<W>(p, w);
        store<W>(ds, w * (load<W>(ds) - delta) * derivative);
      }
    }
  }
};

struct GroupRange {
  Index first, last;  // keys of the block that the group has scores of
};

// dst[key][column] += sum over rows of x[key][row] * y[row][column]. Of a tile of keys only the groups that have scores of it are read:
// they follow each other, since later rows see later keys.
struct AddOuter {
  template <int W> [[gnu::always_inline]] static void run(float* dst, Index stride, Index columns, const float* x, const float* y,
                                                          const GroupRange* ranges, Index groups, Index keys) {
    constexpr int kTile = kRows<W>;
    constexpr Index kScores = score_stride<W>();
    Index first = 0, last = 0;  // groups of the tile
    for (Index j = 0; j < keys; j += kTile) {
      while (first < groups && ranges[first].last <= j) ++first;
      while (last < groups && ranges[last].first <= j) ++last;
      if (first >= last) continue;
      const Index row = first * kGroup<W>, depth = (last - first) * kGroup<W>;
      for (Index c = 0; c < columns; c += kGroup<W>) {
        F<W> acc[kTile][2];
        load_tile<W, kTile>(acc, dst + j * stride + c, stride);
        multiply<W, kTile>(acc, x + j * kScores + row, kScores, 1, y + row * stride + c, stride, depth);
        store_tile<W, kTile>(acc, dst + j * stride + c, stride);
      }
    }
  }
};

struct Call {
  Problem p;
  View<const float> q, k, v, o, dout, lse, dlse;
  View<float> dq, dk, dv;
  TaskTable table;
  float* workers = nullptr;
  float* partial = nullptr;  // [split][query of the call][head][head_dim]

  Index splits(const Sequence& s) const { return key_splits(s.len_k, p.total_k, p.kv_heads); }
  View<float> partial_of(Index split) const {
    const Index row = p.heads * p.head_dim;
    return {partial + split * p.total_q * row, p.varlen ? 0 : p.max_q * row, row, p.head_dim};
  }

  template <int W> [[gnu::always_inline]] void run(Index task, Index worker) const {
    const Index entry = table.find(task), local = task - table.first_task[entry];
    const Sequence s = p.sequence(table.sequence[entry]);
    const Index count = splits(s), split = local / p.kv_heads, kv = local % p.kv_heads;
    const Index share = round_up(ceil_div(s.len_k, count), kRows<W>);
    const Index first = std::min(split * share, s.len_k), last = std::min(first + share, s.len_k);
    const Buffers<W> b(p);
    float* memory = workers + worker * b.total;
    const QueryRows<float> dq_rows{count == 1 ? dq : partial_of(split), s.index, s.q_first, kv * p.group, p.group};
    Index key0 = first;
    do {
      const Index end = std::min(key0 + pass_keys<W>(), last);
      pass<W>(s, kv, key0, end, key0 == first, dq_rows, b, memory);
      key0 = end;
    } while (key0 < last);
  }

  template <int W> [[gnu::always_inline]] void pass(const Sequence& s, Index kv, Index pass0, Index pass1, bool first_pass,
                                                    const QueryRows<float>& dq_rows, const Buffers<W>& b, float* memory) const {
    const Index k_stride = packed_stride<W>(p.head_dim), v_stride = packed_stride<W>(p.v_head_dim);
    const Index keys = pass1 - pass0, padded = round_up(keys, kRows<W>), all_rows = s.len_q * p.group;
    Range rows{0, 0};
    if (keys > 0) {
      const Range queries = queries_of(p.mask, pass0, pass1, s.len_q, s.len_k);
      if (queries.first < queries.last) rows = {queries.first * p.group / block_rows<W>() * block_rows<W>(), queries.last * p.group};
      pack_rows<W>(memory + b.k, k_stride, k.at(s.index, s.k_first + pass0, kv), k.row, p.head_dim, keys, padded);
      pack_rows<W>(memory + b.v, v_stride, v.at(s.index, s.k_first + pass0, kv), v.row, p.v_head_dim, keys, padded);
      std::fill_n(memory + b.dk, padded * k_stride, 0.0f);
      std::fill_n(memory + b.dv, padded * v_stride, 0.0f);
    }
    if (first_pass) {
      const Index end = std::min(round_up(rows.last, block_rows<W>()), all_rows);
      for (Index r = 0; r < all_rows; ++r)
        if (r < rows.first || r >= end) std::fill_n(dq_rows(r), p.head_dim, 0.0f);
    }
    for (Index row0 = rows.first; row0 < rows.last; row0 += block_rows<W>())
      row_block<W>(s, kv, pass0, pass1, row0, std::min(block_rows<W>(), all_rows - row0), !first_pass, dq_rows, b, memory);
    for (Index j = 0; j < keys; ++j) {
      const float *from_k = memory + b.dk + j * k_stride, *from_v = memory + b.dv + j * v_stride;
      float *to_k = dk.at(s.index, s.k_first + pass0 + j, kv), *to_v = dv.at(s.index, s.k_first + pass0 + j, kv);
      for (Index c = 0; c < p.head_dim; ++c) to_k[c] = p.scale * from_k[c];
      for (Index c = 0; c < p.v_head_dim; ++c) to_v[c] = from_v[c];
    }
  }

  template <int W> [[gnu::always_inline]] void row_block(const Sequence& s, Index kv, Index pass0, Index pass1, Index row0, Index rows,
                                                         bool add, const QueryRows<float>& dq_rows, const Buffers<W>& b,
                                                         float* memory) const {
    constexpr Index kLanes = kGroup<W>;
    const Index k_stride = packed_stride<W>(p.head_dim), v_stride = packed_stride<W>(p.v_head_dim), groups = ceil_div(rows, kLanes);
    const Index dq_columns = round_up(p.head_dim, 2);
    const ScoreKind kind = score_kind(p);
    auto* lanes = reinterpret_cast<LaneInfo<W>*>(memory + b.lanes);
    const QueryRows<const float> q_rows{q, s.index, s.q_first, kv * p.group, p.group};
    const QueryRows<const float> do_rows{dout, s.index, s.q_first, kv * p.group, p.group};
    const QueryRows<const float> o_rows{o, s.index, s.q_first, kv * p.group, p.group};
    const Index all_rows = s.len_q * p.group;
    auto prefetch = [&](Index first) {  // rows of a group
      for (Index r = first; r < std::min(first + kLanes, all_rows); ++r) {
        prefetch_row(do_rows(r), p.v_head_dim);
        prefetch_row(q_rows(r), p.head_dim);
        prefetch_row(o_rows(r), p.v_head_dim);
      }
    };
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kLanes, n = std::min(kLanes, rows - r);
      prefetch(row0 + r + kLanes);
      pack_lanes<W>(memory + b.qt + r * p.head_dim, q_rows, row0 + r, n, p.head_dim, kind.fold);
      pack_lanes<W>(memory + b.dot + r * p.v_head_dim, do_rows, row0 + r, n, p.v_head_dim, 1.0f);
      fill_lanes<W>(lanes[g], p, s, kv, row0 + r, n);
      for (Index lane = 0; lane < kLanes; ++lane) {
        const Index row = row0 + r + lane;
        float *to_q = memory + b.q + (r + lane) * k_stride, *to_do = memory + b.dout + (r + lane) * v_stride;
        if (lane < n) {
          const float *from_do = do_rows(row), *from_o = o_rows(row);
          pack_rows<W>(to_q, k_stride, q_rows(row), 0, p.head_dim, 1, 1);
          pack_rows<W>(to_do, v_stride, from_do, 0, p.v_head_dim, 1, 1);
          const Index h = kv * p.group + row % p.group, i = s.q_first + row / p.group;
          const float l = *lse.at(s.index, i, h) * kLog2e;
          memory[b.lse + r + lane] = l == -__builtin_inff() ? __builtin_inff() : l;
          memory[b.delta + r + lane] = dot(from_do, from_o, p.v_head_dim) - (dlse ? *dlse.at(s.index, i, h) : 0.0f);
        } else {
          pack_rows<W>(to_q, k_stride, nullptr, 0, p.head_dim, 0, 1);
          pack_rows<W>(to_do, v_stride, nullptr, 0, p.v_head_dim, 0, 1);
          memory[b.lse + r + lane] = __builtin_inff();  // 2^(0 - inf) = 0
          memory[b.delta + r + lane] = 0.0f;
        }
      }
    }
    std::fill_n(memory + b.dqt, groups * kLanes * dq_columns, 0.0f);

    GroupRange ranges[kBlockGroups];
    for (Index key0 = pass0; key0 < pass1; key0 += kBlock<W>) {
      const Index padded = round_up(std::min<Index>(kBlock<W>, pass1 - key0), kRows<W>), at = key0 - pass0;
      bool some = false;
      for (Index g = 0; g < groups; ++g) {
        const Index first = std::max<Index>(0, lanes[g].see_any_first - key0) / kRows<W> * kRows<W>;
        const Index last = std::min(padded, round_up(std::max<Index>(0, lanes[g].see_any_last - key0), kRows<W>));
        ranges[g] = {first, last};
        if (first >= last) continue;
        some = true;
        const Index r = g * kLanes;
        const TileArgs args{memory + b.k + at * k_stride,
                            memory + b.v + at * v_stride,
                            k_stride,
                            v_stride,
                            memory + b.qt + r * p.head_dim,
                            memory + b.dot + r * p.v_head_dim,
                            p.head_dim,
                            p.v_head_dim,
                            memory + b.lse + r,
                            memory + b.delta + r,
                            memory + b.p + r,
                            memory + b.ds + r,
                            first,
                            last,
                            key0};
        const LaneInfo<W>* lane_info = lanes + g;
        Outlined<W>::template call<Gradients>(&args, lane_info, !kind.plain());
        if (!kind.plain()) Outlined<W>::template call<GradientRows>(&args, lane_info, &kind);
        Outlined<W>::template call<AddTransposed>(memory + b.dqt + r * dq_columns, dq_columns, args.k + first * k_stride, k_stride,
                                                  static_cast<const float*>(args.ds + first * score_stride<W>()), score_stride<W>(),
                                                  last - first, false);
      }
      if (!some) continue;
      const GroupRange* group_ranges = ranges;
      Outlined<W>::template call<AddOuter>(memory + b.dv + at * v_stride, v_stride, packed_columns<W>(p.v_head_dim),
                                           static_cast<const float*>(memory + b.p), static_cast<const float*>(memory + b.dout),
                                           group_ranges, groups, padded);
      Outlined<W>::template call<AddOuter>(memory + b.dk + at * k_stride, k_stride, packed_columns<W>(p.head_dim),
                                           static_cast<const float*>(memory + b.ds), static_cast<const float*>(memory + b.q), group_ranges,
                                           groups, padded);
    }
    float scale[kLanes];
    std::fill_n(scale, kLanes, p.scale);
    prefetch(row0 + rows);
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kLanes;
      unpack_lanes<W>(dq_rows, row0 + r, std::min(kLanes, rows - r), memory + b.dqt + r * dq_columns, p.head_dim, scale, add);
    }
  }

  static float dot(const float* a, const float* b, Index n) {
    float part[8] = {};
    Index c = 0;
    for (; c + 8 <= n; c += 8)
      for (int i = 0; i < 8; ++i) part[i] += a[c + i] * b[c + i];
    for (; c < n; ++c) part[c % 8] += a[c] * b[c];
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
  }

  // dq = partial dQ of all splits, in order.
  void sum_partials(const TaskTable& sums, Index task) const {
    const Index entry = sums.find(task), block = task - sums.first_task[entry];
    const Sequence s = p.sequence(sums.sequence[entry]);
    const Index count = splits(s), last = std::min(s.len_q, (block + 1) * kSumRows);
    for (Index i = s.q_first + block * kSumRows; i < s.q_first + last; ++i)
      for (Index h = 0; h < p.heads; ++h) {
        float* to = dq.at(s.index, i, h);
        std::copy_n(partial_of(0).at(s.index, i, h), p.head_dim, to);
        for (Index split = 1; split < count; ++split) {
          const float* from = partial_of(split).at(s.index, i, h);
          for (Index c = 0; c < p.head_dim; ++c) to[c] += from[c];
        }
      }
  }
};

Index worker_floats(const Problem& p) { return std::max({Buffers<16>(p).total, Buffers<8>(p).total, Buffers<4>(p).total}); }
Index worker_floats(Isa isa, const Problem& p) {
  return isa == Isa::kAvx512 ? Buffers<16>(p).total : isa == Isa::kAvx2 ? Buffers<8>(p).total : Buffers<4>(p).total;
}

std::size_t partial_bytes(const Problem& p) {
  const Index most = key_splits(p.max_k, p.total_k, p.kv_heads);
  return most == 1 ? 0 : static_cast<std::size_t>(most * p.total_q * p.heads * p.head_dim) * sizeof(float);
}

void clear_unused(const Problem& p, bool queries, Index heads, Index columns, const View<float>& t) {
  unused_rows(p, queries, [&](Index b, Index first, Index count) {
    for (Index i = first; i < first + count; ++i)
      for (Index h = 0; h < heads; ++h) std::fill_n(t.at(b, i, h), columns, 0.0f);
  });
}

}  // namespace
}  // namespace cpu

std::size_t tiled_scratch_bytes(const Target& target, const Backward& op) {
  const Problem p = problem_of(op);
  return 2 * table_bytes(p.batch) + static_cast<std::size_t>(target.threads * cpu::worker_floats(p)) * sizeof(float) +
         cpu::partial_bytes(p) + 64;
}

void tiled_backward(CpuStream stream, const Backward& op, Scratch scratch) {
  cpu::Call c;
  c.p = problem_of(op);
  const Problem& p = c.p;
  c.q = rows_view<const float>(op.q, p.varlen);
  c.k = rows_view<const float>(op.k, p.varlen);
  c.v = rows_view<const float>(op.v, p.varlen);
  c.o = rows_view<const float>(op.o, p.varlen);
  c.dout = rows_view<const float>(op.dout, p.varlen);
  c.lse = lse_view<const float>(op.lse, p.varlen);
  c.dlse = lse_view<const float>(op.dlse, p.varlen);
  c.dq = rows_view<float>(op.dq, p.varlen);
  c.dk = rows_view<float>(op.dk, p.varlen);
  c.dv = rows_view<float>(op.dv, p.varlen);

  auto* memory = static_cast<std::byte*>(scratch.data);
  c.table = make_table(p, memory, [&](const Sequence& s) { return s.len_q > 0 || s.len_k > 0 ? p.kv_heads * c.splits(s) : 0; });
  const TaskTable sums = make_table(p, memory + table_bytes(p.batch),
                                    [&](const Sequence& s) { return c.splits(s) > 1 ? ceil_div(s.len_q, cpu::kSumRows) : 0; });
  const Isa isa = simd::isa();
  const auto address = reinterpret_cast<std::uintptr_t>(memory) + 2 * table_bytes(p.batch);
  c.workers = reinterpret_cast<float*>((address + 63) / 64 * 64);
  c.partial = c.workers + stream.pool.size() * cpu::worker_floats(isa, p);
  stream.pool.parallel_for(c.table.tasks(), [&](Index task, int worker) { simd::call(isa, c, task, static_cast<Index>(worker)); });
  stream.pool.parallel_for(sums.tasks(), [&](Index task, int) { c.sum_partials(sums, task); });
  cpu::clear_unused(p, true, p.heads, p.head_dim, c.dq);
  cpu::clear_unused(p, false, p.kv_heads, p.head_dim, c.dk);
  cpu::clear_unused(p, false, p.kv_heads, p.v_head_dim, c.dv);
}

}  // namespace flashgpt::attention
