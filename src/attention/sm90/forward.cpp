// Which variant of the Hopper forward runs, over which grid.
#include "attention/sm90/forward.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "flashgpt/error.h"

namespace flashgpt::attention::sm90 {

namespace {

constexpr float kLog2e = 1.4426950408889634f;
constexpr double kTileCost = 2;      // of a tile beside its blocks of keys, in blocks
constexpr int kUnlimited = 1 << 29;  // lengths are below it
static_assert(sizeof(ForwardArgs) == 128, "as the kernel sees it");

ForwardConfig config_of(const ForwardCall& c) {
  const bool causal = c.causal || c.window_right >= 0;
  ForwardConfig f = with_features(
      forward_config(forward_dim(std::max(c.q.columns, c.v.columns)), c.q.length, causal, c.dtype == Dtype::kF16, c.list != nullptr),
      c.window_left >= 0 || c.window_right > 0, c.alibi, c.softcap > 0);
  if (c.warpgroups > 0) f.warpgroups = c.warpgroups;
  if (c.keys > 0) f.keys = c.keys;
  return f;
}

void check_call(const ForwardCall& c) {
  for (int d : {c.q.columns, c.v.columns}) require(d > 0 && d <= 256 && d % 8 == 0, "head dim ", d, ", expected a multiple of 8 to 256");
  require(c.dtype == Dtype::kBF16 || c.dtype == Dtype::kF16, "dtype = ", name_of(c.dtype), ", expected bf16 or fp16");
  require(c.k.heads > 0 && c.q.heads % c.k.heads == 0, "heads = ", c.q.heads, ", expected a multiple of kv_heads = ", c.k.heads);
  require(c.k.batch == c.q.batch && c.k.columns == c.q.columns, "k is of ", c.k.batch, " sequences and ", c.k.columns, " columns, q of ",
          c.q.batch, " and ", c.q.columns);
  check_rows("q", c.q, c.q);
  Rows o = c.q, v = c.k;
  o.columns = v.columns = c.v.columns;
  check_rows("o", c.o, o);
  check_rows("k", c.k, c.k);
  check_rows("v", c.v, v);
  require(!c.list || (c.q.batch == 1 && c.cu_q && c.cu_k), "varlen: q of ", c.q.batch, " sequences, expected 1, cu_q and cu_k");
  require(c.scale > 0, "scale = ", c.scale, ", expected a positive number");
}

}  // namespace

int forward_section(int tiles, int heads, int group, int sq, int sk, ForwardConfig c, int grid) {
  static std::mutex mutex;
  static std::map<std::array<int, 9>, int> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({tiles, heads, group, sq, sk, c.warpgroups, c.keys, c.head_dim, grid}, heads);
  if (!is_new) return found->second;
  // More heads at a time share the L2 cache with fewer blocks of threads, each with K and V of its own; up to 40 the memory keeps up.
  const int most = std::max(group, 40 / group * group), least = std::max(group, 12 / group * group);
  double best = 0;
  for (int section = heads <= most ? heads : least; section <= std::min(heads, most); section += group) {
    std::vector<double> work(static_cast<std::size_t>(grid));
    double all = 0;
    for (int i = 0; i < tiles * heads; ++i) {
      const int round = i / grid, place = i % grid;
      const int last = (forward_item(i, tiles, heads, section, true).tile + 1) * c.warpgroups * kGroupRows - 1;
      const double cost = blocks_until(true, last, sq, sk, c.keys) + kTileCost;
      work[static_cast<std::size_t>(round % 2 ? grid - 1 - place : place)] += cost;
      all += cost;
    }
    const double even = all / grid / *std::max_element(work.begin(), work.end());
    if (even > best + 1e-3) {
      best = even;
      found->second = section;
    }
  }
  return found->second;
}

int forward_rows(const ForwardCall& c) { return config_of(c).warpgroups * kGroupRows; }

cuda::KernelKey forward_kernel(const ForwardCall& c) {
  const ForwardConfig f = config_of(c);
  const std::string space = "flashgpt::attention::sm90::";
  const auto word = [](bool b) { return b ? "true" : "false"; };
  return {"attention/sm90/forward.cuh",
          cat(space, "attention_forward<", space, "ForwardConfig{", f.head_dim, ",", f.warpgroups, ",", f.keys, ",", word(f.causal), ",",
              word(f.half), ",", word(f.varlen), ",", word(f.window), ",", word(f.alibi), ",", word(f.softcap), "}>"),
          "sm_90a",
          {}};
}

void forward(CUstream stream, const ForwardCall& c) {
  check_call(c);
  if (c.q.batch == 0 || c.q.length == 0) return;
  const ForwardConfig f = config_of(c);
  ForwardArgs a{};
  a.lse = c.lse;
  a.lse_sequence = c.lse_sequence;
  a.lse_head = c.lse_head;
  a.cu_q = c.cu_q;
  a.cu_k = c.cu_k;
  a.list = c.list;
  a.sq = c.q.length;
  a.sk = c.k.length;
  a.heads = c.q.heads;
  a.kv_heads = c.k.heads;
  a.tiles = ceil_div(a.sq, f.warpgroups * kGroupRows);
  a.items = a.tiles * c.q.batch * a.heads;
  a.scale_log2 = (c.softcap > 0 ? c.softcap : c.scale) * kLog2e;
  a.into_tanh = c.softcap > 0 ? c.scale / c.softcap : 0;
  a.left = c.window_left >= 0 ? c.window_left : kUnlimited;
  a.right = std::max(0, c.window_right);
  a.slopes = c.slopes;
  a.slopes_sequence = c.slopes_sequence;
  a.slopes_first = c.slopes_first;
  a.head_offset = c.head_offset;
  a.total_heads = c.total_heads;
  // A tensor of no keys has no map; none of it is loaded then.
  const Rows& k = c.k.length > 0 ? c.k : c.q;
  const Rows& v = c.k.length > 0 ? c.v : c.q;
  const auto map_q = map_of(c.q, c.dtype, kGroupRows), map_k = map_of(k, c.dtype, f.keys),
             map_v = f.varlen ? ragged_map_of(v, c.dtype, f.keys) : map_of(v, c.dtype, f.keys),
             map_o = f.varlen ? ragged_map_of(c.o, c.dtype, kGroupRows) : map_of(c.o, c.dtype, kGroupRows);
  const int grid = f.varlen ? cuda::multiprocessors() : std::min(a.items, cuda::multiprocessors());
  a.section = f.causal && !f.varlen ? forward_section(a.tiles, c.q.batch * a.heads, a.heads / a.kv_heads, a.sq, a.sk, f, grid) : 1;
  cuda::launch(cuda::kernel(forward_kernel(c)),
               {.grid = static_cast<unsigned>(grid),
                .block = static_cast<unsigned>((f.warpgroups + 1) * kGroupThreads),
                .shared_bytes = forward_layout(f).total,
                .stream = stream,
                .overlap_previous = true},
               map_q, map_k, map_v, map_o, a);
}

}  // namespace flashgpt::attention::sm90
