// What every op and module is handed: where it runs, whether this is a recording, its memory, its workers.
#pragma once
#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "core/target.h"
#include "core/threads.h"

struct CUstream_st;

namespace flashgpt {

struct CpuStream {
  ThreadPool& pool;
};

// A GPU's queue of work. Its context is current on the thread that launches (core/cuda/gpu.h).
struct CudaStream {
  CUstream_st* stream = nullptr;
  int capability = 0;  // 90 for Hopper
  int multiprocessors = 0;
};

// Memory of an op that lives for its launch only.
struct Scratch {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// One line of a recording, or of a profile (then seconds and calls count).
struct TraceEntry {
  const char* op = nullptr;
  double flops = 0;  // multiply-adds count two
  double bytes = 0;  // tensors read and written once
  double seconds = 0;
  std::int64_t calls = 0;
};

struct Trace {
  std::vector<TraceEntry> entries;  // one a kind of op
  bool timed = false;               // run mode: measure seconds (on the CPU: wall time)
  TraceEntry& of(const char* op);
};

struct Context {
  Target target;
  Arena arena;
  ThreadPool* pool = nullptr;  // CPU target, run mode
  CudaStream cuda;             // CUDA target, run mode
  Trace* trace = nullptr;      // optional

  bool recording() const { return arena.recording(); }
  Tensor tensor(Shape shape, Dtype dtype, MemClass cls) { return arena.tensor(shape, dtype, cls); }
};

// Tensors asked for while a Scope lives are given back when it ends.
class Scope {
 public:
  explicit Scope(Context& ctx) : arena_(ctx.arena), mark_(ctx.arena.mark()) {}
  ~Scope() { arena_.rewind(mark_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace flashgpt
