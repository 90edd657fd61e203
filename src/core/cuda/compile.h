// Device text to machine code: NVRTC, no GPU needed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace flashgpt::cuda {

// One variant of a kernel. `expression` names it in C++:
// "flashgpt::attention::sm90::forward<flashgpt::attention::sm90::ForwardConfig{...}>".
struct KernelKey {
  std::string file;  // the device file, by its path below src
  std::string expression;
  std::string arch;                  // "sm_90a"
  std::vector<std::string> options;  // besides the ones that every kernel has
};

struct Compiled {
  std::string entry;  // the mangled name
  std::string log;    // ptxas's report; notes and warnings
  std::vector<char> cubin;
  int registers = 0;
  int spill_bytes = 0;  // stores + loads
  int stack_bytes = 0;
  double seconds = 0;  // of the compiler; 0: it came from the cache
};

// Throws Error(kDevice) with the compiler's whole log. Any thread.
Compiled compile(const KernelKey& key);
// ptxas's notes that a product was serialised, a register limit ignored or a fence is missing (C7507, C7508, C7510 to C7519), if any.
std::string serialisation_notes(const std::string& log);

// 32 hex digits over everything that decides the machine code: all files that `file` includes, expression, options, NVRTC's version.
std::string fingerprint(const KernelKey& key);
// As compile, but looks on the disk first and leaves the result there: $FLASHGPT_CACHE, else $XDG_CACHE_HOME/flashgpt, else
// ~/.cache/flashgpt. A file is written beside its place and renamed, so 16 processes may start cold at once; a damaged or foreign file is
// compiled over; a folder that cannot be written is no error.
Compiled compile_cached(const KernelKey& key);
std::string cache_folder();  // "" when there is none

}  // namespace flashgpt::cuda
