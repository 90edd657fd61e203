// Which variant of the Hopper forward runs, over which grid.
#include "attention/sm90/forward.h"

#include <algorithm>

#include "flashgpt/error.h"

namespace flashgpt::attention::sm90 {

namespace {

constexpr long long kSectionBytes = 32ll << 20;  // of L2: K and V of the heads that run together
constexpr float kLog2e = 1.4426950408889634f;
static_assert(sizeof(ForwardArgs) == 40, "as the kernel sees it");

ForwardConfig config_of(const ForwardCall& c) {
  ForwardConfig f = forward_config(c.q.columns, c.causal, c.dtype == Dtype::kF16);
  if (c.warpgroups > 0) f.warpgroups = c.warpgroups;
  if (c.keys > 0) f.keys = c.keys;
  return f;
}

void check_call(const ForwardCall& c) {
  require(c.q.columns == 64 || c.q.columns == 128 || c.q.columns == 256, "head_dim = ", c.q.columns, ", expected 64, 128 or 256");
  require(c.dtype == Dtype::kBF16 || c.dtype == Dtype::kF16, "dtype = ", name_of(c.dtype), ", expected bf16 or fp16");
  require(c.k.heads > 0 && c.q.heads % c.k.heads == 0, "heads = ", c.q.heads, ", expected a multiple of kv_heads = ", c.k.heads);
  require(c.k.batch == c.q.batch && c.k.columns == c.q.columns, "k is of ", c.k.batch, " sequences and ", c.k.columns, " columns, q of ",
          c.q.batch, " and ", c.q.columns);
  check_rows("q", c.q, c.q);
  check_rows("o", c.o, c.q);
  check_rows("k", c.k, c.k);
  check_rows("v", c.v, c.k);
  require(c.scale > 0, "scale = ", c.scale, ", expected a positive number");
}

}  // namespace

cuda::KernelKey forward_kernel(const ForwardCall& c) {
  const ForwardConfig f = config_of(c);
  const std::string space = "flashgpt::attention::sm90::";
  const auto word = [](bool b) { return b ? "true" : "false"; };
  return {"attention/sm90/forward.cuh",
          cat(space, "attention_forward<", space, "ForwardConfig{", f.head_dim, ",", f.warpgroups, ",", f.keys, ",", word(f.causal), ",",
              word(f.half), "}>"),
          "sm_90a",
          {}};
}

void forward(CUstream stream, const ForwardCall& c) {
  check_call(c);
  if (c.q.batch == 0 || c.q.length == 0) return;
  const ForwardConfig f = config_of(c);
  const int group = c.q.heads / c.k.heads;
  const long long head_bytes = 4ll * c.k.length * f.head_dim;  // K and V of one
  ForwardArgs a{};
  a.lse = c.lse;
  a.sq = c.q.length;
  a.sk = c.k.length;
  a.heads = c.q.heads;
  a.kv_heads = c.k.heads;
  a.tiles = ceil_div(a.sq, f.warpgroups * kGroupRows);
  a.items = a.tiles * c.q.batch * a.heads;
  const long long together = std::max(1ll, kSectionBytes / std::max(1ll, head_bytes));
  a.section = static_cast<int>(std::min<long long>(f.causal ? together * group : group, c.q.batch * a.heads));
  a.scale_log2 = c.scale * kLog2e;
  // A tensor of no keys has no map; none of it is loaded then.
  const Rows& k = c.k.length > 0 ? c.k : c.q;
  const Rows& v = c.k.length > 0 ? c.v : c.q;
  const auto map_q = map_of(c.q, c.dtype, kGroupRows), map_k = map_of(k, c.dtype, f.keys), map_v = map_of(v, c.dtype, f.keys),
             map_o = map_of(c.o, c.dtype, kGroupRows);
  cuda::launch(cuda::kernel(forward_kernel(c)),
               {.grid = static_cast<unsigned>(std::min(a.items, cuda::multiprocessors())),
                .block = static_cast<unsigned>((f.warpgroups + 1) * kGroupThreads),
                .shared_bytes = forward_layout(f).total,
                .stream = stream,
                .overlap_previous = true},
               map_q, map_k, map_v, map_o, a);
}

}  // namespace flashgpt::attention::sm90
