// The Hopper backward's kernels as machine code, no GPU needed: no spills, no products that the compiler serialised.
#include <gtest/gtest.h>

#include "attention/sm90/backward.h"

namespace flashgpt::attention::sm90 {
namespace {

TEST(Sm90BackwardCompile, NoSpillsAndNothingSerialised) {
  for (int d : {64, 128, 256})
    for (bool deterministic : {false, true}) {
      if (deterministic && d != 128) continue;
      const Rows rows{nullptr, 1, 4096, 1, d, {4096 * d, d, d}};
      BackwardCall call{.q = rows, .k = rows, .v = rows, .o = rows, .dout = rows, .dq = rows, .dk = rows, .dv = rows};
      call.causal = true;
      call.deterministic = deterministic;
      for (const cuda::KernelKey& key : backward_kernels(call)) {
        const cuda::Compiled c = cuda::compile_cached(key);
        EXPECT_EQ(c.spill_bytes, 0) << key.expression;
        EXPECT_EQ(cuda::serialisation_notes(c.log), "") << key.expression;
      }
    }
}

}  // namespace
}  // namespace flashgpt::attention::sm90
