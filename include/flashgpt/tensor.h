// A tensor is a typed view: address, shape, strides, dtype, device. It owns nothing and is copied by value.
// The memory belongs to an arena (core/arena.h) or to the caller. A default-made tensor means "not wanted" or "absent".
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "flashgpt/dtype.h"
#include "flashgpt/error.h"

namespace flashgpt {

inline constexpr int kMaxRank = 5;

struct Shape {
  int rank = 0;
  std::int64_t dims[kMaxRank] = {};

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> d) {
    require(d.size() <= kMaxRank, "shape of rank ", d.size(), ", expected at most ", kMaxRank);
    for (std::int64_t n : d) dims[rank++] = n;
  }
  std::int64_t operator[](int i) const { return dims[i < 0 ? i + rank : i]; }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  bool operator==(const Shape& o) const {
    if (rank != o.rank) return false;
    for (int i = 0; i < rank; ++i)
      if (dims[i] != o.dims[i]) return false;
    return true;
  }
  std::string str() const;  // "[2, 3]"
};

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

struct Tensor {
  void* data = nullptr;
  Shape shape;
  std::int64_t strides[kMaxRank] = {};  // in elements
  Dtype dtype = Dtype::kF32;
  Device device;

  Tensor() = default;
  Tensor(void* address, Shape s, Dtype t, Device d = {}) : data(address), shape(s), dtype(t), device(d) {  // row-major
    std::int64_t n = 1;
    for (int i = s.rank - 1; i >= 0; --i) {
      strides[i] = n;
      n *= s.dims[i];
    }
  }

  explicit operator bool() const { return data != nullptr; }
  int rank() const { return shape.rank; }
  std::int64_t dim(int i) const { return shape[i]; }
  std::int64_t stride(int i) const { return strides[i < 0 ? i + shape.rank : i]; }
  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
  bool contiguous() const;

  // The elements as T; T must be the tensor's dtype. Only a kernel of the tensor's own device may follow the pointer.
  template <class T> T* as() const {
    require(DtypeOf<T>::value == dtype, "tensor is ", name_of(dtype), ", read as ", name_of(DtypeOf<T>::value));
    return static_cast<T*>(data);
  }

  Tensor view(Shape s) const;                                            // contiguous, same number of elements
  Tensor slice(int dim, std::int64_t start, std::int64_t length) const;  // elements [start, start + length) of dim
  Tensor select(int dim, std::int64_t index) const;                      // drops dim
  Tensor split(int dim, std::int64_t outer, std::int64_t inner) const;   // dim of size outer * inner -> two dims
};

}  // namespace flashgpt
