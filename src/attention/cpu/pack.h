// Rows of a tensor into the layouts of the tiles, and back. A row is a query or a key of one head; rows of queries are numbered over the
// heads that share keys, r = query * group + head in the group, so that a head of keys is read once for all of them.
#pragma once
#include <utility>

#include "attention/cpu/tile.h"
#include "attention/problem.h"

namespace flashgpt::attention::cpu {

// Floats from one packed row to the next: columns padded to whole tiles, then to an odd number of cache lines, so that rows do not meet in
// the same sets of the L1 cache.
template <int W> constexpr Index packed_columns(Index columns) { return (columns + kGroup<W> - 1) / kGroup<W> * kGroup<W>; }
template <int W> constexpr Index packed_stride(Index columns) {
  const Index lines = (packed_columns<W>(columns) + 15) / 16;
  return (lines | 1) * 16;
}

// Rows of one head lie a page or more apart, where no hardware prefetcher follows.
inline void prefetch_row(const float* row, Index columns) {
  for (Index c = 0; c < columns; c += 16) __builtin_prefetch(row + c);
}
inline constexpr Index kAhead = 16;  // rows, inside a copy

// dst[row][0, stride) = src row, zeros behind its columns; rows from `rows` to `padded` are zeros.
template <int W> [[gnu::always_inline]] inline void pack_rows(float* dst, Index stride, const float* src, Index src_row, Index columns,
                                                              Index rows, Index padded) {
  for (Index i = 0; i < padded; ++i) {
    float* d = dst + i * stride;
    Index c = 0;
    if (i < rows) {
      const float* s = src + i * src_row;
      if (i + kAhead < rows) prefetch_row(s + kAhead * src_row, columns);
      for (; c + W <= columns; c += W) store<W>(d + c, load<W>(s + c));
      for (; c < columns; ++c) d[c] = s[c];
    }
    for (; c < stride; ++c) d[c] = 0.0f;
  }
}

// The queries of a head of keys, as rows.
template <class T> struct QueryRows {
  View<T> view;
  Index sequence, first, head, group;  // first: view row of the sequence's first query; head: first of the group
  T* operator()(Index r) const { return view.at(sequence, first + r / group, head + r % group); }
};

// W rows of W floats, transposed in registers: at each step s, lanes whose bit s differs from their row's change places with row + s.
template <int W, int Step> [[gnu::always_inline]] inline void exchange(F<W>& a, F<W>& b) {
  const F<W> x = a, y = b;
  [&]<int... L>(std::integer_sequence<int, L...>) {
    a = __builtin_shufflevector(x, y, ((L & Step) == 0 ? L : W + L - Step)...);
    b = __builtin_shufflevector(x, y, ((L & Step) == 0 ? L + Step : W + L)...);
  }
  (std::make_integer_sequence<int, W>{});
}
template <int W, int Step = 1> [[gnu::always_inline]] inline void transpose(F<W> (&x)[W]) {
  if constexpr (Step < W) {
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i)
      if ((i & Step) == 0) exchange<W, Step>(x[i], x[i + Step]);
    transpose<W, 2 * Step>(x);
  }
}

// dst[column][lane] = factor * row(first + lane)[column]; lanes from `rows` on are zeros.
template <int W, class Row>
[[gnu::always_inline]] inline void pack_lanes(float* dst, const Row& row, Index first, Index rows, Index columns, float factor) {
  constexpr int kLanes = kGroup<W>;
  for (Index lane0 = 0; lane0 < kLanes; lane0 += W) {
    const float* s[W];
    for (Index i = 0; i < W; ++i) s[i] = lane0 + i < rows ? row(first + lane0 + i) : nullptr;
    Index c = 0;
    for (; c + W <= columns; c += W) {
      F<W> x[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) x[i] = s[i] ? load<W>(s[i] + c) : F<W>{};
      transpose<W>(x);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) store<W>(dst + (c + i) * kLanes + lane0, x[i] * splat<W>(factor));
    }
    for (; c < columns; ++c)
      for (Index i = 0; i < W; ++i) dst[c * kLanes + lane0 + i] = s[i] ? factor * s[i][c] : 0.0f;
  }
}

// row(first + lane)[column] = factor[lane] * src[column][lane] for lanes below `rows`; added to what is there if `add`.
template <int W, class Row> [[gnu::always_inline]] inline void unpack_lanes(const Row& row, Index first, Index rows, const float* src,
                                                                            Index columns, const float* factor, bool add) {
  constexpr int kLanes = kGroup<W>;
  for (Index lane0 = 0; lane0 < rows; lane0 += W) {
    const Index n = std::min<Index>(W, rows - lane0);
    Index c = 0;
    for (; c + W <= columns; c += W) {
      F<W> x[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) x[i] = load<W>(src + (c + i) * kLanes + lane0) * load<W>(factor + lane0);
      transpose<W>(x);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        if (i >= n) continue;
        float* d = row(first + lane0 + i) + c;
        store<W>(d, add ? load<W>(d) + x[i] : x[i]);
      }
    }
    for (; c < columns; ++c)
      for (Index i = 0; i < n; ++i) {
        float* d = row(first + lane0 + i) + c;
        const float x = factor[lane0 + i] * src[c * kLanes + lane0 + i];
        *d = add ? *d + x : x;
      }
  }
}

}  // namespace flashgpt::attention::cpu
