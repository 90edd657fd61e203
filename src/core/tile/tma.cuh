// Copies by the tensor memory accelerator. A tensor map (made by the host, core/cuda/tensor_map.h) describes an array of up to 5 dimensions
// and the box that one copy moves; coordinates count elements, fastest dimension first. What lies outside the array reads as zero and is
// not written. With the 128-byte swizzle a box is 64 elements of 16 bits wide and its place in shared memory is aligned to 1024 bytes.
#pragma once
#include "core/tile/barrier.cuh"

// The layout and the mangled name of the driver's type: kernels take it as `const __grid_constant__`.
struct alignas(128) CUtensorMap_st {
  uint64_t opaque[16];
};
using CUtensorMap = CUtensorMap_st;

namespace flashgpt::tile {

DEVICE void prefetch_map(const CUtensorMap* m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }

// Hints for the L2 cache, as the ones that createpolicy makes.
constexpr uint64_t kEvictNormal = 0x1000000000000000ull;
constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;
constexpr uint64_t kEvictLast = 0x14F0000000000000ull;

// Global to shared; the bytes count on mbarrier `bar`.
DEVICE void tma_load(uint32_t to, const CUtensorMap* m, uint32_t bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(m),
               "r"(bar), "r"(x), "r"(y)
               : "memory");
}
DEVICE void tma_load(uint32_t to, const CUtensorMap* m, uint32_t bar, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(m),
               "r"(bar), "r"(x), "r"(y), "r"(z)
               : "memory");
}
DEVICE void tma_load(uint32_t to, const CUtensorMap* m, uint32_t bar, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
               "l"(m), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
DEVICE void tma_load(uint32_t to, const CUtensorMap* m, uint32_t bar, int x, int y, int z, int w, int v) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
               "l"(m), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}

// Shared to global. The storing thread commits a group and waits for it: bulk_wait_read when the shared memory may be overwritten,
// bulk_wait when the result has to be visible.
DEVICE void tma_store(const CUtensorMap* m, uint32_t from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(m), "r"(from), "r"(x), "r"(y) : "memory");
}
DEVICE void tma_store(const CUtensorMap* m, uint32_t from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(m), "r"(from), "r"(x), "r"(y), "r"(z)
               : "memory");
}
DEVICE void tma_store(const CUtensorMap* m, uint32_t from, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(m), "r"(from), "r"(x), "r"(y),
               "r"(z), "r"(w)
               : "memory");
}
DEVICE void tma_store(const CUtensorMap* m, uint32_t from, int x, int y, int z, int w, int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(m), "r"(from), "r"(x), "r"(y),
               "r"(z), "r"(w), "r"(v)
               : "memory");
}

// Plain pieces of memory, multiples of 16 bytes at addresses that are multiples of 16.
DEVICE void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
               "r"(bar)
               : "memory");
}
DEVICE void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
DEVICE void bulk_reduce_add(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }

}  // namespace flashgpt::tile
