// The device files of this program as text, by their path below src: written into a generated .cpp by tools/embed.cmake.
#pragma once
#include <cstddef>

namespace flashgpt::cuda {

struct DeviceSource {
  const char* name;  // "core/tile/wgmma.cuh"
  const char* text;
};
extern const DeviceSource kDeviceSources[];
extern const std::size_t kDeviceSourceCount;

}  // namespace flashgpt::cuda
