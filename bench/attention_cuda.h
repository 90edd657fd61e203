// What the programs that check and time the Hopper kernels share: 16-bit numbers, random data, device memory, tensors with poison around.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "attention/sm90/rows.h"

namespace flashgpt::bench {

using attention::sm90::Rows;

inline std::uint16_t encode(float f, bool half) {
  if (half) {
    const _Float16 h = static_cast<_Float16>(f);
    std::uint16_t u;
    std::memcpy(&u, &h, 2);
    return u;
  }
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<std::uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}
inline float decode(std::uint16_t u, bool half) {
  if (half) {
    _Float16 h;
    std::memcpy(&h, &u, 2);
    return static_cast<float>(h);
  }
  const std::uint32_t w = static_cast<std::uint32_t>(u) << 16;
  float f;
  std::memcpy(&f, &w, 4);
  return f;
}

struct Random {  // xorshift; a sum of 8 uniforms is normal enough and fast
  std::uint64_t s;
  float uniform() {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return static_cast<float>(s >> 40) / 16777216.0f;
  }
  float normal() {
    float a = -4.0f;
    for (int i = 0; i < 8; ++i) a += uniform();
    return a * 1.2247f;
  }
};

template <class F> void parallel(int n, const F& f) {
  std::atomic<int> next = 0;
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    pool.emplace_back([&] {
      for (int i; (i = next++) < n;) f(i);
    });
  for (std::thread& t : pool) t.join();
}

inline const cuda::Driver& gpu() { return cuda::driver(); }
inline cuda::Address address(const void* p) { return reinterpret_cast<cuda::Address>(p); }
inline void sync(CUstream s) { cuda::check(gpu().cuStreamSynchronize(s), "synchronize"); }

template <class T> struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(std::size_t n) {
    cuda::Address p = 0;
    cuda::check(gpu().cuMemAlloc_v2(&p, n * sizeof(T)), "device memory");
    data = reinterpret_cast<T*>(p);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { gpu().cuMemFree_v2(address(data)); }
  void upload(const T* from, std::size_t n, CUstream s) {
    cuda::check(gpu().cuMemcpyHtoDAsync_v2(address(data), from, n * sizeof(T), s), "upload");
    sync(s);
  }
  void download(T* to, std::size_t n, CUstream s) {
    cuda::check(gpu().cuMemcpyDtoHAsync_v2(to, address(data), n * sizeof(T), s), "download");
    sync(s);
  }
};

// A tensor on both sides. NaN lies between its rows and around it: an input must not be read there, an output not written.
constexpr std::uint16_t kPoison = 0x7fff;
struct Twin {
  static constexpr std::size_t kGuard = 8192;
  int batch, length, heads, columns, row;
  std::vector<std::uint16_t> host;
  DeviceArray<std::uint16_t> device;
  Twin(int b, int l, int h, int d, int pad)
      : batch(b),
        length(l),
        heads(h),
        columns(d),
        row(h * d + pad),
        host(std::size_t(b) * l * row + 2 * kGuard, kPoison),
        device(host.size()) {}
  std::uint16_t& at(int b, int i, int h, int e) { return host[kGuard + (std::size_t(b) * length + i) * row + h * columns + e]; }
  Rows rows() const { return {device.data + kGuard, batch, length, heads, columns, {1ll * length * row, row, columns}}; }
  bool poison_is_whole() {
    for (std::size_t e = 0; e < kGuard; ++e)
      if (host[e] != kPoison || host[host.size() - 1 - e] != kPoison) return false;
    for (int b = 0; b < batch; ++b)
      for (int i = 0; i < length; ++i)
        for (int e = heads * columns; e < row; ++e)
          if (at(b, i, 0, e) != kPoison) return false;
    return true;
  }
};

// Root of the mean square of the difference over that of the reference, which counts as at least 0.01 (gradients may be exactly 0).
inline double difference(Twin& got, const std::vector<double>& want, bool half) {
  double num = 0, den = 0;
  for (int b = 0; b < got.batch; ++b)
    for (int h = 0; h < got.heads; ++h)
      for (int i = 0; i < got.length; ++i)
        for (int e = 0; e < got.columns; ++e) {
          const double w = want[((std::size_t(b) * got.heads + h) * got.length + i) * got.columns + e],
                       x = decode(got.at(b, i, h, e), half);
          num += (x - w) * (x - w);
          den += w * w;
        }
  const double r = std::sqrt(num / std::max(den, 1e-4 * double(want.size())));
  return r >= 0 ? r : std::numeric_limits<double>::infinity();
}

inline std::vector<int> numbers(const char* text) {
  std::vector<int> v;
  std::stringstream s(text);
  for (std::string word; std::getline(s, word, ',');) v.push_back(std::stoi(word));
  return v;
}

// A stream of the first GPU's context.
inline CUstream first_stream() {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  int device = 0;
  cuda::check(gpu().cuInit(0), "driver");
  cuda::check(gpu().cuDeviceGet(&device, 0), "device 0");
  cuda::check(gpu().cuDevicePrimaryCtxRetain(&context, device), "context");
  cuda::check(gpu().cuCtxSetCurrent(context), "context");
  cuda::check(gpu().cuStreamCreate(&stream, 1), "stream");
  return stream;
}

}  // namespace flashgpt::bench
