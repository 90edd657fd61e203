// The planned arena: one block of memory, every tensor at an offset known before the first step.
//
// Tensors are asked for in program order. A recording arena hands out fake, non-null addresses and writes down each request; a running
// arena hands out the same offsets of real memory and throws when the order of requests differs from the recorded one. Requests are grouped
// in sections: "setup" lives for ever (weights, gradients, optimizer state), each other section (a micro-step, an update, an evaluation)
// starts again above setup. Inside a section, lifetimes are a stack: what is asked for inside a Scope is given back when it ends.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "flashgpt/tensor.h"

namespace flashgpt {

enum class MemClass : std::uint8_t { kWeights, kGradients, kOptimizer, kActivations, kWorkspace, kInputs };
inline constexpr int kMemClasses = 6;
const char* name_of(MemClass c);

inline constexpr std::size_t kArenaAlignment = 256;

struct Request {
  std::size_t offset = 0;
  std::size_t bytes = 0;  // rounded up to kArenaAlignment
  MemClass cls = MemClass::kActivations;
};

struct Section {
  std::string name;
  std::vector<Request> requests;
  std::size_t peak = 0;                            // highest end of a request
  std::array<std::size_t, kMemClasses> at_peak{};  // bytes by class at that moment, setup included
};

struct MemoryPlan {
  std::vector<Section> sections;  // sections[0] is "setup"
  std::size_t total_bytes() const;
  // By class, at the peak of the largest section; adds up to total_bytes().
  std::array<std::size_t, kMemClasses> by_class() const;
};

class Arena {
 public:
  Arena() : Arena(Device{}) {}
  explicit Arena(Device device);                      // recording
  Arena(MemoryPlan plan, void* base, Device device);  // running in memory of plan.total_bytes() bytes at base
  bool recording() const { return recording_; }

  // Starts (recording: creates or, if the name is known, replays) a section. Everything of the section before is given back.
  void begin(std::string_view section);
  Tensor tensor(Shape shape, Dtype dtype, MemClass cls);
  void* bytes(std::size_t n, MemClass cls);  // nullptr for n = 0

  struct Mark {
    std::size_t top = 0;
    std::array<std::size_t, kMemClasses> live{};
  };
  Mark mark() const { return mark_; }
  void rewind(const Mark& m) { mark_ = m; }

  const MemoryPlan& plan() const { return plan_; }

 private:
  MemoryPlan plan_;
  bool recording_ = true;
  bool replaying_ = false;  // recording, in a section that is recorded already
  std::byte* base_ = nullptr;
  Device device_;
  int section_ = 0;
  std::size_t next_ = 0;  // request of the section that comes next
  Mark mark_;
  Mark setup_end_;
};

}  // namespace flashgpt
