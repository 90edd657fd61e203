#include "attention/sm80/kernels.h"

namespace flashgpt::attention::sm80 {
namespace {

constexpr int kDims[] = {32, 64, 96, 128, 192, 256};
int padded(Index dim) {
  for (int d : kDims)
    if (dim <= d) return d;
  throw Error(ErrorCode::kInvalid, cat("head_dim = ", dim, ", expected at most 256 on a GPU"));
}

// 163 KB a block or more on the large chips of each generation, 99 KB on the others.
bool is_small(int capability) { return capability == 86 || capability == 89 || capability >= 120; }

constexpr const char* kFile = "attention/sm80/forward.cuh";

}  // namespace

Variant variant_of(const AttentionSpec& s, int capability, bool whole) {
  return {.dim = padded(s.head_dim),
          .v_dim = padded(s.v_head_dim),
          .half = s.dtype == Dtype::kF16,
          .small = is_small(capability),
          .left = s.window_left >= 0,
          .alibi = s.alibi,
          .softcap = s.softcap > 0,
          .whole = whole,
          .wide = s.partial_output};
}

std::string expression(const char* kernel, const Variant& v) {
  const std::string space = "flashgpt::attention::sm80::";
  std::string s = cat(space, kernel, "<", space, "Variant{", v.dim, ",", v.v_dim);
  for (bool flag : {v.half, v.small, v.left, v.alibi, v.softcap, v.whole, v.wide}) s += flag ? ",true" : ",false";
  return s + "}>";
}

cuda::KernelKey forward_kernel(const Variant& v, const std::string& arch) {
  return {.file = kFile, .expression = expression("forward", v), .arch = arch, .options = {}};
}

std::vector<cuda::KernelKey> all_kernels(int capability) {
  const std::string arch = cuda::arch_of(capability);
  std::vector<cuda::KernelKey> keys{
      {.file = "attention/sm80/rows.cuh", .expression = "flashgpt::attention::sm80::clear_tail", .arch = arch, .options = {}}};
  for (int d : kDims) {
    const Variant plain{.dim = d, .v_dim = d, .small = is_small(capability)};
    std::vector<Variant> variants(7, plain);
    variants[1].half = true;
    variants[2].left = true;
    variants[3].alibi = true;
    variants[4].softcap = true;
    variants[5].whole = false;
    variants[6] = {.dim = d,
                   .v_dim = d,
                   .half = true,
                   .small = plain.small,
                   .left = true,
                   .alibi = true,
                   .softcap = true,
                   .whole = false,
                   .wide = true};
    for (const Variant& v : variants) keys.push_back(forward_kernel(v, arch));
  }
  for (auto [d, v_d] : {std::pair{192, 128}, {64, 256}, {32, 192}, {128, 64}})
    keys.push_back(forward_kernel({.dim = d, .v_dim = v_d, .small = is_small(capability)}, arch));
  return keys;
}

}  // namespace flashgpt::attention::sm80
