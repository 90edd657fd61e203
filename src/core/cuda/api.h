// The functions of NVIDIA's driver and of NVRTC that this program uses, declared here and opened with dlopen: nothing of CUDA is needed to
// build, and the same binary starts where there is no driver. tests/core/cuda checks these declarations against the real headers.
//
// Handles carry the vendor's names (a struct pointer may be declared twice); enumerations are ints here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using nvrtcProgram = struct _nvrtcProgram*;

namespace flashgpt::cuda {

using Result = int;                   // CUresult, nvrtcResult: 0 is success
using Address = unsigned long long;   // CUdeviceptr
struct alignas(128) TensorMapBytes {  // CUtensorMap
  std::uint64_t opaque[16];
};

// Values of the vendor's enumerations that are used.
inline constexpr int kAttrMultiprocessors = 16, kAttrSharedBytes = 97, kAttrCapabilityMajor = 75, kAttrCapabilityMinor = 76;
inline constexpr int kFuncSharedBytes = 1, kFuncLocalBytes = 3, kFuncRegisters = 4, kFuncMaxDynamicShared = 8;
inline constexpr int kMapFp16 = 6, kMapBf16 = 9, kMapFp32 = 7;
inline constexpr int kSwizzleNone = 0, kSwizzle128 = 3;
inline constexpr int kPromote256 = 3;
inline constexpr int kLaunchAttrProgrammatic = 6;

struct LaunchAttribute {  // CUlaunchAttribute: 4 bytes of id, padded to 8, 64 bytes of value
  int id;
  char pad[4];
  union {
    char bytes[64];
    int programmatic;
  } value;
};
struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Driver {
  Result (*cuInit)(unsigned);
  Result (*cuDriverGetVersion)(int*);
  Result (*cuGetErrorName)(Result, const char**);
  Result (*cuGetErrorString)(Result, const char**);
  Result (*cuDeviceGet)(int*, int);
  Result (*cuDeviceGetCount)(int*);
  Result (*cuDeviceGetName)(char*, int, int);
  Result (*cuDeviceGetAttribute)(int*, int, int);
  Result (*cuDeviceTotalMem_v2)(std::size_t*, int);
  Result (*cuDevicePrimaryCtxRetain)(CUcontext*, int);
  Result (*cuDevicePrimaryCtxRelease_v2)(int);
  Result (*cuCtxGetCurrent)(CUcontext*);
  Result (*cuCtxSetCurrent)(CUcontext);
  Result (*cuCtxGetDevice)(int*);
  Result (*cuCtxSynchronize)();
  Result (*cuModuleLoadData)(CUmodule*, const void*);
  Result (*cuModuleUnload)(CUmodule);
  Result (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*);
  Result (*cuFuncGetAttribute)(int*, int, CUfunction);
  Result (*cuFuncSetAttribute)(CUfunction, int, int);
  Result (*cuLaunchKernelEx)(const LaunchConfig*, CUfunction, void**, void**);
  Result (*cuMemAlloc_v2)(Address*, std::size_t);
  Result (*cuMemFree_v2)(Address);
  Result (*cuMemGetInfo_v2)(std::size_t*, std::size_t*);
  Result (*cuMemHostAlloc)(void**, std::size_t, unsigned);
  Result (*cuMemFreeHost)(void*);
  Result (*cuMemcpyHtoDAsync_v2)(Address, const void*, std::size_t, CUstream);
  Result (*cuMemcpyDtoHAsync_v2)(void*, Address, std::size_t, CUstream);
  Result (*cuMemcpyDtoDAsync_v2)(Address, Address, std::size_t, CUstream);
  Result (*cuMemsetD8Async)(Address, unsigned char, std::size_t, CUstream);
  Result (*cuMemsetD32Async)(Address, unsigned, std::size_t, CUstream);
  Result (*cuStreamCreate)(CUstream*, unsigned);
  Result (*cuStreamDestroy_v2)(CUstream);
  Result (*cuStreamSynchronize)(CUstream);
  Result (*cuStreamWaitEvent)(CUstream, CUevent, unsigned);
  Result (*cuEventCreate)(CUevent*, unsigned);
  Result (*cuEventDestroy_v2)(CUevent);
  Result (*cuEventRecord)(CUevent, CUstream);
  Result (*cuEventSynchronize)(CUevent);
  Result (*cuEventElapsedTime_v2)(float*, CUevent, CUevent);
  Result (*cuTensorMapEncodeTiled)(TensorMapBytes*, int, unsigned, void*, const std::uint64_t*, const std::uint64_t*, const unsigned*,
                                   const unsigned*, int, int, int, int);
};

struct Nvrtc {
  Result (*nvrtcVersion)(int*, int*);
  const char* (*nvrtcGetErrorString)(Result);
  Result (*nvrtcCreateProgram)(nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*);
  Result (*nvrtcDestroyProgram)(nvrtcProgram*);
  Result (*nvrtcAddNameExpression)(nvrtcProgram, const char*);
  Result (*nvrtcCompileProgram)(nvrtcProgram, int, const char* const*);
  Result (*nvrtcGetLoweredName)(nvrtcProgram, const char*, const char**);
  Result (*nvrtcGetProgramLogSize)(nvrtcProgram, std::size_t*);
  Result (*nvrtcGetProgramLog)(nvrtcProgram, char*);
  Result (*nvrtcGetCUBINSize)(nvrtcProgram, std::size_t*);
  Result (*nvrtcGetCUBIN)(nvrtcProgram, char*);
};

// The libraries, opened on first use. Error(kDevice) says which file was looked for, where, and how to install it.
const Driver& driver();
const Nvrtc& nvrtc();
bool driver_available();      // libcuda is there and finds a device
std::string nvrtc_version();  // "13.0"
int capability(int device);   // 90 for Hopper

// Throws Error(kDevice) with the driver's words unless `r` is success.
void check(Result r, const char* what);

}  // namespace flashgpt::cuda
