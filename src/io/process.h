// What the system says of this process.
#pragma once
#include <cstdint>

namespace flashgpt {

// Bytes, from /proc/self/status; zeros where there is no such file.
struct ProcessMemory {
  std::uint64_t resident = 0;
  std::uint64_t peak_resident = 0;  // highest so far, mapped files included
  std::uint64_t anonymous = 0;      // resident and not backed by a file: what the process itself holds
  std::uint64_t swapped = 0;
};
ProcessMemory process_memory();

// The system keeps no peak of anonymous memory: sample() at the moments that matter (once a step: planned memory never shrinks).
class AnonymousPeak {
 public:
  AnonymousPeak();  // what is held now is the start
  void sample();
  std::uint64_t bytes() const { return peak_; }
  std::uint64_t above_start() const { return peak_ - start_; }

 private:
  std::uint64_t start_, peak_;
};

}  // namespace flashgpt
