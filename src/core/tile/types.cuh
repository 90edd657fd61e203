// Words that every device file uses: fixed-width integers, the qualifier of device functions, 16-bit element types.
// Device files include no vendor header: NVRTC compiles them with no include path.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;

#define DEVICE __device__ __forceinline__

namespace flashgpt::tile {

// The element types of the 16-bit kernels. kPtx is the type's name in PTX.
struct Bf16 {
  static constexpr char kPtx[] = "bf16";
  static constexpr bool kIsHalf = false;
};
struct Half {
  static constexpr char kPtx[] = "f16";
  static constexpr bool kIsHalf = true;
};
template <bool IsHalf> struct ElementOf { using type = Bf16; };
template <> struct ElementOf<true> { using type = Half; };
template <bool IsHalf> using Element = typename ElementOf<IsHalf>::type;

DEVICE float infinity() { return __int_as_float(0x7f800000); }

constexpr int kWarp = 32;
constexpr int kWarpGroup = 128;

// Which warpgroup this thread belongs to. The shuffle makes the value uniform in the compiler's eyes: shared-memory descriptors built
// from it stay in uniform registers.
DEVICE int warpgroup_index() { return __shfl_sync(~0u, threadIdx.x / kWarpGroup, 0); }
DEVICE int warp_in_group() { return __shfl_sync(~0u, threadIdx.x / kWarp % 4, 0); }
DEVICE int lane_index() { return threadIdx.x % kWarp; }

template <int N, class Thing> DEVICE void fill(Thing (&a)[N], Thing value) {
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = value;
}

}  // namespace flashgpt::tile
