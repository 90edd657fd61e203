// libFuzzer's entry. FUZZ_TARGET: the function of targets.h.
#include <cstddef>
#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flashgpt::fuzz::FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
