// Which kernels of the Hopper backward run, over which grids, with which workspace.
#include "attention/sm90/backward.h"

#include "flashgpt/error.h"

namespace flashgpt::attention::sm90 {

namespace {

constexpr int kMainThreads = 384, kRowThreads = 256;
constexpr long long kSectionBytes = 40ll << 20;  // of L2: Q, dO and dQ of the heads that run together
constexpr float kLog2e = 1.4426950408889634f;
static_assert(sizeof(RowStrides) == 24 && sizeof(BackwardRowArgs) == 136 && sizeof(BackwardArgs) == 72, "as the kernels see them");

int query_tiles(const BackwardCall& c) { return ceil_div(c.q.length, kQueryRows); }
int group_of(const BackwardCall& c) { return c.q.heads / c.k.heads; }

std::size_t stats_bytes(const BackwardCall& c) {
  const std::size_t bytes = std::size_t{1} * c.q.batch * c.q.heads * query_tiles(c) * kStats * sizeof(float);
  return (bytes + 1023) / 1024 * 1024;
}
// The sums of dQ, or dS^T, of the query heads of `kv_heads` key/value heads.
std::size_t sums_bytes(const BackwardCall& c, int kv_heads) {
  const std::size_t tiles = std::size_t{1} * kv_heads * group_of(c) * query_tiles(c);
  return stores_ds(c) ? tiles * ceil_div(c.k.length, 64) * kDsTile * 2 : tiles * kQueryRows * c.q.columns * sizeof(float);
}
// How many key/value heads go through the kernels together: as many as `limit` bytes of dS allow.
int heads_together(const BackwardCall& c, std::size_t limit) {
  int heads = c.q.batch * c.k.heads;
  while (stores_ds(c) && heads > 1 && sums_bytes(c, heads) > limit) heads = ceil_div(heads, 2);
  return heads;
}

cuda::KernelKey key(const BackwardCall& c, const char* file, const char* kernel) {
  const std::string space = "flashgpt::attention::sm90::";
  return {cat("attention/sm90/", file),
          cat(space, kernel, "<", space, "BackwardConfig{", c.q.columns, ",", c.causal ? "true" : "false", ",",
              c.dtype == Dtype::kF16 ? "true" : "false", "}>"),
          "sm_90a",
          {}};
}
struct Keys {
  cuda::KernelKey prepare, keys, last;
};
Keys keys_of(const BackwardCall& c) {
  Keys k{key(c, "backward_rows.cuh", "backward_prepare"), {}, {}};
  if (c.q.columns == 256)
    k.keys = key(c, "backward_wide.cuh", "backward_wide");
  else if (stores_ds(c))
    k.keys = key(c, "backward_stored.cuh", "backward_stored");
  else
    k.keys = key(c, "backward.cuh", "attention_backward");
  k.last = stores_ds(c) ? key(c, "backward_product.cuh", "backward_product") : key(c, "backward_rows.cuh", "backward_finish");
  return k;
}

void check_call(const BackwardCall& c) {
  require(c.q.columns == 64 || c.q.columns == 128 || c.q.columns == 256, "head_dim = ", c.q.columns, ", expected 64, 128 or 256");
  require(c.dtype == Dtype::kBF16 || c.dtype == Dtype::kF16, "dtype = ", name_of(c.dtype), ", expected bf16 or fp16");
  require(c.k.heads > 0 && c.q.heads % c.k.heads == 0, "heads = ", c.q.heads, ", expected a multiple of kv_heads = ", c.k.heads);
  require(c.k.batch == c.q.batch && c.k.columns == c.q.columns, "k is of ", c.k.batch, " sequences and ", c.k.columns, " columns, q of ",
          c.q.batch, " and ", c.q.columns);
  require(!c.deterministic || c.q.columns != 64, "deterministic backward on Hopper: head_dim = 64, expected 128 or 256");
  for (const auto& [name, r] : {std::pair{"q", &c.q}, {"o", &c.o}, {"dout", &c.dout}, {"dq", &c.dq}}) check_rows(name, *r, c.q);
  for (const auto& [name, r] : {std::pair{"k", &c.k}, {"v", &c.v}, {"dk", &c.dk}, {"dv", &c.dv}}) check_rows(name, *r, c.k);
  require(c.scale > 0, "scale = ", c.scale, ", expected a positive number");
}

// No queries or no keys: the gradients of the other side are zero.
void zero(CUstream stream, const Rows& r) {
  const bool whole = r.strides.head == r.columns && r.strides.row == r.heads * r.strides.head;
  for (int b = 0; b < r.batch; ++b)
    for (int i = 0; i < (whole ? 1 : r.length * r.heads); ++i) {
      const long long at = b * r.strides.sequence + i / r.heads * r.strides.row + i % r.heads * r.strides.head;
      const std::size_t count = std::size_t{1} * r.columns * (whole ? r.heads * r.length : 1);
      cuda::check(cuda::driver().cuMemsetD8Async(reinterpret_cast<cuda::Address>(r.data) + static_cast<cuda::Address>(at) * 2, 0, count * 2,
                                                 stream),
                  "zero gradients");
    }
}

}  // namespace

bool stores_ds(const BackwardCall& c) {
  return c.q.columns == 256 || (c.q.columns == 128 && (c.deterministic || c.k.length <= kStoreDsUpTo));
}

std::size_t backward_workspace(const BackwardCall& c, std::size_t ds_limit) {
  return stats_bytes(c) + sums_bytes(c, heads_together(c, ds_limit));
}

std::vector<cuda::KernelKey> backward_kernels(const BackwardCall& c) {
  const Keys k = keys_of(c);
  return {k.prepare, k.keys, k.last};
}

void backward(CUstream stream, const BackwardCall& c) {
  check_call(c);
  if (c.q.batch == 0) return;
  if (c.q.length == 0 || c.k.length == 0) {
    if (c.q.length > 0) zero(stream, c.dq);
    if (c.k.length > 0) {
      zero(stream, c.dk);
      zero(stream, c.dv);
    }
    return;
  }
  const int head_dim = c.q.columns, all_kv_heads = c.q.batch * c.k.heads, group = group_of(c), key_rows = backward_key_rows(head_dim);
  const bool stores = stores_ds(c);
  require(c.workspace_bytes >= stats_bytes(c) + sums_bytes(c, stores ? 1 : all_kv_heads), "workspace of ", c.workspace_bytes,
          " bytes, expected at least ", stats_bytes(c) + sums_bytes(c, stores ? 1 : all_kv_heads));
  char* workspace = static_cast<char*>(c.workspace);
  char* sums = workspace + stats_bytes(c);

  BackwardArgs a{};
  a.stats = reinterpret_cast<const float*>(workspace);
  a.dq_sum = stores ? nullptr : reinterpret_cast<float*>(sums);
  a.ds = stores ? reinterpret_cast<unsigned short*>(sums) : nullptr;
  a.sq = c.q.length;
  a.sk = c.k.length;
  a.heads = c.q.heads;
  a.kv_heads = c.k.heads;
  a.query_tiles = query_tiles(c);
  a.key_blocks = ceil_div(a.sk, key_rows);
  a.all_kv_heads = all_kv_heads;
  a.section = backward_section(kSectionBytes, a.sq, a.sk, head_dim, group);
  a.scale = c.scale;
  a.scale_log2 = c.scale * kLog2e;
  BackwardRowArgs rows{};
  rows.o = static_cast<const unsigned short*>(c.o.data);
  rows.dout = static_cast<const unsigned short*>(c.dout.data);
  rows.lse = c.lse;
  rows.stats = reinterpret_cast<float*>(workspace);
  rows.dq_sum = a.dq_sum;
  rows.dq = static_cast<unsigned short*>(c.dq.data);
  rows.o_strides = c.o.strides;
  rows.dout_strides = c.dout.strides;
  rows.dq_strides = c.dq.strides;
  rows.sq = a.sq;
  rows.heads = a.heads;
  rows.query_tiles = a.query_tiles;
  rows.scale = c.scale;

  const Keys k = keys_of(c);
  const cuda::Kernel &prepare = cuda::kernel(k.prepare), &keys = cuda::kernel(k.keys), &last = cuda::kernel(k.last);
  const auto map_q = map_of(c.q, c.dtype, kQueryRows), map_dout = map_of(c.dout, c.dtype, kQueryRows),
             map_k = map_of(c.k, c.dtype, key_rows), map_v = map_of(c.v, c.dtype, key_rows), map_dk = map_of(c.dk, c.dtype, 64),
             map_dv = map_of(c.dv, c.dtype, 64);
  const int shared = head_dim == 256 ? wide_layout().total : stores ? stored_layout().total : backward_layout(head_dim).total;
  const unsigned tiles = static_cast<unsigned>(all_kv_heads * group * a.query_tiles);
  const auto how = [&](int grid, int threads, int bytes, bool overlap) {
    return cuda::Launch{static_cast<unsigned>(grid), static_cast<unsigned>(threads), bytes, stream, overlap};
  };
  cuda::launch(prepare, how(static_cast<int>(tiles), kRowThreads, 0, false), rows);
  if (!stores) {
    cuda::launch(keys, how(a.key_blocks * all_kv_heads, kMainThreads, shared, true), map_q, map_dout, map_k, map_v, map_dk, map_dv, a);
    cuda::launch(last, how(static_cast<int>(tiles), kRowThreads, 0, true), rows);
    return;
  }
  const auto map_dq = map_of(c.dq, c.dtype, kQueryRows), map_k64 = map_of(c.k, c.dtype, 64);
  const int together = heads_together(c, c.workspace_bytes - stats_bytes(c)),
            product_blocks = ceil_div(a.query_tiles, kProductTiles) * group;
  for (int first = 0; first < all_kv_heads; first += together) {
    a.first_kv_head = first;
    a.all_kv_heads = smaller(together, all_kv_heads - first);
    // The workspace of the chunk before is read by the product before: no overlap behind it.
    cuda::launch(keys, how(a.key_blocks * a.all_kv_heads, kMainThreads, shared, first == 0), map_q, map_dout, map_k, map_v, map_dk, map_dv,
                 a);
    cuda::launch(last, how(product_blocks * a.all_kv_heads, kMainThreads, product_shared(head_dim), true), map_k64, map_dq, a);
  }
}

}  // namespace flashgpt::attention::sm90
