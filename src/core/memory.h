// The one block of memory of a run, zeroed. On the CPU: anonymous pages, on huge pages where the system gives them; on a GPU: of the
// current context.
#pragma once
#include <cstddef>

#include "flashgpt/tensor.h"

namespace flashgpt {

class Memory {
 public:
  Memory() = default;
  Memory(std::size_t bytes, Device device);  // Error(kDevice) with the number of bytes when there is not enough
  ~Memory();
  Memory(Memory&& o) noexcept;
  Memory& operator=(Memory&& o) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
};

}  // namespace flashgpt
