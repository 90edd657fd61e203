// Shared-memory tiles of 16-bit elements in the 128-byte swizzle, as TMA writes them and wgmma reads them: a tile of R rows and C columns is
// ceil(C / 64) blocks one after the other, each [R][64]; inside a block the 16-byte piece i of row r lies at place i ^ (r % 8).
// Also the matrix loads and stores between such tiles and register fragments, and reductions from registers into global memory.
#pragma once
#include "core/tile/barrier.cuh"

namespace flashgpt::tile {

constexpr int kSwizzleColumns = 64;    // elements
constexpr int kSwizzleRowBytes = 128;
constexpr int kSwizzleAtomBytes = 1024;  // 8 rows

constexpr int blocks_of(int columns) { return (columns + kSwizzleColumns - 1) / kSwizzleColumns; }
constexpr int tile_bytes(int rows, int columns) { return blocks_of(columns) * rows * kSwizzleRowBytes; }

// Byte offset of the 16-byte piece that starts at (row, column); column is a multiple of 8.
__host__ DEVICE constexpr uint32_t swizzled(int row, int column, int rows) {
  return column / kSwizzleColumns * rows * kSwizzleRowBytes + row * kSwizzleRowBytes + ((column % kSwizzleColumns / 8) ^ (row % 8)) * 16;
}

// Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8. Thread t holds row t / 4, columns 2 (t % 4) + {0, 1} of each.
DEVICE void ldmatrix4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
DEVICE void ldmatrix4_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
DEVICE void stmatrix4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
DEVICE void stmatrix4_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
DEVICE float load_shared(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
DEVICE void load_shared2(float& a, float& b, uint32_t address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "r"(address) : "memory");
}
DEVICE void load_shared4(float (&v)[4], uint32_t address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(address) : "memory");
}
DEVICE void store_shared(uint32_t address, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory"); }
DEVICE void store_shared4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Adds 4 floats to global memory. The offset (in floats) is an immediate: a computed 64-bit address costs 4 more instructions.
template <int Offset> DEVICE void reduce_add4(float* to, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0 + %5], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d), "n"(Offset * 4) : "memory");
}
DEVICE void reduce_add2(float* to, float a, float b) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
}

}  // namespace flashgpt::tile
