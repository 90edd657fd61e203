// Attention in fp32 on any GPU, without tensor cores: tiled, online softmax, backward by recomputation from LSE. Exact in the sense of the
// CPU kernels and deterministic: each sum has one owner. Every mask and score of mask.h and score.h; the fast 16-bit kernels have their own
// files.
//
// A block of 16 x 16 threads owns a tile of Block queries (forward, dq) or keys (dk and dv) of one head and walks the tiles of the other
// kind. Thread (ty, tx) has the scores of rows ty + 16 i and columns tx + 16 j, and columns tx + 16 j of its rows' sums.
#pragma once
#include "attention/cuda/arguments.h"
#include "attention/online_softmax.h"
#include "core/tile/block.cuh"

namespace flashgpt::attention::simt {

constexpr int kSide = 16;

DEVICE float row_sum(float x) {  // over the 16 threads of a row
#pragma unroll
  for (int d = kSide / 2; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}
DEVICE float row_max(float x) {
#pragma unroll
  for (int d = kSide / 2; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
  return x;
}

__global__ void __launch_bounds__(kListThreads) list_tiles(ListArguments a) {
  __shared__ int warp_sums[kListThreads / tile::kWarp];
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  const int lane = tile::lane_index(), warp = threadIdx.x / tile::kWarp;
  for (Int64 first = 0; first < a.batch && a.cu[first] < a.cu[a.batch]; first += kListThreads) {
    const Int64 b = first + threadIdx.x;
    const int length = b < a.batch ? a.cu[b + 1] - a.cu[b] : 0, tiles = (length + a.block - 1) / a.block;
    int before = tiles;  // inclusive sum over the warp
#pragma unroll
    for (int d = 1; d < tile::kWarp; d *= 2) {
      const int below = __shfl_up_sync(~0u, before, d);
      if (lane >= d) before += below;
    }
    if (lane == tile::kWarp - 1) warp_sums[warp] = before;
    __syncthreads();
    int at = found + before - tiles;
    for (int w = 0; w < warp; ++w) at += warp_sums[w];
    for (int t = 0; t < tiles; ++t) {
      a.out[1 + 2 * (at + t)] = static_cast<int>(b);
      a.out[2 + 2 * (at + t)] = t * a.block;
    }
    __syncthreads();
    if (threadIdx.x == kListThreads - 1) found = at + tiles;
    __syncthreads();
  }
  if (threadIdx.x == 0) a.out[0] = found;
}

struct Item {
  Int64 first, h, b;  // first row of the tile, head, sequence
};
// The index-th piece of work: a tile of `block` rows of a head. False behind the last one.
DEVICE bool find_item(const int* tiles, Int64 index, Int64 heads, Int64 batch, Int64 longest, int block, Item& item) {
  const Int64 t = index / heads;
  item.h = index % heads;
  if (tiles) {
    if (t >= tiles[0]) return false;
    item.b = tiles[1 + 2 * t];
    item.first = tiles[2 + 2 * t];
    return true;
  }
  const Int64 of_sequence = (longest + block - 1) / block;
  item.b = t / of_sequence;
  item.first = t % of_sequence * block;
  return item.b < batch;
}

struct Lengths {
  Int64 q_first, k_first, len_q, len_k;
};
DEVICE Lengths lengths_of(const Arguments& a, Int64 b) {
  Lengths n{0, 0, a.max_q, a.max_k};
  if (a.varlen) n = {a.cu_q[b], a.cu_k[b], a.cu_q[b + 1] - a.cu_q[b], a.cu_k[b + 1] - a.cu_k[b]};
  if (a.used_q) n.len_q = a.used_q[b];
  if (a.used_k) n.len_k = a.used_k[b];
  return n;
}
DEVICE Score score_of(const Arguments& a, Int64 b, Int64 h) {
  Score s{a.scale, a.softcap, 0};
  if (a.alibi)
    s.slope = a.slopes ? a.slopes[b * a.slopes_batch_stride + a.slopes_first + h] : alibi_slope(a.total_heads, a.head_offset + h);
  return s;
}

template <int Dim, int Block> struct Tile {  // rows of a matrix in shared memory; the odd stride keeps columns in different banks
  float* data;
  DEVICE float& at(int row, int column) const { return data[row * (Dim + 1) + column]; }
  static constexpr int kFloats = Block * (Dim + 1);

  // Rows [first, first + Block) of `from`; those from `end` on, and columns from `columns` on, are zeros.
  DEVICE void load(const Rows& from, Int64 b, Int64 base, Int64 first, Int64 end, Int64 h, Int64 columns) const {
    for (int i = threadIdx.x; i < Block * Dim; i += kThreads) {
      const int r = i / Dim, c = i % Dim;
      at(r, c) = first + r < end && c < columns ? from.at(b, base + first + r, h)[c] : 0.0f;
    }
  }
};

// out[i][j] = sum over c of x[ty + 16 i][c] y[tx + 16 j][c]
template <int Dim, int Block, int N> DEVICE void scores_of(const Tile<Dim, Block>& x, const Tile<Dim, Block>& y, float (&out)[N][N]) {
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) out[i][j] = 0;
#pragma unroll 4
  for (int c = 0; c < Dim; ++c) {
    float u[N], w[N];
#pragma unroll
    for (int i = 0; i < N; ++i) u[i] = x.at(ty + kSide * i, c), w[i] = y.at(tx + kSide * i, c);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) out[i][j] += u[i] * w[j];
  }
}

// sum[i][j] += sum over r of p(ty + 16 i, r) y[r][tx + 16 j]
template <int Dim, int Block, int N, int C, class Weight>
DEVICE void add_product(const Weight& p, const Tile<Dim, Block>& y, float (&sum)[N][C]) {
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
#pragma unroll 4
  for (int r = 0; r < Block; ++r) {
    float u[N], w[C];
#pragma unroll
    for (int i = 0; i < N; ++i) u[i] = p(ty + kSide * i, r);
#pragma unroll
    for (int j = 0; j < C; ++j) w[j] = y.at(r, tx + kSide * j);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < C; ++j) sum[i][j] += u[i] * w[j];
  }
}

template <int N, int C> DEVICE void clear(float (&x)[N][C]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < C; ++j) x[i][j] = 0;
}

// Writes sums of rows [first, first + Block) below `end`; rows from `end` to `capacity` become zeros.
template <int N, int C> DEVICE void store(const Rows& to, Int64 b, Int64 base, Int64 first, Int64 end, Int64 capacity, Int64 h,
                                          Int64 columns, const float (&sum)[N][C]) {
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Int64 r = first + ty + kSide * i;
    if (r >= capacity) continue;
    float* out = to.at(b, base + r, h);
#pragma unroll
    for (int j = 0; j < C; ++j)
      if (tx + kSide * j < columns) out[tx + kSide * j] = r < end ? sum[i][j] : 0.0f;
  }
}

extern __shared__ float memory[];

DEVICE Int64 capacity_of(const Arguments& a, bool queries, Int64 b) {  // rows that belong to the sequence, in use or not
  if (!a.varlen) return queries ? a.max_q : a.max_k;
  return queries ? a.cu_q[b + 1] - a.cu_q[b] : a.cu_k[b + 1] - a.cu_k[b];
}

template <int Dim, int Block> DEVICE void forward_tile(const Arguments& a, const Item& item) {
  constexpr int N = Block / kSide, C = Dim / kSide;
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
  const auto [first, h, b] = item;
  const Lengths n = lengths_of(a, b);
  const Int64 capacity = capacity_of(a, true, b), kv = h / a.group;
  const Tile<Dim, Block> q{memory}, kv_tile{memory + Tile<Dim, Block>::kFloats};
  float* p = memory + 2 * Tile<Dim, Block>::kFloats;
  const auto p_at = [&](int r, int c) -> float& { return p[r * (Block + 1) + c]; };
  q.load(a.q, b, n.q_first, first, n.len_q, h, a.head_dim);

  const Score kind = score_of(a, b, h);
  float o[N][C], most[N], total[N];
  clear(o);
#pragma unroll
  for (int i = 0; i < N; ++i) most[i] = -infinity_of<float>(), total[i] = 0;
  const Int64 last = first + Block < n.len_q ? first + Block : n.len_q;
  const Range keys = first < n.len_q ? keys_of(a.mask, first, last, n.len_q, n.len_k) : Range{};
  for (Int64 key = keys.first / Block * Block; key < keys.last; key += Block) {
    __syncthreads();
    kv_tile.load(a.k, b, n.k_first, key, n.len_k, kv, a.head_dim);
    __syncthreads();
    float s[N][N];
    scores_of(q, kv_tile, s);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Int64 query = first + ty + kSide * i;
      float top = most[i];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const Int64 at = key + tx + kSide * j;
        const bool seen = query < n.len_q && at < n.len_k && visible(a.mask, query, at, n.len_q, n.len_k);
        s[i][j] = seen ? score(kind, s[i][j], at - (query + n.len_k - n.len_q)).value : -infinity_of<float>();
        top = fmaxf(top, s[i][j]);
      }
      top = row_max(top);
      const float shrink = exp_shifted(most[i], top);
      float part = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float e = exp_shifted(s[i][j], top);
        p_at(ty + kSide * i, tx + kSide * j) = e;
        part += e;
      }
      total[i] = total[i] * shrink + row_sum(part);
      most[i] = top;
#pragma unroll
      for (int j = 0; j < C; ++j) o[i][j] *= shrink;
    }
    __syncthreads();
    kv_tile.load(a.v, b, n.k_first, key, n.len_k, kv, a.v_head_dim);
    __syncthreads();
    add_product(p_at, kv_tile, o);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float inverse = total[i] > 0 ? 1 / total[i] : 0.0f;
#pragma unroll
    for (int j = 0; j < C; ++j) o[i][j] *= inverse;
    const Int64 r = first + ty + kSide * i;
    if (a.lse.data && tx == 0 && r < capacity)
      *a.lse.at(b, n.q_first + r, h) = total[i] > 0 ? most[i] + log_of(total[i]) : -infinity_of<float>();
  }
  store(a.o, b, n.q_first, first, n.len_q, capacity, h, a.v_head_dim, o);
}

// delta = rowsum(dout o) - dlse, one warp a row and head.
__global__ void __launch_bounds__(kThreads) row_delta(Arguments a) {
  const Int64 item = (Int64(blockIdx.x) * kThreads + threadIdx.x) / tile::kWarp;
  if (item >= a.total_q * a.heads) return;
  const Int64 h = item % a.heads, row = item / a.heads;
  const Int64 b = a.varlen ? 0 : row / a.max_q, i = a.varlen ? row : row % a.max_q;
  const float *o = a.o.at(b, i, h), *dout = a.dout.at(b, i, h);
  float total = 0;
  for (Int64 c = tile::lane_index(); c < a.v_head_dim; c += tile::kWarp) total += o[c] * dout[c];
  total = tile::warp_sum(total);
  if (tile::lane_index() == 0) a.delta[h * a.total_q + row] = a.dlse.data ? total - *a.dlse.at(b, i, h) : total;
}

// P and dS of a tile of queries and keys, transposed when rows are keys. RowsAreKeys: row ty + 16 i is a key, column tx + 16 j a query.
template <bool RowsAreKeys, int N> DEVICE void weights_of(const Arguments& a, const Lengths& n, const Score& kind, Int64 b, Int64 h,
                                                          Int64 first_row, Int64 first_column, float (&s)[N][N], float (&dp)[N][N]) {
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Int64 row = first_row + ty + kSide * i, column = first_column + tx + kSide * j;
      const Int64 query = RowsAreKeys ? column : row, key = RowsAreKeys ? row : column;
      float p = 0, ds = 0;
      if (query < n.len_q && key < n.len_k && visible(a.mask, query, key, n.len_q, n.len_k)) {
        const ScoreValue<float> value = score(kind, s[i][j], key - (query + n.len_k - n.len_q));
        const Int64 at = a.varlen ? n.q_first + query : b * a.max_q + query;
        p = exp_shifted(value.value, *a.lse.at(b, n.q_first + query, h));
        ds = p * (dp[i][j] - a.delta[h * a.total_q + at]) * value.derivative;
      }
      s[i][j] = p;
      dp[i][j] = ds;
    }
}

template <int Block, int N, class At> DEVICE void to_shared(const At& at, const float (&x)[N][N]) {
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) at(ty + kSide * i, tx + kSide * j) = x[i][j];
}

template <int Dim, int Block> DEVICE void backward_keys_tile(const Arguments& a, const Item& item) {
  constexpr int N = Block / kSide, C = Dim / kSide, kTile = Tile<Dim, Block>::kFloats;
  const auto [first, kv, b] = item;
  const Lengths n = lengths_of(a, b);
  const Int64 capacity = capacity_of(a, false, b);
  const Tile<Dim, Block> k{memory}, v{memory + kTile}, q{memory + 2 * kTile}, dout{memory + 3 * kTile};
  float* weights = memory + 4 * kTile;
  const auto at = [&](int r, int c) -> float& { return weights[r * (Block + 1) + c]; };
  k.load(a.k, b, n.k_first, first, n.len_k, kv, a.head_dim);
  v.load(a.v, b, n.k_first, first, n.len_k, kv, a.v_head_dim);

  float dk[N][C], dv[N][C];
  clear(dk);
  clear(dv);
  const Int64 last = first + Block < n.len_k ? first + Block : n.len_k;
  const Range queries = first < n.len_k ? queries_of(a.mask, first, last, n.len_q, n.len_k) : Range{};
  for (Int64 h = kv * a.group; h < (kv + 1) * a.group; ++h) {
    const Score kind = score_of(a, b, h);
    for (Int64 query = queries.first / Block * Block; query < queries.last; query += Block) {
      __syncthreads();
      q.load(a.q, b, n.q_first, query, n.len_q, h, a.head_dim);
      dout.load(a.dout, b, n.q_first, query, n.len_q, h, a.v_head_dim);
      __syncthreads();
      float p[N][N], ds[N][N];
      scores_of(k, q, p);
      scores_of(v, dout, ds);
      weights_of<true>(a, n, kind, b, h, first, query, p, ds);
      to_shared<Block>(at, p);
      __syncthreads();
      add_product(at, dout, dv);
      __syncthreads();
      to_shared<Block>(at, ds);
      __syncthreads();
      add_product(at, q, dk);
    }
  }
  store(a.dk, b, n.k_first, first, n.len_k, capacity, kv, a.head_dim, dk);
  store(a.dv, b, n.k_first, first, n.len_k, capacity, kv, a.v_head_dim, dv);
}

template <int Dim, int Block> DEVICE void backward_queries_tile(const Arguments& a, const Item& item) {
  constexpr int N = Block / kSide, C = Dim / kSide, kTile = Tile<Dim, Block>::kFloats;
  const auto [first, h, b] = item;
  const Lengths n = lengths_of(a, b);
  const Int64 capacity = capacity_of(a, true, b), kv = h / a.group;
  const Tile<Dim, Block> q{memory}, dout{memory + kTile}, k{memory + 2 * kTile}, v{memory + 3 * kTile};
  float* weights = memory + 4 * kTile;
  const auto at = [&](int r, int c) -> float& { return weights[r * (Block + 1) + c]; };
  q.load(a.q, b, n.q_first, first, n.len_q, h, a.head_dim);
  dout.load(a.dout, b, n.q_first, first, n.len_q, h, a.v_head_dim);

  const Score kind = score_of(a, b, h);
  float dq[N][C];
  clear(dq);
  const Int64 last = first + Block < n.len_q ? first + Block : n.len_q;
  const Range keys = first < n.len_q ? keys_of(a.mask, first, last, n.len_q, n.len_k) : Range{};
  for (Int64 key = keys.first / Block * Block; key < keys.last; key += Block) {
    __syncthreads();
    k.load(a.k, b, n.k_first, key, n.len_k, kv, a.head_dim);
    v.load(a.v, b, n.k_first, key, n.len_k, kv, a.v_head_dim);
    __syncthreads();
    float p[N][N], ds[N][N];
    scores_of(q, k, p);
    scores_of(dout, v, ds);
    weights_of<false>(a, n, kind, b, h, first, key, p, ds);
    to_shared<Block>(at, ds);
    __syncthreads();
    add_product(at, k, dq);
  }
  store(a.dq, b, n.q_first, first, n.len_q, capacity, h, a.head_dim, dq);
}

// A block takes every gridDim.x-th piece of work: the number of tiles of a varlen batch is known on the GPU only.
template <int Dim, int Block> __global__ void __launch_bounds__(kThreads, 1) forward(Arguments a) {
  Item item;
  for (Int64 i = blockIdx.x; find_item(a.q_tiles, i, a.heads, a.batch, a.max_q, Block, item); i += gridDim.x) {
    forward_tile<Dim, Block>(a, item);
    __syncthreads();  // shared memory has been read
  }
}
template <int Dim, int Block> __global__ void __launch_bounds__(kThreads, 1) backward_keys(Arguments a) {
  Item item;
  for (Int64 i = blockIdx.x; find_item(a.k_tiles, i, a.kv_heads, a.batch, a.max_k, Block, item); i += gridDim.x) {
    backward_keys_tile<Dim, Block>(a, item);
    __syncthreads();
  }
}
template <int Dim, int Block> __global__ void __launch_bounds__(kThreads, 1) backward_queries(Arguments a) {
  Item item;
  for (Int64 i = blockIdx.x; find_item(a.q_tiles, i, a.heads, a.batch, a.max_q, Block, item); i += gridDim.x) {
    backward_queries_tile<Dim, Block>(a, item);
    __syncthreads();
  }
}

// Tokens behind the last sequence belong to none: zeros, and lse -inf.
__global__ void __launch_bounds__(64) clear_tail(TailArguments a) {
  const Int64 row = blockIdx.x;
  if (row < a.cu[a.batch]) return;
  for (Int64 i = threadIdx.x; a.rows.data && i < a.heads * a.columns; i += 64) a.rows.at(0, row, i / a.columns)[i % a.columns] = 0.0f;
  for (Int64 h = threadIdx.x; a.lse.data && h < a.heads; h += 64) *a.lse.at(0, row, h) = -infinity_of<float>();
}

}  // namespace flashgpt::attention::simt
