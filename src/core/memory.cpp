#include "core/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/cuda/api.h"

namespace flashgpt {

namespace {

void* allocate_on_gpu(std::size_t bytes) {
  const cuda::Driver& d = cuda::driver();
  cuda::Address address = 0;
  if (d.cuMemAlloc_v2(&address, bytes)) {
    std::size_t free = 0, total = 0;
    d.cuMemGetInfo_v2(&free, &total);
    throw Error(ErrorCode::kDevice, cat("cannot allocate ", bytes, " bytes on the GPU, which has ", free, " of ", total, " free"));
  }
  cuda::check(d.cuMemsetD8Async(address, 0, bytes, nullptr), "zeroing memory");
  cuda::check(d.cuCtxSynchronize(), "zeroing memory");
  return reinterpret_cast<void*>(address);
}

}  // namespace

Memory::Memory(std::size_t bytes, Device device) : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::kCuda) {
    data_ = allocate_on_gpu(bytes);
    return;
  }
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw Error(ErrorCode::kDevice, cat("cannot allocate ", bytes, " bytes of memory: ", std::strerror(errno)));
  }
  madvise(data_, bytes, MADV_HUGEPAGE);  // a refusal costs speed only
}

Memory::~Memory() {
  if (!data_) return;
  if (device_.kind == DeviceKind::kCuda)
    cuda::driver().cuMemFree_v2(reinterpret_cast<cuda::Address>(data_));
  else
    munmap(data_, bytes_);
}

Memory::Memory(Memory&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)), device_(o.device_) {}

Memory& Memory::operator=(Memory&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(bytes_, o.bytes_);
  std::swap(device_, o.device_);
  return *this;
}

}  // namespace flashgpt
