// Tensor cores of any GPU from Ampere on: the product of 16 x 16 by 16 x 8 that a warp does from registers, copies from global into shared
// memory that do not pass through registers, and where each lane finds its part of a fragment in a swizzled tile (smem.cuh).
//
// Fragments of mma m16n8k16, lane l, g = l / 4, t = l % 4:
//   accumulator  rows g (elements 0, 1) and g + 8 (2, 3), columns 2t, 2t + 1
//   A            rows g, g + 8, g, g + 8 of columns 2t, 2t + 1, the last two 8 columns on: two accumulators side by side, packed
//   B            column g, rows 2t, 2t + 1, the second register 8 rows on
#pragma once
#include "core/tile/smem.cuh"

namespace flashgpt::tile {

template <class E> DEVICE void mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (E::kIsHalf)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes; zeros when not `wanted`, and then `from` is not read.
DEVICE void copy16(uint32_t to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}
DEVICE void copy4(uint32_t to, const void* from, bool wanted) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(wanted ? 4 : 0) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most Pending of this thread's groups are under way.
template <int Pending> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"); }

// Where lane l points ldmatrix in a 16 x 16 piece at the tile's origin; `place_of` moves it. Two orders of the four 8 x 8 matrices:
//   down    row l % 16, half l / 16          A from rows of A; with the transposing load, B from rows of B
//   across  row l % 8 + 8 (l / 16), half     B from columns of B that are rows in memory; transposing, A from rows of A's transpose
DEVICE uint32_t place_down(uint32_t tile) {
  const int l = lane_index();
  return tile + l % 16 * kSwizzleRowBytes + ((l / 16) ^ (l % 8)) * 16;
}
DEVICE uint32_t place_across(uint32_t tile) {
  const int l = lane_index();
  return tile + (l % 8 + l / 16 * 8) * kSwizzleRowBytes + ((l / 8 % 2) ^ (l % 8)) * 16;
}
// Where a lane stores the pair of columns 2t, 2t + 1 of row g.
DEVICE uint32_t place_pair(uint32_t tile) {
  const int l = lane_index();
  return tile + l / 4 * (kSwizzleRowBytes + 16) + l % 4 * 4;
}
// The same for the piece at (row, column) of a tile of `rows` rows: row a multiple of 8, column of 8 (of 16 for ldmatrix).
DEVICE uint32_t place_of(uint32_t place, int row, int column, int rows) {
  return (place ^ (column % kSwizzleColumns / 8 * 16)) + (column / kSwizzleColumns * rows + row) * kSwizzleRowBytes;
}

// The place of the part of a matrix that begins at (row, column), for parts of Width columns: then place_of counts from there.
template <int Width> DEVICE uint32_t place_part(uint32_t place, int row, int column, int rows) {
  static_assert(Width % kSwizzleColumns == 0 || kSwizzleColumns % Width == 0, "parts of another width do not stay inside a block of columns");
  return place_of(place, row, column, rows);
}

DEVICE void store_shared1(uint32_t address, uint32_t v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory"); }
DEVICE void load_shared16(uint32_t (&v)[4], uint32_t address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address) : "memory");
}
DEVICE void store_global16(void* to, const uint32_t (&v)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}

// sum += A B over `Depth` columns of A, for a warp's part: A's rows begin at a_row, B's columns at b_column.
//   AcrossA: memory holds A's transpose (its tile has ARows rows)       AcrossB: memory holds B's transpose
template <class E, int Depth, bool AcrossA, int ARows, bool AcrossB, int BRows, int R, int J>
DEVICE void multiply(float (&sum)[R][J][4], uint32_t a, int a_row, uint32_t b, int b_column) {
  constexpr int kColumns = J * 8;
  constexpr bool kParts = kSwizzleColumns % kColumns == 0 || kColumns % kSwizzleColumns == 0;  // the part of B is a part as of place_part
  const uint32_t a_place = AcrossA ? place_of(place_across(a), 0, a_row, ARows) : place_of(place_down(a), a_row, 0, ARows);
  const uint32_t b_place = AcrossB                ? place_of(place_across(b), b_column, 0, BRows)
                           : kParts               ? place_part<kParts ? kColumns : 64>(place_down(b), 0, b_column, BRows)
                                                  : place_down(b);
#pragma unroll
  for (int k = 0; k < Depth; k += 16) {
    uint32_t x[R][4];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if constexpr (AcrossA)
        ldmatrix4_transposed(x[r], place_of(a_place, k, r * 16, ARows));
      else
        ldmatrix4(x[r], place_of(a_place, r * 16, k, ARows));
    }
#pragma unroll
    for (int j = 0; j < kColumns; j += 16) {
      uint32_t y[4];
      if constexpr (AcrossB)
        ldmatrix4(y, place_of(b_place, j, k, BRows));
      else
        ldmatrix4_transposed(y, place_of(b_place, k, kParts ? j : b_column + j, BRows));
#pragma unroll
      for (int r = 0; r < R; ++r) {
        mma<E>(sum[r][j / 8], x[r], y[0], y[1]);
        mma<E>(sum[r][j / 8 + 1], x[r], y[2], y[3]);
      }
    }
  }
}
template <int R, int J> DEVICE void clear(float (&x)[R][J][4]) {
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int j = 0; j < J; ++j) fill(x[r][j], 0.0f);
}

// Adds the accumulators of a 16 x 8 piece to fp32 rows in memory: `row` is that of the lane's elements 0 and 1 at the piece's first column,
// `step` what leads 8 rows on.
DEVICE void reduce_rows(float* row, int64_t step, const float (&d)[4], bool first, bool second) {
  float* to = row + lane_index() % 4 * 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (first) reduce_add2(to, d[0], d[1]);
  if (second) reduce_add2(to + step, d[2], d[3]);
#else
  if (first) atomicAdd(to, d[0]), atomicAdd(to + 1, d[1]);
  if (second) atomicAdd(to + step, d[2]), atomicAdd(to + step + 1, d[3]);
#endif
}
// The same to a piece in fragment order, 128 numbers in the order in which the lanes have them, which takes a quarter of the requests.
// Element 2 half + e of lane l lies at fragment_at(l, 2 half + e).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
DEVICE int fragment_at(int lane, int element) { return lane * 4 + element; }
DEVICE void reduce_fragment(float* piece, const float (&d)[4]) { reduce_add4<0>(piece + lane_index() * 4, d[0], d[1], d[2], d[3]); }
#else
DEVICE int fragment_at(int lane, int element) { return element * kWarp + lane; }
DEVICE void reduce_fragment(float* piece, const float (&d)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) atomicAdd(piece + e * kWarp + lane_index(), d[e]);
}
#endif

}  // namespace flashgpt::tile
