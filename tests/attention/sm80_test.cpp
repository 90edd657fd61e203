// What the grid of grid_test.cpp does not show of the 16-bit GPU kernels: the same bits from run to run, and what is refused by name.
#include "attention/case.h"
#include "attention/cuda/implementations.h"

namespace flashgpt::attention::testing {
namespace {

std::vector<std::vector<double>> outputs(const Case& c) {
  ThreadPool pool(1, false);
  Ops<Bf16> ops;
  build(c, 5, ops);
  launch_guarded(pool, ops.forward);
  launch_guarded(pool, ops.backward);
  return {values(ops.forward.o), values(ops.forward.lse), values(ops.backward.dq), values(ops.backward.dk), values(ops.backward.dv)};
}

TEST(Sm80, DeterministicBackwardGivesTheSameBits) {
  if (!flashgpt::testing::on_gpu()) GTEST_SKIP() << "needs a GPU";
  for (int d : {64, 128}) {
    Case c{.name = "", .spec = dense(2, 900, 1100, 4, 2, d, true)};
    c.spec.dtype = Dtype::kBF16;
    c.spec.deterministic = true;
    const auto want = outputs(c);
    for (int run = 0; run < 3; ++run) EXPECT_TRUE(outputs(c) == want) << "head dim " << d << ", run " << run;
  }
}

TEST(Sm80, CarriesWhatItSays) {
  Forward f;
  f.spec = dense(1, 64, 64, 2, 2, 128, true);
  EXPECT_FALSE(sm80::carries(90, f)) << "fp32";
  f.spec.dtype = Dtype::kBF16;
  EXPECT_TRUE(sm80::carries(80, f));
  EXPECT_FALSE(sm80::carries(75, f)) << "before Ampere";
  f.spec.dropout = 0.1f, f.spec.sink = true, f.spec.block_mask = true, f.spec.block_q = f.spec.block_k = 64;
  EXPECT_TRUE(sm80::carries(120, f));
  f.spec.block_k = 4;
  EXPECT_FALSE(sm80::carries(120, f)) << "blocks of 4 keys";
  Target target;
  target.compute_capability = 90;
  try {
    cuda_scratch_bytes(target, f);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("block_k = 4, expected at least 8"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace flashgpt::attention::testing
