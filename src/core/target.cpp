#include "core/target.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace flashgpt {
namespace {

Isa widest_isa() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
  return Isa::kPortable;
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "?";
}

Target cpu_target(int threads) {
  Target t;
  t.threads = threads;
  t.isa = widest_isa();
  if (const char* forced = std::getenv("FLASHGPT_ISA"); forced && *forced) {
    const std::string_view name = forced;
    Isa wanted = Isa::kPortable;
    if (name == "avx512")
      wanted = Isa::kAvx512;
    else if (name == "avx2")
      wanted = Isa::kAvx2;
    else
      require(name == "portable", "FLASHGPT_ISA = ", name, ", expected portable, avx2 or avx512");
    require(wanted <= t.isa, "FLASHGPT_ISA = ", name, ", but this processor has ", name_of(t.isa), " at most");
    t.isa = wanted;
  }
  t.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return t;
}

}  // namespace flashgpt
