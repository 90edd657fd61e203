// Rows of a tensor into the layouts of the tiles, and back. A row is a query or a key of one head; rows of queries are numbered over the
// heads that share keys, r = query * group + head in the group, so that a head of keys is read once for all of them.
#pragma once
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

// dst[row][0, stride) = src row, zeros behind its columns; rows from `rows` to `padded` are zeros.
template <int W> [[gnu::always_inline]] inline void pack_rows(float* dst, Index stride, const float* src, Index src_row, Index columns,
                                                              Index rows, Index padded) {
  for (Index i = 0; i < padded; ++i) {
    float* d = dst + i * stride;
    Index c = 0;
    if (i < rows) {
      const float* s = src + i * src_row;
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

// dst[column][lane] = factor * row(first + lane)[column]; lanes from `rows` on are zeros.
template <int W, class Row>
[[gnu::always_inline]] inline void pack_lanes(float* dst, const Row& row, Index first, Index rows, Index columns, float factor) {
  constexpr int kLanes = kGroup<W>;
  for (Index lane = 0; lane < kLanes; ++lane) {
    if (lane < rows) {
      const float* s = row(first + lane);
      for (Index c = 0; c < columns; ++c) dst[c * kLanes + lane] = factor * s[c];
    } else {
      for (Index c = 0; c < columns; ++c) dst[c * kLanes + lane] = 0.0f;
    }
  }
}

// row(first + lane)[column] = factor[lane] * src[column][lane] for lanes below `rows`; added to what is there if `add`.
template <int W, class Row> [[gnu::always_inline]] inline void unpack_lanes(const Row& row, Index first, Index rows, const float* src,
                                                                            Index columns, const float* factor, bool add) {
  constexpr int kLanes = kGroup<W>;
  for (Index lane = 0; lane < rows; ++lane) {
    float* d = row(first + lane);
    const float f = factor[lane];
    if (add)
      for (Index c = 0; c < columns; ++c) d[c] += f * src[c * kLanes + lane];
    else
      for (Index c = 0; c < columns; ++c) d[c] = f * src[c * kLanes + lane];
  }
}

}  // namespace flashgpt::attention::cpu
