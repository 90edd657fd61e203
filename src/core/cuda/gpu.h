// One GPU of this machine in use: its primary context (shared with any other library of the process) and a queue.
#pragma once
#include "core/context.h"

namespace flashgpt::cuda {

// What GPU `index` can do. Error(kDevice) when there is no driver or no such GPU.
Target gpu_target(int index);
// Makes its primary context current on this thread and opens a queue in it, which lasts as long as the process.
CudaStream open_gpu(int index);
// For a context of this target; of the CPU: an empty one.
CudaStream queue_of(const Target& target);
// Waits until the queue is empty; an error of an earlier launch comes out here.
void synchronise(const CudaStream& s);

}  // namespace flashgpt::cuda
