#include "attention/sm80/kernels.h"

namespace flashgpt::attention::sm80 {
namespace {

constexpr int kDims[] = {32, 64, 96, 128, 192, 256};
int padded(Index dim) {
  for (int d : kDims)
    if (dim <= d) return d;
  throw Error(ErrorCode::kInvalid, cat("head_dim = ", dim, ", expected at most 256 on a GPU"));
}

// KB of shared memory a block: less on the smaller chips of each generation.
int kilobytes_of(int capability) {
  if (capability == 86 || capability == 89 || capability >= 120) return 99;
  return capability >= 90 ? 227 : 163;
}

}  // namespace

Variant variant_of(const AttentionSpec& s, int capability, bool whole) {
  return {.dim = padded(s.head_dim),
          .v_dim = padded(s.v_head_dim),
          .half = s.dtype == Dtype::kF16,
          .kilobytes = kilobytes_of(capability),
          .left = s.window_left >= 0,
          .alibi = s.alibi,
          .softcap = s.softcap > 0,
          .dropout = s.dropout > 0,
          .sink = s.sink,
          .blocks = s.block_mask,
          .whole = whole,
          .wide = s.partial_output};
}

std::string expression(const char* kernel, const Variant& v) {
  const std::string space = "flashgpt::attention::sm80::";
  std::string s = cat(space, kernel, "<", space, "Variant{", v.dim, ",", v.v_dim, ",", v.half ? "true" : "false", ",", v.kilobytes);
  for (bool flag : {v.left, v.alibi, v.softcap, v.dropout, v.sink, v.blocks, v.whole, v.wide}) s += flag ? ",true" : ",false";
  return s + "}>";
}

cuda::KernelKey kernel_key(const char* kernel, const Variant& v, const std::string& arch) {
  const std::string name = kernel, file = name == "forward"            ? "forward.cuh"
                                          : name == "backward_queries" ? "backward_queries.cuh"
                                          : name.starts_with("back")   ? "backward_keys.cuh"
                                                                       : "rows.cuh";
  return {.file = "attention/sm80/" + file, .expression = expression(kernel, v), .arch = arch, .options = {}};
}

std::vector<cuda::KernelKey> all_kernels(int capability) {
  const std::string arch = cuda::arch_of(capability);
  std::vector<cuda::KernelKey> keys;
  for (const char* kernel : {"clear_tail", "sink_gradient"})
    keys.push_back(
        {.file = "attention/sm80/rows.cuh", .expression = cat("flashgpt::attention::sm80::", kernel), .arch = arch, .options = {}});
  auto add = [&](const Variant& v, std::initializer_list<const char*> kernels) {
    for (const char* kernel : kernels) keys.push_back(kernel_key(kernel, v, arch));
  };
  for (int d : kDims) {
    const Variant plain{.dim = d, .v_dim = d, .kilobytes = kilobytes_of(capability)};
    add(plain, {"prepare", "forward", "backward", "backward_keys", "backward_queries", "finish"});
    if (d == 32 || d == 96 || d == 192) continue;
    Variant all = plain;
    all.half = all.left = all.alibi = all.softcap = all.dropout = all.sink = all.blocks = all.wide = true;
    all.whole = false;
    add(all, {"prepare", "forward", "backward", "backward_queries", "finish"});
    if (d != 128) continue;
    for (bool Variant::*feature :
         {&Variant::half, &Variant::left, &Variant::alibi, &Variant::softcap, &Variant::dropout, &Variant::sink, &Variant::blocks}) {
      Variant one = plain;
      one.*feature = true;
      add(one, {"forward", "backward"});
    }
  }
  for (auto [d, v_d] : {std::pair{192, 128}, {64, 256}})
    add({.dim = d, .v_dim = v_d, .kilobytes = kilobytes_of(capability)}, {"forward", "backward"});
  return keys;
}

}  // namespace flashgpt::attention::sm80
