// Rows of a tensor into the layouts of the tiles, and back. A row is a query or a key of one head; rows of queries are numbered over the
// heads that share keys, r = query * group + head in the group, so that a head of keys is read once for all of them.
//
// Copies tell whether all that they copied is finite: where a weight is zero because of the mask, a NaN or an infinity in the other factor
// would otherwise come through as 0 * NaN; the kernels then take a slower way (careful.h).
#pragma once
#include <utility>

#include "attention/cpu/storage.h"

namespace flashgpt::attention::cpu {

// Floats from one packed row to the next: columns padded to whole tiles, then to an odd number of cache lines, so that rows do not meet in
// the same sets of the L1 cache.
template <int W> constexpr Index packed_columns(Index columns) { return (columns + kGroup<W> - 1) / kGroup<W> * kGroup<W>; }
template <int W> constexpr Index packed_stride(Index columns) {
  const Index lines = (packed_columns<W>(columns) + 15) / 16;
  return (lines | 1) * 16;
}

// Rows of one head lie a page or more apart, where no hardware prefetcher follows.
inline void prefetch_row(const char* row, Index bytes) {
  for (Index c = 0; c < bytes; c += 64) __builtin_prefetch(row + c);
}
inline constexpr Index kAhead = 16;  // rows, inside a copy

// The queries of a head of keys, as rows.
struct QueryRows {
  Stored view;
  Index sequence, first, head, group;  // first: view row of the sequence's first query; head: first of the group
  char* operator()(Index r) const { return view.at(sequence, first + r / group, head + r % group); }
};

// x - x is 0 for a finite x, else NaN: or-ed over many, zero says that all were finite.
template <int W> struct FiniteCheck {
  I<W> bits{};
  [[gnu::always_inline]] void see(const F<W>& x) { bits |= reinterpret_cast<I<W>>(x - x); }
  [[gnu::always_inline]] bool finite() const { return !any<W>(bits); }
};

// dst[row][0, stride) = src row, zeros behind its columns; rows from `rows` to `padded` are zeros. *finite is cleared, never set.
template <class T> struct PackRows {
  template <int W> [[gnu::always_inline]] static void run(float* dst, Index stride, const char* src, Index src_row, Index columns,
                                                          Index rows, Index padded, bool* finite) {
    FiniteCheck<W> check;
    for (Index i = 0; i < padded; ++i) {
      float* d = dst + i * stride;
      Index c = 0;
      if (i < rows) {
        const T* s = reinterpret_cast<const T*>(src + i * src_row);
        if (i + kAhead < rows) prefetch_row(src + (i + kAhead) * src_row, columns * static_cast<Index>(sizeof(T)));
        for (; c + W <= columns; c += W) {
          const F<W> x = load_as<W>(s + c);
          check.see(x);
          store<W>(d + c, x);
        }
        for (; c < columns; ++c) {
          const float x = d[c] = static_cast<float>(s[c]);
          if (x - x != 0.0f) *finite = false;
        }
      }
      for (; c < stride; ++c) d[c] = 0.0f;
    }
    if (!check.finite()) *finite = false;
  }
};
template <int W> [[gnu::always_inline]] inline void pack_rows(float* dst, Index stride, const char* src, Index src_row, Dtype dtype,
                                                              Index columns, Index rows, Index padded, bool& finite) {
  switch (dtype) {
    case Dtype::kBF16: return Outlined<W>::template call<PackRows<Bf16>>(dst, stride, src, src_row, columns, rows, padded, &finite);
    case Dtype::kF16: return Outlined<W>::template call<PackRows<Fp16>>(dst, stride, src, src_row, columns, rows, padded, &finite);
    default: return Outlined<W>::template call<PackRows<float>>(dst, stride, src, src_row, columns, rows, padded, &finite);
  }
}

// Keys or values of a batch: rows of a tensor, or of a paged cache (decode.h).
struct KeyRows {
  Stored view;                                    // paged: sequence is the page, row the slot in the page
  const std::int32_t* row_of_sequence = nullptr;  // null: the sequence's own
  const std::int32_t* pages = nullptr;            // [batch, most pages]; null: not paged
  Index page_size = 0, most_pages = 0;

  char* at(Index sequence, Index slot, Index head) const {
    if (pages) return view.at(pages[sequence * most_pages + slot / page_size], slot % page_size, head);
    return view.at(row_of_sequence ? row_of_sequence[sequence] : sequence, slot, head);
  }
  Index rows_together(Index slot) const { return pages ? page_size - slot % page_size : INT64_MAX; }  // from here on, a stride apart
};

// PackRows of slots [slot, slot + rows).
template <int W> [[gnu::always_inline]] inline void pack_keys(float* dst, Index stride, const KeyRows& from, Index sequence, Index slot,
                                                              Index head, Index columns, Index rows, Index padded, bool& finite) {
  Index done = 0;
  do {
    const Index n = std::min(rows - done, from.rows_together(slot + done)), filled = done + n < rows ? n : padded - done;
    pack_rows<W>(dst + done * stride, stride, n > 0 ? from.at(sequence, slot + done, head) : nullptr, from.view.row, from.view.dtype,
                 columns, n, filled, finite);
    done += n;
  } while (done < rows);
}

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
template <class T> struct PackLanes {
  template <int W>
  [[gnu::always_inline]] static void run(float* dst, const QueryRows* row, Index first, Index rows, Index columns, float factor) {
    constexpr int kLanes = kGroup<W>;
    for (Index lane0 = 0; lane0 < kLanes; lane0 += W) {
      const T* s[W];
      for (Index i = 0; i < W; ++i) s[i] = lane0 + i < rows ? reinterpret_cast<const T*>((*row)(first + lane0 + i)) : nullptr;
      Index c = 0;
      for (; c + W <= columns; c += W) {
        F<W> x[W];
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) x[i] = s[i] ? load_as<W>(s[i] + c) : F<W>{};
        transpose<W>(x);
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) store<W>(dst + (c + i) * kLanes + lane0, x[i] * splat<W>(factor));
      }
      for (; c < columns; ++c)
        for (Index i = 0; i < W; ++i) dst[c * kLanes + lane0 + i] = s[i] ? factor * static_cast<float>(s[i][c]) : 0.0f;
    }
  }
};
template <int W>
[[gnu::always_inline]] inline void pack_lanes(float* dst, const QueryRows& row, Index first, Index rows, Index columns, float factor) {
  switch (row.view.dtype) {
    case Dtype::kBF16: return Outlined<W>::template call<PackLanes<Bf16>>(dst, &row, first, rows, columns, factor);
    case Dtype::kF16: return Outlined<W>::template call<PackLanes<Fp16>>(dst, &row, first, rows, columns, factor);
    default: return Outlined<W>::template call<PackLanes<float>>(dst, &row, first, rows, columns, factor);
  }
}

// row(first + lane)[column] = factor[lane] * src[column][lane] for lanes below `rows`; added to what is there if `add`.
template <class T> struct UnpackLanes {
  template <int W> [[gnu::always_inline]] static void run(const QueryRows* row, Index first, Index rows, const float* src, Index columns,
                                                          const float* factor, bool add) {
    constexpr int kLanes = kGroup<W>;
    for (Index lane0 = 0; lane0 < rows; lane0 += W) {
      const Index n = std::min<Index>(W, rows - lane0);
      T* to[W] = {};
      for (Index i = 0; i < n; ++i) to[i] = reinterpret_cast<T*>((*row)(first + lane0 + i));
      Index c = 0;
      for (; c + W <= columns; c += W) {
        F<W> x[W];
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) x[i] = load<W>(src + (c + i) * kLanes + lane0) * load<W>(factor + lane0);
        transpose<W>(x);
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) {
          if (i >= n) continue;
          store_as<W>(to[i] + c, add ? load_as<W>(to[i] + c) + x[i] : x[i]);
        }
      }
      for (; c < columns; ++c)
        for (Index i = 0; i < n; ++i) {
          const float x = factor[lane0 + i] * src[c * kLanes + lane0 + i];
          to[i][c] = T(add ? static_cast<float>(to[i][c]) + x : x);
        }
    }
  }
};
template <int W> [[gnu::always_inline]] inline void unpack_lanes(const QueryRows& row, Index first, Index rows, const float* src,
                                                                 Index columns, const float* factor, bool add) {
  switch (row.view.dtype) {
    case Dtype::kBF16: return Outlined<W>::template call<UnpackLanes<Bf16>>(&row, first, rows, src, columns, factor, add);
    case Dtype::kF16: return Outlined<W>::template call<UnpackLanes<Fp16>>(&row, first, rows, src, columns, factor, add);
    default: return Outlined<W>::template call<UnpackLanes<float>>(&row, first, rows, src, columns, factor, add);
  }
}

// to[0, columns) = factor * from, in the type of the tensor.
template <class T> struct StoreRow {
  template <int W> [[gnu::always_inline]] static void run(char* to, const float* from, Index columns, float factor) {
    T* t = reinterpret_cast<T*>(to);
    Index c = 0;
    for (; c + W <= columns; c += W) store_as<W>(t + c, splat<W>(factor) * load<W>(from + c));
    for (; c < columns; ++c) t[c] = T(factor * from[c]);
  }
};
template <int W> [[gnu::always_inline]] inline void store_row(char* to, Dtype dtype, const float* from, Index columns, float factor) {
  switch (dtype) {
    case Dtype::kBF16: return Outlined<W>::template call<StoreRow<Bf16>>(to, from, columns, factor);
    case Dtype::kF16: return Outlined<W>::template call<StoreRow<Fp16>>(to, from, columns, factor);
    default: return Outlined<W>::template call<StoreRow<float>>(to, from, columns, factor);
  }
}

// Sum of x[i] * y[i] in eight parts, whatever the instruction set; y in the type of its tensor.
template <class T> float dot_as(const float* x, const char* y, Index n) {
  const T* t = reinterpret_cast<const T*>(y);
  float part[8] = {};
  Index c = 0;
  for (; c + 8 <= n; c += 8)
    for (int i = 0; i < 8; ++i) part[i] += x[c + i] * static_cast<float>(t[c + i]);
  for (; c < n; ++c) part[c % 8] += x[c] * static_cast<float>(t[c]);
  return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}
// Both in the types of their tensors, summed in double.
inline double dot(const char* x, Dtype x_dtype, const char* y, Dtype y_dtype, Index n) {
  auto at = [](const char* p, Dtype dtype, Index i) {
    switch (dtype) {
      case Dtype::kBF16: return static_cast<float>(reinterpret_cast<const Bf16*>(p)[i]);
      case Dtype::kF16: return static_cast<float>(reinterpret_cast<const Fp16*>(p)[i]);
      default: return reinterpret_cast<const float*>(p)[i];
    }
  };
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += static_cast<double>(at(x, x_dtype, c)) * static_cast<double>(at(y, y_dtype, c));
  return sum;
}
inline float dot(const float* x, const char* y, Dtype dtype, Index n) {
  switch (dtype) {
    case Dtype::kBF16: return dot_as<Bf16>(x, y, n);
    case Dtype::kF16: return dot_as<Fp16>(x, y, n);
    default: return dot_as<float>(x, y, n);
  }
}

}  // namespace flashgpt::attention::cpu
