// Products of a warpgroup on the tensor cores, asynchronous: D[64 x N] (+)= A[64 x 16] B[16 x N], fp32 accumulators.
//
//   wgmma_fence();  ...issue...  wgmma_commit();  ...other work...  wgmma_wait<pending>();  pin(d);
//
// A comes from shared memory (ss) or from registers (rs), B from shared memory. Layouts are the swizzled tiles of smem.cuh. An operand is
// "K-major" when its rows run along k (Q, K in Q K^T), "MN-major" when they run along m or n (V in P V): then Trans = 1.
// Accumulator of a warp's 16 rows: lane l holds rows l / 4 and l / 4 + 8, columns 8 j + 2 (l % 4) + {0, 1}: d[4 j + {0, 1}] and d[4 j + {2, 3}].
// Between issue and wait no register of D, nor of an A in registers, may be touched, else ptxas serialises everything (notes C7510 to C7518).
#pragma once
#include "core/tile/smem.cuh"
#include "core/tile/wgmma_shapes.cuh"

namespace flashgpt::tile {

constexpr int kProductK = 16;  // depth of one instruction

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"); }
// Keeps the compiler from moving uses of an accumulator over a wait.
template <int N> DEVICE void pin(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// Descriptor of a swizzled tile. K-major operands ignore `block_stride`; for MN-major ones it is the distance in bytes between blocks of 64.
DEVICE uint64_t descriptor(uint32_t address, uint32_t block_stride = 16) {
  constexpr uint64_t kSwizzle128 = 1ull << 62;
  return static_cast<uint64_t>((address >> 4) & 0x3FFF) | static_cast<uint64_t>(block_stride >> 4) << 16 |
         static_cast<uint64_t>(kSwizzleAtomBytes >> 4) << 32 | kSwizzle128;
}
// What to add to a descriptor for step `ks` of 16 along k. A K-major tile of `rows` rows: 32 bytes inside a block, then the next block.
constexpr uint64_t k_major_step(int ks, int rows) { return ks / 4 * (rows * kSwizzleRowBytes >> 4) + ks % 4 * 2; }
// An MN-major tile: 16 rows down.
constexpr uint64_t mn_major_step(int ks) { return ks * (kProductK * kSwizzleRowBytes >> 4); }

// D (+)= A B^T over a depth of `Depth` columns: A a K-major tile of `RowsA` rows of which this warpgroup's 64 start at `a`; B one of N rows.
template <class E, int Depth, int RowsA, int N> DEVICE void product_abt(float (&d)[N / 2], uint32_t a, uint32_t b, bool accumulate = false) {
  const uint64_t da = descriptor(a), db = descriptor(b);
#pragma unroll
  for (int ks = 0; ks < Depth / kProductK; ++ks)
    WgmmaShape<N>::template ss<E, 0, 0>(d, da + k_major_step(ks, RowsA), db + k_major_step(ks, N), accumulate || ks > 0);
}
// D += P B with P (64 x Depth) in registers as packed accumulators, B an MN-major tile of Depth rows and N columns.
template <class E, int Depth, int N> DEVICE void product_pb(float (&d)[N / 2], const uint32_t (&p)[Depth / 4], uint32_t b, bool accumulate = true) {
  const uint64_t db = descriptor(b, Depth * kSwizzleRowBytes);
#pragma unroll
  for (int ks = 0; ks < Depth / kProductK; ++ks)
    WgmmaShape<N>::template rs<E, 0, 1>(d, &p[4 * ks], db + mn_major_step(ks), accumulate || ks > 0);
}

// One warp's synchronous product, for rare paths: D[16 x 8] += A[16 x 16] B[16 x 8], in the fragments of wgmma.
template <class E> DEVICE void mma_m16n8k16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.%10.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(E::kPtx));
}

}  // namespace flashgpt::tile
