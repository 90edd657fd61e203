// Every kernel of the ops, the optimizer and fp32 attention as machine code for three generations of GPUs, none of which need be there:
// no spills, no local memory.
#include <gtest/gtest.h>

#include "core/cuda/call.h"
#include "flashgpt/error.h"

namespace flashgpt::cuda {
namespace {

struct Entry {
  const char* file;
  std::vector<std::string> names;
};

std::vector<Entry> entries() {
  std::vector<std::string> simt = {"row_delta", "clear_tail", "list_tiles"}, acts;
  for (int dim : {32, 64, 128, 256}) {
    simt.push_back(cat("forward<", dim, ", ", dim <= 128 ? 64 : 32, ">"));
    for (const char* pass : {"backward_keys", "backward_queries"}) simt.push_back(cat(pass, "<", dim, ", ", dim <= 128 ? 32 : 16, ">"));
  }
  for (const char* name : {"bias_act", "bias_act_grad"})
    for (int a = 0; a < 4; ++a) acts.push_back(cat(name, "<flashgpt::ops::Act(", a, ")>"));
  return {{"ops/cuda/norm.cuh", {"add_norm", "add_norm_grad", "norm_dw_partials"}},
          {"ops/cuda/column_sum.cuh", {"column_sum", "add_partials"}},
          {"ops/cuda/activation.cuh", acts},
          {"ops/cuda/qkv_rope.cuh", {"qkv_rope"}},
          {"ops/cuda/qk_norm.cuh", {"qk_norm", "qk_norm_grad", "qk_norm_dw_partials"}},
          {"ops/cuda/embedding.cuh", {"embedding", "sort_count", "sort_scan", "sort_scatter", "segment_sum"}},
          {"ops/cuda/cross_entropy.cuh", {"cross_entropy", "sum_losses"}},
          {"ops/cuda/cache_append.cuh", {"cache_append"}},
          {"optim/cuda/optim.cuh",
           {"sum_squares", "add_squares", "finish_norm", "adamw", "adafactor_rows", "adafactor_row_mean", "adafactor_column_partials",
            "adafactor_columns", "adafactor_sums", "adafactor_update"}},
          {"attention/cuda/simt.cuh", simt}};
}

std::string space_of(const std::string& file) {
  if (file.starts_with("ops/")) return "flashgpt::ops::";
  return file.starts_with("optim/") ? "flashgpt::optim::" : "flashgpt::attention::simt::";
}

TEST(GpuCompile, NoSpills) {
  std::vector<KernelKey> keys;
  for (const Entry& e : entries())
    for (const std::string& name : e.names)
      for (int capability : {80, 90, 120})
        keys.push_back({.file = e.file, .expression = space_of(e.file) + name, .arch = arch_of(capability), .options = {}});
  compile_all(keys, 2);
  for (const KernelKey& key : keys) {
    const Compiled c = compile_cached(key);
    EXPECT_EQ(c.spill_bytes, 0) << key.expression << " for " << key.arch;
    EXPECT_EQ(c.stack_bytes, 0) << key.expression << " for " << key.arch;
  }
}

}  // namespace
}  // namespace flashgpt::cuda
