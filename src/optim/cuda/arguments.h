// device: shared
// What the optimizer's kernels are handed. Numbers of the step are read from StepScalars on the GPU.
#pragma once
#include "core/host_device.h"
#include "core/step_scalars.h"

namespace flashgpt::optim {

constexpr int kThreads = 256;
constexpr int kElementsOfBlock = 16384;  // of a sum's leaf

struct SumSquaresArguments {
  StepScalars* scalars;
  const float* g;
  double* partial;  // [blocks]
  Int64 n, blocks;
};

struct AdamWArguments {
  float *w, *m, *v;
  const float* g;
  const StepScalars* scalars;
  Int64 n;
  float beta1, beta2, eps, weight_decay;
};

// A vector is a matrix of one row whose row moment is left out (row == null).
struct AdafactorArguments {
  float *w, *row, *col;
  const float* g;
  const StepScalars* scalars;
  Int64 rows, columns;
  float decay_rate, eps1, eps2, clip_threshold, weight_decay;
  bool relative_step;
  float* partial;         // [row blocks, columns]: sums of g^2
  double *w_sum, *u_sum;  // [sum blocks]
  double* row_mean;       // [1]
  Int64 row_blocks, sum_blocks;
};
constexpr int kRowsOfBlock = 64;

}  // namespace flashgpt::optim
