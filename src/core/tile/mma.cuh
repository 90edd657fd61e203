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

DEVICE void store_shared1(uint32_t address, uint32_t v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory"); }
DEVICE void load_shared16(uint32_t (&v)[4], uint32_t address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address) : "memory");
}
DEVICE void store_global16(void* to, const uint32_t (&v)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}

}  // namespace flashgpt::tile
