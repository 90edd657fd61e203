#include "core/cuda/gpu.h"

#include "core/cuda/api.h"

namespace flashgpt::cuda {
namespace {

int device_handle(int index) {
  int count = 0, device = 0;
  check(driver().cuDeviceGetCount(&count), "number of GPUs");
  if (index < 0 || index >= count)
    throw Error(ErrorCode::kDevice, cat("device = cuda:", index, ", but this machine has ", count, count == 1 ? " GPU" : " GPUs"));
  check(driver().cuDeviceGet(&device, index), "GPU");
  return device;
}

int attribute(int device, int which) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "attribute of a GPU");
  return value;
}

}  // namespace

Target gpu_target(int index) {
  const int device = device_handle(index);
  std::size_t bytes = 0;
  check(driver().cuDeviceTotalMem_v2(&bytes, device), "memory of a GPU");
  return {.device = {DeviceKind::kCuda, index},
          .compute_capability = capability(device),
          .multiprocessors = attribute(device, kAttrMultiprocessors),
          .memory_bytes = static_cast<std::int64_t>(bytes)};
}

CudaStream open_gpu(int index) {
  const Target target = gpu_target(index);
  CUcontext context = nullptr;
  check(driver().cuDevicePrimaryCtxRetain(&context, device_handle(index)), "context of a GPU");
  check(driver().cuCtxSetCurrent(context), "context of a GPU");
  CudaStream s{.capability = target.compute_capability, .multiprocessors = target.multiprocessors};
  constexpr unsigned kNonBlocking = 1;  // does not wait for the default stream of other libraries
  check(driver().cuStreamCreate(&s.stream, kNonBlocking), "queue of a GPU");
  return s;
}

CudaStream queue_of(const Target& target) { return target.device.kind == DeviceKind::kCuda ? open_gpu(target.device.index) : CudaStream{}; }

void synchronise(const CudaStream& s) { check(driver().cuStreamSynchronize(s.stream), "work on the GPU"); }

}  // namespace flashgpt::cuda
