// The steps of a block's forward, as bits: recomputation is forward called again with a mask of the steps whose results were not kept.
#pragma once
#include <cstdint>

namespace flashgpt {

enum Step : std::uint32_t {
  kNorm1 = 1 << 0,      // norm1 (and x, the residual sum)
  kQkv = 1 << 1,        // qkv: product, bias, rotation
  kAttention = 1 << 2,  // att, lse
  kOut = 1 << 3,        // att_out
  kNorm2 = 1 << 4,      // norm2 (and h, the residual sum)
  kUp = 1 << 5,         // up
  kAct = 1 << 6,        // act
  kDown = 1 << 7,       // delta
};
using Steps = std::uint32_t;
inline constexpr Steps kAllSteps = (1 << 8) - 1;

// What backward computes again. Each level keeps less than the one before it:
//   none   every activation that a gradient reads
//   act    without the activation function's output
//   mlp    without the norms' outputs and the MLP's hidden layer
//   block  only the residual stream that enters the block
enum class Recompute : std::uint8_t { kNone, kAct, kMlp, kBlock };

constexpr Steps recomputed_steps(Recompute level) {
  switch (level) {
    case Recompute::kNone: return 0;
    case Recompute::kAct: return kAct;
    case Recompute::kMlp: return kNorm1 | kNorm2 | kUp | kAct;
    case Recompute::kBlock: return kAllSteps & ~kDown;
  }
  return 0;
}

}  // namespace flashgpt
