#include "core/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace flashgpt {

Memory::Memory(std::size_t bytes, Device device) : bytes_(bytes) {
  require(device.kind == DeviceKind::kCpu, "memory on a CUDA device: not in this build");
  if (bytes == 0) return;
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw Error(ErrorCode::kDevice, cat("cannot allocate ", bytes, " bytes of memory: ", std::strerror(errno)));
  }
  madvise(data_, bytes, MADV_HUGEPAGE);  // a refusal costs speed only
}

Memory::~Memory() {
  if (data_) munmap(data_, bytes_);
}

Memory::Memory(Memory&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(bytes_, o.bytes_);
  return *this;
}

}  // namespace flashgpt
