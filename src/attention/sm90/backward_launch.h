// The host side of the Hopper backward: which kernels run, over which grids, with which workspace. No CUDA call is made here: `Gpu` brings
//   auto kernel(const char* source, const std::string& name, int shared_bytes)   compiled and cached
//   auto map(const Rows& r, int rows_per_box, bool half)                         a tensor map of boxes of 64 columns
//   void launch(kernel, unsigned grid, unsigned threads, int shared_bytes, bool overlap, params...)
// `overlap`: programmatic dependent launch behind the kernel before.
//
// Kernels of a call: prepare, main, finish (head dims 64, 128); prepare, then for each chunk of heads wide and product (256).
#pragma once
#include <cstdint>
#include <string>

#include "attention/sm90/backward_config.h"

namespace flashgpt::attention::sm90 {

// A tensor [batch][length][heads][columns] of 16-bit elements; strides in elements, multiples of 8; columns are contiguous.
struct Rows {
  void* data = nullptr;
  int batch = 0, length = 0, heads = 0, columns = 0;
  RowStrides strides{};
};

struct BackwardCall {
  Rows q, k, v, o, dout, dq, dk, dv;
  const float* lse = nullptr;  // [batch][heads][length of q], natural logarithm, -inf where a query sees no key
  float scale = 0;
  bool causal = false, half = false;
  void* workspace = nullptr;  // aligned to 1024
  std::size_t workspace_bytes = 0;
  bool store_ds = false;  // head dim 128: dS to memory and a product for dQ, as always with 256; deterministic
  int experiment = 0;
};

inline std::size_t stats_bytes(const BackwardCall& c) {
  const std::size_t bytes = std::size_t{1} * c.q.batch * c.q.heads * ceil_div(c.q.length, kQueryRows) * kStats * 4;
  return (bytes + 1023) / 1024 * 1024;
}
inline bool stores_ds(const BackwardCall& c) { return c.q.columns == 256 || (c.q.columns == 128 && c.store_ds); }
// The sums of dQ, or dS^T, of the query heads of `kv_heads` key/value heads.
inline std::size_t sums_bytes(const BackwardCall& c, int kv_heads) {
  const std::size_t tiles = std::size_t{1} * kv_heads * (c.q.heads / c.k.heads) * ceil_div(c.q.length, kQueryRows);
  return stores_ds(c) ? tiles * ceil_div(c.k.length, 64) * kDsTile * 2 : tiles * kQueryRows * c.q.columns * 4;
}
// How many key/value heads go through the kernels together: as many as `limit` bytes of dS allow.
inline int heads_together(const BackwardCall& c, std::size_t limit) {
  int heads = c.q.batch * c.k.heads;
  while (stores_ds(c) && heads > 1 && sums_bytes(c, heads) > limit) heads = ceil_div(heads, 2);
  return heads;
}
constexpr std::size_t kDsLimit = std::size_t{1} << 31;
// What a call needs; where dS is stored, more than this, up to `limit` bytes of it, makes fewer launches.
inline std::size_t backward_workspace(const BackwardCall& c, std::size_t limit = kDsLimit) {
  return stats_bytes(c) + sums_bytes(c, heads_together(c, limit));
}

inline std::string variant(const char* kernel, const BackwardCall& c) {
  const std::string space = "flashgpt::attention::sm90::";
  return space + kernel + "<" + space + "BackwardConfig{" + std::to_string(c.q.columns) + "," + (c.causal ? "true" : "false") + "," +
         (c.half ? "true" : "false") + "," + std::to_string(c.experiment) + "}>";
}

// The L2 budget in which the Q, dO and dQ of heads that run together should fit.
constexpr long long kSectionBytes = 40ll << 20;

template <class Gpu> void backward(Gpu& gpu, const BackwardCall& c) {
  const int head_dim = c.q.columns, all_kv_heads = c.q.batch * c.k.heads, group = c.q.heads / c.k.heads;
  if (c.q.batch == 0 || c.q.length == 0 || c.k.length == 0) return;
  char* workspace = static_cast<char*>(c.workspace);
  float* stats = reinterpret_cast<float*>(workspace);
  char* sums = workspace + stats_bytes(c);
  const bool wide = head_dim == 256, stores = stores_ds(c);
  const int key_rows = backward_key_rows(head_dim);
  BackwardArgs a{};
  a.stats = stats;
  a.dq_sum = stores ? nullptr : reinterpret_cast<float*>(sums);
  a.ds = stores ? reinterpret_cast<unsigned short*>(sums) : nullptr;
  a.sq = c.q.length;
  a.sk = c.k.length;
  a.heads = c.q.heads;
  a.kv_heads = c.k.heads;
  a.query_tiles = ceil_div(a.sq, kQueryRows);
  a.key_blocks = ceil_div(a.sk, key_rows);
  a.all_kv_heads = all_kv_heads;
  a.section = backward_section(kSectionBytes, a.sq, a.sk, head_dim, group);
  a.scale = c.scale;
  a.scale_log2 = c.scale * 1.4426950408889634f;
  BackwardRowArgs rows{};
  rows.o = static_cast<const unsigned short*>(c.o.data);
  rows.dout = static_cast<const unsigned short*>(c.dout.data);
  rows.lse = c.lse;
  rows.stats = stats;
  rows.dq_sum = a.dq_sum;
  rows.dq = static_cast<unsigned short*>(c.dq.data);
  rows.o_strides = c.o.strides;
  rows.dout_strides = c.dout.strides;
  rows.dq_strides = c.dq.strides;
  rows.sq = a.sq;
  rows.heads = a.heads;
  rows.query_tiles = a.query_tiles;
  rows.scale = c.scale;
  const int together = heads_together(c, c.workspace_bytes - stats_bytes(c));
  const unsigned tiles = static_cast<unsigned>(c.q.batch * a.heads * a.query_tiles);
  constexpr int kThreads = 384, kRowThreads = 256;

  const auto map_q = gpu.map(c.q, kQueryRows, c.half), map_dout = gpu.map(c.dout, kQueryRows, c.half),
             map_k = gpu.map(c.k, key_rows, c.half), map_v = gpu.map(c.v, key_rows, c.half), map_dk = gpu.map(c.dk, 64, c.half),
             map_dv = gpu.map(c.dv, 64, c.half);
  constexpr const char* kRows = "attention/sm90/backward_rows.cuh";
  gpu.launch(gpu.kernel(kRows, variant("backward_prepare", c), 0), tiles, kRowThreads, 0, false, rows);
  if (!stores) {
    const int shared = backward_layout(head_dim).total;
    gpu.launch(gpu.kernel("attention/sm90/backward.cuh", variant("attention_backward", c), shared),
               static_cast<unsigned>(a.key_blocks * all_kv_heads), kThreads, shared, true, map_q, map_dout, map_k, map_v, map_dk, map_dv,
               a);
    gpu.launch(gpu.kernel(kRows, variant("backward_finish", c), 0), tiles, kRowThreads, 0, true, rows);
    return;
  }
  const auto map_dq = gpu.map(c.dq, kQueryRows, c.half), map_k64 = gpu.map(c.k, 64, c.half);
  const int shared = wide ? wide_layout().total : stored_layout().total;
  const auto keys = wide ? gpu.kernel("attention/sm90/backward_wide.cuh", variant("backward_wide", c), shared)
                         : gpu.kernel("attention/sm90/backward_stored.cuh", variant("backward_stored", c), shared);
  const auto product = gpu.kernel("attention/sm90/backward_product.cuh", variant("backward_product", c), product_shared(head_dim));
  for (int first = 0; first < all_kv_heads; first += together) {
    a.first_kv_head = first;
    a.all_kv_heads = smaller(together, all_kv_heads - first);
    gpu.launch(keys, static_cast<unsigned>(a.key_blocks * a.all_kv_heads), kThreads, shared, first == 0, map_q, map_dout, map_k, map_v,
               map_dk, map_dv, a);
    gpu.launch(product, static_cast<unsigned>(ceil_div(a.query_tiles, kProductTiles) * a.all_kv_heads * group), kThreads,
               product_shared(head_dim), true, map_k64, map_dq, a);
  }
}

}  // namespace flashgpt::attention::sm90
