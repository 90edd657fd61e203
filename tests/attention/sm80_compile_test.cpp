// The 16-bit attention kernels as machine code for three generations of GPUs, no GPU needed: no spills beyond what is recorded here, no
// arrays in local memory. FLASHGPT_KERNEL_REPORT=1 prints registers and seconds of each.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "attention/sm80/kernels.h"

namespace flashgpt::attention::sm80 {
namespace {

// Numbers that do not change in the loop over tiles, put aside before it: at most this many bytes stored and loaded.
constexpr int kSpillAllowance = 384;

TEST(Sm80Compile, NoSpills) {
  const char* only = std::getenv("FLASHGPT_KERNEL_ARCH");
  for (int capability : {80, 90, 120}) {
    if (only && std::to_string(capability) != only) continue;
    const std::vector<cuda::KernelKey> keys = all_kernels(capability);
    cuda::compile_all(keys, 2);
    for (const cuda::KernelKey& key : keys) {
      const cuda::Compiled c = cuda::compile_cached(key);
      EXPECT_LE(c.spill_bytes, kSpillAllowance) << key.expression << " for " << key.arch << ", " << c.registers << " registers";
      EXPECT_LE(c.stack_bytes, kSpillAllowance) << key.expression << " for " << key.arch;
      if (std::getenv("FLASHGPT_KERNEL_REPORT"))
        std::printf("%-7s %-140s %3d registers %4d spilled\n", key.arch.c_str(), key.expression.c_str(), c.registers, c.spill_bytes);
    }
  }
}

}  // namespace
}  // namespace flashgpt::attention::sm80
