// Kernels that are ready to launch, by variant: compiled or taken from the disk on first use, then loaded once a context.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/cuda/api.h"
#include "core/cuda/compile.h"

namespace flashgpt::cuda {

struct Kernel {
  CUfunction function = nullptr;
  int registers = 0;
  int spill_bytes = 0;
  int local_bytes = 0;  // a thread's, as the driver says
  int static_shared_bytes = 0;
  double compile_seconds = 0;  // 0: from the cache
};

struct Launch {
  unsigned grid = 1, block = 1;
  int shared_bytes = 0;
  CUstream stream = nullptr;
  bool overlap_previous = false;  // programmatic dependent launch: the kernel itself waits for the one before it
};

// The kernel in the current context. Any thread; the reference stays good until the process ends.
const Kernel& kernel(const KernelKey& key);
// Compiles several variants in parallel (a recording pass knows them all before step 1).
void compile_all(const std::vector<KernelKey>& keys, int threads);

// Arguments by address, in the order of the kernel's parameters. Asynchronous.
void launch(const Kernel& k, const Launch& how, void** arguments);
template <class... A> void launch(const Kernel& k, const Launch& how, const A&... a) {
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&a))...};
  launch(k, how, static_cast<void**>(arguments));
}

int multiprocessors();       // of the current context's device
std::string current_arch();  // "sm_90a", "sm_80"

}  // namespace flashgpt::cuda
