// device: shared
// The numbers of a step that kernels read from device memory, so that a captured step never freezes them.
#pragma once
#include "core/host_device.h"

namespace flashgpt {

struct StepScalars {
  float learning_rate = 0;
  float inv_targets = 0;  // 1 / valid targets of all micro-batches of the step
  float loss_scale = 1;   // fp16: gradients carry this factor
  float max_norm = 0;     // 0: no clipping
  int step = 0;           // 1 at the first update
  int skip = 0;           // written by FinishNorm: 1 when loss or gradients are not finite
  float grad_norm = 0;    // written by FinishNorm
  float grad_scale = 1;   // written by FinishNorm: what the optimizer multiplies gradients with (clip / loss_scale)
  double loss_sum = 0;    // written by LinearCrossEntropy: sum over the targets of the step, not yet divided
  double norm_sq = 0;     // written by SumSquares
  unsigned long long seed = 0;
};
static_assert(sizeof(StepScalars) == 56);

}  // namespace flashgpt
