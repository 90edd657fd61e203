// Tiled backward; P is rebuilt from lse, so nothing of the size of the score matrix is kept:
//   P^T = 2^(K Q^T - lse)     dP^T = V dO^T     dS^T = P^T (dP^T - delta) score'     delta = rowsum(dO o) - dlse
//   dQ^T += K^T dS^T          dV += P^T dO      dK += dS^T Q                         dQ, dK times scale at the end
// A task is a range of keys of one head of keys: it owns dK and dV of its keys and goes over all rows of queries that see them. dQ is
// complete after it when the keys are not split; else each split has a partial dQ in scratch and a second sweep adds them in order. Keys
// are taken kPass at a time, so that K, V, dK, dV of a long sequence stay in the cache while its queries go by. With dropout, z its factor:
//   dS^T = P^T (z dP^T - delta) score'      dV += (z P^T) dO
#include <cmath>

#include "attention/cpu/block_lanes.h"
#include "attention/cpu/careful.h"
#include "attention/cpu/dropout_mask.h"
#include "attention/cpu/pack.h"
#include "attention/implementations.h"
#include "attention/schedule.h"

namespace flashgpt::attention {
namespace cpu {
namespace {

constexpr Index kBlockGroups = 4;   // groups of rows handled together
constexpr Index kPass = 1152;       // keys of a pass, at most; whole blocks
constexpr Index kNarrowSum = 1024;  // keys that every instruction set takes in one pass
constexpr Index kSumRows = 64;      // queries in a task of the sweep over partial dQ

template <int W> constexpr Index pass_keys() { return kPass / kBlock<W> * kBlock<W>; }
template <int W> constexpr Index block_rows() { return kBlockGroups * kGroup<W>; }

// Floats from one key to the next in P and dS: the rows of a block, padded to an odd number of cache lines.
template <int W> constexpr Index score_stride() { return block_rows<W>() + 16; }

template <int W> struct Buffers {  // of a worker; floats
  Index k, v, dk, dv, qt, dot, q, dout, dqt, lse, delta, p, ds, lanes, keep, drop, total;
  explicit Buffers(const Problem& pr) {
    const Index rows = block_rows<W>();
    const Index keys = round_up(std::min(pass_keys<W>(), std::max<Index>(pr.max_k, 1)), kRows<W>) + (pr.blocks ? kRows<W> : 0);
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
    // The masks of the groups, then those of the same groups for a segment of a block-sparse mask.
    lanes = take(2 * kBlockGroups * static_cast<Index>(sizeof(LaneInfo<W>) / sizeof(float)));
    keep = take(pr.dropout_threshold > 0 ? kBlockGroups * kBlock<W> * kGroup<W> : 0);
    drop = take(pr.dropout_threshold > 0 ? kBlockGroups * static_cast<Index>(sizeof(DropoutLanes<W>) / sizeof(float)) : 0);
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
        if (key < lanes->see_all_first || key + kTile > lanes->see_all_last) {  // 0 * NaN
#pragma GCC unroll 8
          for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 2
            for (int n = 0; n < 2; ++n) acc[r][n] = sees<W>(*lanes, n, key + r) ? acc[r][n] : F<W>{};
        }
      }
      store_tile<W, kTile>(acc, ds, kScores);
    }
  }
};

// From the products to P and dS where the score is more than the product. dp_scale: of dropout, on dP.
struct GradientRows {
  template <int W>
  [[gnu::always_inline]] static void run(const TileArgs* a, const LaneInfo<W>* lanes, const ScoreKind* kind, float dp_scale) {
    for (int n = 0; n < 2; ++n) {
      const F<W> l = load<W>(a->lse + n * W), delta = load<W>(a->delta + n * W);
      for (Index j = a->first; j < a->last; ++j) {
        float *p = a->p + j * score_stride<W>() + n * W, *ds = a->ds + j * score_stride<W>() + n * W;
        F<W> derivative = splat<W>(1.0f);
        const F<W> x = score_vec<W>(*kind, *lanes, n, a->key0 + j, load<W>(p), derivative);
        const I<W> seen = sees<W>(*lanes, n, a->key0 + j);
        const F<W> w = seen ? exp2_of<W>(x - l) : F<W>{};
        store<W>(p, w);
        store<W>(ds, seen ? w * (load<W>(ds) * splat<W>(dp_scale) - delta) * derivative : F<W>{});
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
  Stored q, k, v, o, dout, dq, dk, dv;
  View<const float> lse, dlse;
  Dropout dropout;
  TaskTable table;
  float* workers = nullptr;
  float* partial = nullptr;  // [split][query of the call][head][head_dim]

  Index splits(const Sequence& s) const { return key_splits(s.len_k, p.total_k, p.kv_heads); }
  // Whether dQ is summed in scratch: over splits, or over passes where the type of dQ is too narrow to sum in.
  bool summed(const Sequence& s) const { return splits(s) > 1 || (dq.dtype != Dtype::kF32 && s.len_k > kNarrowSum); }
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
    const QueryRows dq_rows{summed(s) ? stored(partial_of(split)) : dq, s.index, s.q_first, kv * p.group, p.group};
    Index key0 = first;
    do {
      const Index end = std::min(key0 + pass_keys<W>(), last);
      pass<W>(s, kv, key0, end, key0 == first, dq_rows, b, memory);
      key0 = end;
    } while (key0 < last);
  }

  template <int W> [[gnu::always_inline]] void pass(const Sequence& s, Index kv, Index pass0, Index pass1, bool first_pass,
                                                    const QueryRows& dq_rows, const Buffers<W>& b, float* memory) const {
    const Index k_stride = packed_stride<W>(p.head_dim), v_stride = packed_stride<W>(p.v_head_dim);
    const Index keys = pass1 - pass0, padded = round_up(keys, kRows<W>) + (p.blocks ? kRows<W> : 0), all_rows = s.len_q * p.group;
    Range rows{0, 0};
    bool k_finite = true, v_finite = true;
    if (keys > 0) {
      const Range queries = queries_of(p.mask, pass0, pass1, s.len_q, s.len_k);
      if (queries.first < queries.last) rows = {queries.first * p.group / block_rows<W>() * block_rows<W>(), queries.last * p.group};
      if (p.blocks) rows = {0, all_rows};
      pack_rows<W>(memory + b.k, k_stride, k.at(s.index, s.k_first + pass0, kv), k.row, k.dtype, p.head_dim, keys, padded, k_finite);
      pack_rows<W>(memory + b.v, v_stride, v.at(s.index, s.k_first + pass0, kv), v.row, v.dtype, p.v_head_dim, keys, padded, v_finite);
      std::fill_n(memory + b.dk, padded * k_stride, 0.0f);
      std::fill_n(memory + b.dv, padded * v_stride, 0.0f);
    }
    if (first_pass) {
      const Index end = std::min(round_up(rows.last, block_rows<W>()), all_rows);
      for (Index r = 0; r < all_rows; ++r)
        if (r < rows.first || r >= end) fill_zero(dq_rows(r), dq_rows.view.dtype, p.head_dim);
    }
    for (Index row0 = rows.first; row0 < rows.last; row0 += block_rows<W>()) {
      const Index count = std::min(block_rows<W>(), all_rows - row0);
      if (p.blocks && !sees_some(s, kv, row0, count, pass0, pass1)) {
        for (Index r = row0; first_pass && r < row0 + count; ++r) fill_zero(dq_rows(r), dq_rows.view.dtype, p.head_dim);
        continue;
      }
      row_block<W>(s, kv, pass0, pass1, row0, count, !first_pass, k_finite, dq_rows, b, memory);
    }
    for (Index j = 0; j < keys; ++j) {
      const float *from_k = memory + b.dk + j * k_stride, *from_v = memory + b.dv + j * v_stride;
      store_row<W>(dk.at(s.index, s.k_first + pass0 + j, kv), dk.dtype, from_k, p.head_dim, p.scale);
      store_row<W>(dv.at(s.index, s.k_first + pass0 + j, kv), dv.dtype, from_v, p.v_head_dim, kept_scale());
    }
  }

  float kept_scale() const { return dropout.threshold > 0 ? dropout_scale(dropout.threshold) : 1.0f; }

  // Whether the lists let one of the rows see a block with one of the keys.
  bool sees_some(const Sequence& s, Index kv, Index row0, Index rows, Index key0, Index key1) const {
    const Index q_first = row0 / p.group / p.blocks.block_q, q_last = (row0 + rows - 1) / p.group / p.blocks.block_q;
    const Index k_first = key0 / p.blocks.block_k, k_last = (key1 - 1) / p.blocks.block_k;
    for (Index h = kv * p.group; h < (kv + 1) * p.group; ++h)
      for (Index qb = q_first; qb <= q_last; ++qb)
        for (Index kb = k_first; kb <= k_last; ++kb)
          if (p.blocks.seen(s.index, h, qb, kb) != Seen::kNone) return true;
    return false;
  }

  template <int W> [[gnu::always_inline]] void row_block(const Sequence& s, Index kv, Index pass0, Index pass1, Index row0, Index rows,
                                                         bool add, bool k_finite, const QueryRows& dq_rows, const Buffers<W>& b,
                                                         float* memory) const {
    constexpr Index kLanes = kGroup<W>;
    const Index k_stride = packed_stride<W>(p.head_dim), v_stride = packed_stride<W>(p.v_head_dim), groups = ceil_div(rows, kLanes);
    const Index dq_columns = round_up(p.head_dim, 2);
    const ScoreKind kind = score_kind(p);
    auto* lanes = reinterpret_cast<LaneInfo<W>*>(memory + b.lanes);
    auto* drop = reinterpret_cast<DropoutLanes<W>*>(memory + b.drop);
    const QueryRows q_rows{q, s.index, s.q_first, kv * p.group, p.group};
    const QueryRows do_rows{dout, s.index, s.q_first, kv * p.group, p.group};
    const QueryRows o_rows{o, s.index, s.q_first, kv * p.group, p.group};
    const Index all_rows = s.len_q * p.group;
    auto prefetch = [&](Index first) {  // rows of a group
      for (Index r = first; r < std::min(first + kLanes, all_rows); ++r) {
        prefetch_row(do_rows(r), p.v_head_dim * static_cast<Index>(size_of(dout.dtype)));
        prefetch_row(q_rows(r), p.head_dim * static_cast<Index>(size_of(q.dtype)));
        prefetch_row(o_rows(r), p.v_head_dim * static_cast<Index>(size_of(o.dtype)));
      }
    };
    bool q_finite = true, do_finite = true;
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kLanes, n = std::min(kLanes, rows - r);
      prefetch(row0 + r + kLanes);
      pack_lanes<W>(memory + b.qt + r * p.head_dim, q_rows, row0 + r, n, p.head_dim, kind.fold);
      pack_lanes<W>(memory + b.dot + r * p.v_head_dim, do_rows, row0 + r, n, p.v_head_dim, 1.0f);
      fill_lanes<W>(lanes[g], p, s, kv, row0 + r, n);
      if (dropout.threshold > 0) drop[g].fill(p, s, kv, row0 + r, n);
      for (Index lane = 0; lane < kLanes; ++lane) {
        const Index row = row0 + r + lane;
        float *to_q = memory + b.q + (r + lane) * k_stride, *to_do = memory + b.dout + (r + lane) * v_stride;
        if (lane < n) {
          pack_rows<W>(to_q, k_stride, q_rows(row), 0, q.dtype, p.head_dim, 1, 1, q_finite);
          pack_rows<W>(to_do, v_stride, do_rows(row), 0, dout.dtype, p.v_head_dim, 1, 1, do_finite);
          const Index h = kv * p.group + row % p.group, i = s.q_first + row / p.group;
          const float l = *lse.at(s.index, i, h) * kLog2e;
          memory[b.lse + r + lane] = l == -__builtin_inff() ? __builtin_inff() : l;
          memory[b.delta + r + lane] = dot(to_do, o_rows(row), o.dtype, p.v_head_dim) - (dlse ? *dlse.at(s.index, i, h) : 0.0f);
        } else {
          std::fill_n(to_q, k_stride, 0.0f);
          std::fill_n(to_do, v_stride, 0.0f);
          memory[b.lse + r + lane] = __builtin_inff();  // 2^(0 - inf) = 0
          memory[b.delta + r + lane] = 0.0f;
        }
      }
    }
    std::fill_n(memory + b.dqt, groups * kLanes * dq_columns, 0.0f);

    GroupRange ranges[kBlockGroups];
    for (Index key0 = pass0, end; key0 < pass1; key0 = end) {
      end = segment_end(p, key0, std::min<Index>(key0 + kBlock<W>, pass1));
      const Index padded = round_up(end - key0, kRows<W>), at = key0 - pass0;
      LaneInfo<W>* infos = lanes;
      if (p.blocks) infos = lanes + kBlockGroups;
      bool some = false;
      for (Index g = 0; g < groups; ++g) {
        const Index r = g * kLanes;
        ranges[g] = {0, 0};
        if (p.blocks && !block_lanes<W>(infos[g], lanes[g], p, s, kv, row0 + r, std::min(kLanes, rows - r), key0, end)) continue;
        const LaneInfo<W>* info = infos + g;
        const Index first = std::max<Index>(0, info->see_any_first - key0) / kRows<W> * kRows<W>;
        const Index last = std::min(padded, round_up(std::max<Index>(0, info->see_any_last - key0), kRows<W>));
        ranges[g] = {first, last};
        if (first >= last) continue;
        some = true;
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
        const bool by_rows = !kind.plain() || dropout.threshold > 0;
        Outlined<W>::template call<Gradients>(&args, info, by_rows);
        if (by_rows) {
          std::int32_t* keep = reinterpret_cast<std::int32_t*>(memory + b.keep) + g * kBlock<W> * kLanes;
          const std::int32_t* kept = keep;
          if (dropout.threshold > 0) {
            Outlined<W>::template call<FillDropout>(keep, static_cast<const DropoutLanes<W>*>(drop + g), &dropout, key0, first, last);
            Outlined<W>::template call<DropWeights>(args.ds, score_stride<W>(), kept, first, last);
          }
          Outlined<W>::template call<GradientRows>(&args, info, &kind, kept_scale());
          if (dropout.threshold > 0) Outlined<W>::template call<DropWeights>(args.p, score_stride<W>(), kept, first, last);
        }
        float* dqt = memory + b.dqt + r * dq_columns;
        const float* ds = args.ds;
        if (k_finite)
          Outlined<W>::template call<AddTransposed>(dqt, dq_columns, args.k + first * k_stride, k_stride, ds + first * score_stride<W>(),
                                                    score_stride<W>(), last - first, false);
        else
          Outlined<W>::template call<AddTransposedSeen>(dqt, dq_columns, args.k, k_stride, ds, score_stride<W>(), first, last, key0, info,
                                                        static_cast<const std::int32_t*>(nullptr));
      }
      if (!some) continue;
      add_outer<W>(memory + b.dv + at * v_stride, v_stride, packed_columns<W>(p.v_head_dim), memory + b.p, memory + b.dout, ranges, groups,
                   padded, key0, infos, static_cast<bool>(p.blocks), do_finite,
                   dropout.threshold > 0 ? reinterpret_cast<const std::int32_t*>(memory + b.keep) : nullptr);
      add_outer<W>(memory + b.dk + at * k_stride, k_stride, packed_columns<W>(p.head_dim), memory + b.ds, memory + b.q, ranges, groups,
                   padded, key0, infos, static_cast<bool>(p.blocks), q_finite, nullptr);
    }
    float scale[kLanes];
    std::fill_n(scale, kLanes, p.scale);
    prefetch(row0 + rows);
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kLanes;
      unpack_lanes<W>(dq_rows, row0 + r, std::min(kLanes, rows - r), memory + b.dqt + r * dq_columns, p.head_dim, scale, add);
    }
  }

  // AddOuter, or pair by pair where y is not finite.
  template <int W> [[gnu::always_inline]] static void add_outer(float* dst, Index stride, Index columns, const float* x, const float* y,
                                                                const GroupRange* ranges, Index groups, Index keys, Index key0,
                                                                const LaneInfo<W>* infos, bool by_blocks, bool finite,
                                                                const std::int32_t* keep) {
    if (finite) {
      for (Index g = 0, next; g < groups; g = next) {  // groups that follow each other as AddOuter wants them
        next = g + 1;
        while (next < groups && (!by_blocks || (ranges[next].first == ranges[g].first && ranges[next].last == ranges[g].last))) ++next;
        const Index r = g * kGroup<W>;
        Outlined<W>::template call<AddOuter>(dst, stride, columns, x + r, y + r * stride, ranges + g, next - g, keys);
      }
      return;
    }
    for (Index g = 0; g < groups; ++g) {
      const Index r = g * kGroup<W>;
      const std::int32_t* kept = keep ? keep + g * kBlock<W> * kGroup<W> : nullptr;
      Outlined<W>::template call<AddOuterSeen>(dst, stride, columns, x + r, score_stride<W>(), y + r * stride, ranges[g].first,
                                               ranges[g].last, key0, infos + g, kept);
    }
  }

  // dq = partial dQ of all splits, in order.
  void sum_partials(const TaskTable& sums, Index task) const {
    const Index entry = sums.find(task), block = task - sums.first_task[entry];
    const Sequence s = p.sequence(sums.sequence[entry]);
    const Index count = splits(s), last = std::min(s.len_q, (block + 1) * kSumRows);
    for (Index i = s.q_first + block * kSumRows; i < s.q_first + last; ++i)
      for (Index h = 0; h < p.heads; ++h) {
        float* sum = partial_of(0).at(s.index, i, h);
        for (Index split = 1; split < count; ++split) {
          const float* from = partial_of(split).at(s.index, i, h);
          for (Index c = 0; c < p.head_dim; ++c) sum[c] += from[c];
        }
        store_row<4>(dq.at(s.index, i, h), dq.dtype, sum, p.head_dim, 1.0f);
      }
  }

  // dsink of a head: the sum over its queries of exp(sink - lse) (dlse - do . o).
  double sink_gradient(Index h) const {
    double total = 0;
    for (Index b = 0; b < p.batch; ++b) {
      const Sequence s = p.sequence(b);
      for (Index i = 0; i < s.len_q; ++i) {
        const Index row = s.q_first + i;
        const double weight = exp_of(p.sink(h) - static_cast<double>(*lse.at(b, row, h)));
        if (weight == 0) continue;
        double delta = dlse ? -static_cast<double>(*dlse.at(b, row, h)) : 0.0;
        delta += dot(dout.at(b, row, h), dout.dtype, o.at(b, row, h), o.dtype, p.v_head_dim);
        total -= weight * delta;
      }
    }
    return total;
  }
};

Index worker_floats(const Problem& p) { return std::max({Buffers<16>(p).total, Buffers<8>(p).total, Buffers<4>(p).total}); }
Index worker_floats(Isa isa, const Problem& p) {
  return isa == Isa::kAvx512 ? Buffers<16>(p).total : isa == Isa::kAvx2 ? Buffers<8>(p).total : Buffers<4>(p).total;
}

std::size_t partial_bytes(const Problem& p) {
  const Index most = key_splits(p.max_k, p.total_k, p.kv_heads);
  const bool narrow = p.narrow && p.max_k > kNarrowSum;
  return most == 1 && !narrow ? 0 : static_cast<std::size_t>(most * p.total_q * p.heads * p.head_dim) * sizeof(float);
}

void clear_unused(const Problem& p, bool queries, Index heads, Index columns, const Stored& t) {
  unused_rows(p, queries, [&](Index b, Index first, Index count) {
    for (Index i = first; i < first + count; ++i)
      for (Index h = 0; h < heads; ++h) fill_zero(t.at(b, i, h), t.dtype, columns);
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
  c.q = cpu::stored(op.q, p.varlen);
  c.k = cpu::stored(op.k, p.varlen);
  c.v = cpu::stored(op.v, p.varlen);
  c.o = cpu::stored(op.o, p.varlen);
  c.dout = cpu::stored(op.dout, p.varlen);
  c.lse = lse_view<const float>(op.lse, p.varlen);
  c.dlse = lse_view<const float>(op.dlse, p.varlen);
  c.dq = cpu::stored(op.dq, p.varlen);
  c.dk = cpu::stored(op.dk, p.varlen);
  c.dv = cpu::stored(op.dv, p.varlen);

  c.dropout = p.dropout();
  auto* memory = static_cast<std::byte*>(scratch.data);
  c.table = make_table(p, memory, [&](const Sequence& s) { return s.len_q > 0 || s.len_k > 0 ? p.kv_heads * c.splits(s) : 0; });
  const TaskTable sums =
      make_table(p, memory + table_bytes(p.batch), [&](const Sequence& s) { return c.summed(s) ? ceil_div(s.len_q, cpu::kSumRows) : 0; });
  const Isa isa = simd::isa();
  const auto address = reinterpret_cast<std::uintptr_t>(memory) + 2 * table_bytes(p.batch);
  c.workers = reinterpret_cast<float*>((address + 63) / 64 * 64);
  c.partial = c.workers + stream.pool.size() * cpu::worker_floats(isa, p);
  stream.pool.parallel_for(c.table.tasks(), [&](Index task, int worker) { simd::call(isa, c, task, static_cast<Index>(worker)); });
  stream.pool.parallel_for(sums.tasks(), [&](Index task, int) { c.sum_partials(sums, task); });
  if (op.dsink)
    stream.pool.parallel_for(p.heads,
                             [&](Index h, int) { static_cast<float*>(op.dsink.data)[h] += static_cast<float>(c.sink_gradient(h)); });
  cpu::clear_unused(p, true, p.heads, p.head_dim, c.dq);
  cpu::clear_unused(p, false, p.kv_heads, p.head_dim, c.dk);
  cpu::clear_unused(p, false, p.kv_heads, p.v_head_dim, c.dv);
}

}  // namespace flashgpt::attention
