// Fills the tables of api.h.
#include "core/cuda/api.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/cuda/library.h"
#include "flashgpt/error.h"

namespace flashgpt::cuda {

const Driver& driver() {
  static const Driver table = [] {
    void* lib = open_library({"NVIDIA's driver", {"libcuda.so.1"}, nullptr, "NVIDIA's driver package of your distribution"});
    Driver d;
    const auto load = [lib](auto& f, const char* name) {
      f = reinterpret_cast<std::decay_t<decltype(f)>>(symbol(lib, name, "NVIDIA's driver"));
    };
    load(d.cuInit, "cuInit");
    load(d.cuDriverGetVersion, "cuDriverGetVersion");
    load(d.cuGetErrorName, "cuGetErrorName");
    load(d.cuGetErrorString, "cuGetErrorString");
    load(d.cuDeviceGet, "cuDeviceGet");
    load(d.cuDeviceGetCount, "cuDeviceGetCount");
    load(d.cuDeviceGetName, "cuDeviceGetName");
    load(d.cuDeviceGetAttribute, "cuDeviceGetAttribute");
    load(d.cuDeviceTotalMem_v2, "cuDeviceTotalMem_v2");
    load(d.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    load(d.cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2");
    load(d.cuCtxGetCurrent, "cuCtxGetCurrent");
    load(d.cuCtxSetCurrent, "cuCtxSetCurrent");
    load(d.cuCtxGetDevice, "cuCtxGetDevice");
    load(d.cuCtxSynchronize, "cuCtxSynchronize");
    load(d.cuModuleLoadData, "cuModuleLoadData");
    load(d.cuModuleUnload, "cuModuleUnload");
    load(d.cuModuleGetFunction, "cuModuleGetFunction");
    load(d.cuFuncGetAttribute, "cuFuncGetAttribute");
    load(d.cuFuncSetAttribute, "cuFuncSetAttribute");
    load(d.cuLaunchKernelEx, "cuLaunchKernelEx");
    load(d.cuMemAlloc_v2, "cuMemAlloc_v2");
    load(d.cuMemFree_v2, "cuMemFree_v2");
    load(d.cuMemGetInfo_v2, "cuMemGetInfo_v2");
    load(d.cuMemHostAlloc, "cuMemHostAlloc");
    load(d.cuMemFreeHost, "cuMemFreeHost");
    load(d.cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2");
    load(d.cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2");
    load(d.cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync_v2");
    load(d.cuMemsetD8Async, "cuMemsetD8Async");
    load(d.cuMemsetD32Async, "cuMemsetD32Async");
    load(d.cuStreamCreate, "cuStreamCreate");
    load(d.cuStreamDestroy_v2, "cuStreamDestroy_v2");
    load(d.cuStreamSynchronize, "cuStreamSynchronize");
    load(d.cuStreamWaitEvent, "cuStreamWaitEvent");
    load(d.cuEventCreate, "cuEventCreate");
    load(d.cuEventDestroy_v2, "cuEventDestroy_v2");
    load(d.cuEventRecord, "cuEventRecord");
    load(d.cuEventSynchronize, "cuEventSynchronize");
    load(d.cuEventElapsedTime_v2, "cuEventElapsedTime_v2");
    load(d.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
    if (const Result r = d.cuInit(0)) throw Error(ErrorCode::kDevice, cat("NVIDIA's driver does not start (cuInit returned ", r, ")"));
    return d;
  }();
  return table;
}

namespace {

// NVRTC opens its builtins by their bare name, which the loader does not find in a Python environment: open the copy beside it first.
void open_builtins(const Nvrtc& n) {
  int major = 0, minor = 0;
  n.nvrtcVersion(&major, &minor);
  Dl_info nvrtc{};
  if (!dladdr(reinterpret_cast<const void*>(n.nvrtcVersion), &nvrtc)) return;
  const std::filesystem::path folder = std::filesystem::path(nvrtc.dli_fname).parent_path();
  dlopen((folder / cat("libnvrtc-builtins.so.", major, ".", minor)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

const Nvrtc& nvrtc() {
  static const Nvrtc table = [] {
    void* lib = open_library(
        {"NVRTC, the compiler of GPU kernels,", {"libnvrtc.so.13", "libnvrtc.so"}, "cu13/lib", "pip install nvidia-cuda-nvrtc"});
    Nvrtc n;
    const auto load = [lib](auto& f, const char* name) { f = reinterpret_cast<std::decay_t<decltype(f)>>(symbol(lib, name, "NVRTC")); };
    load(n.nvrtcVersion, "nvrtcVersion");
    load(n.nvrtcGetErrorString, "nvrtcGetErrorString");
    load(n.nvrtcCreateProgram, "nvrtcCreateProgram");
    load(n.nvrtcDestroyProgram, "nvrtcDestroyProgram");
    load(n.nvrtcAddNameExpression, "nvrtcAddNameExpression");
    load(n.nvrtcCompileProgram, "nvrtcCompileProgram");
    load(n.nvrtcGetLoweredName, "nvrtcGetLoweredName");
    load(n.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
    load(n.nvrtcGetProgramLog, "nvrtcGetProgramLog");
    load(n.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
    load(n.nvrtcGetCUBIN, "nvrtcGetCUBIN");
    open_builtins(n);
    return n;
  }();
  return table;
}

bool driver_available() {
  try {
    int count = 0;
    return driver().cuDeviceGetCount(&count) == 0 && count > 0;
  } catch (const Error&) {
    return false;
  }
}

std::string nvrtc_version() {
  int major = 0, minor = 0;
  nvrtc().nvrtcVersion(&major, &minor);
  return cat(major, ".", minor);
}

int capability(int device) {
  int major = 0, minor = 0;
  check(driver().cuDeviceGetAttribute(&major, kAttrCapabilityMajor, device), "compute capability");
  check(driver().cuDeviceGetAttribute(&minor, kAttrCapabilityMinor, device), "compute capability");
  return major * 10 + minor;
}

void check(Result r, const char* what) {
  if (r == 0) return;
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(r, &name);
  driver().cuGetErrorString(r, &text);
  throw Error(ErrorCode::kDevice, cat(what, ": ", name ? name : "error", " (", r, "): ", text ? text : "no description"));
}

}  // namespace flashgpt::cuda
