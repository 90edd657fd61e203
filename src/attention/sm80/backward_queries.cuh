// dq of a tile of queries, from the keys that it sees: the deterministic way, every sum in one thread's registers. S and dP are computed a
// second time (backward_keys.cuh has them, too); no memory beyond the statistics of the rows.
//   S = Q K^T    dP = dO V^T    dS (weights.cuh)    dQ += dS K
#pragma once
#include "attention/sm80/weights.cuh"

namespace flashgpt::attention::sm80 {

template <Variant C> struct QueriesTile {
  using E = Element<C.half>;
  static constexpr BackwardShape kShape = queries_shape(C);
  static constexpr int M = kShape.rows, N = kShape.keys, kThreads = kShape.warps * kWarp;
  static constexpr int kDout = tile_bytes_of(M, C.dim), kKeys = kDout + tile_bytes_of(M, C.v_dim);
  static constexpr int kV = tile_bytes_of(N, C.dim), kStageBytes = kV + tile_bytes_of(N, C.v_dim);

  const Arguments& a;
  Item item;
  uint32_t memory;
  int len_k, shift;
  float dq[1][C.dim / 8][4];

  DEVICE QueriesTile(const Arguments& arguments, const Item& it, uint32_t at) : a(arguments), item(it), memory(at) {}

  DEVICE uint32_t stage(int i) const { return memory + kKeys + (kShape.stages == 1 ? 0 : i % 2 * kStageBytes); }

  DEVICE void load_keys(const Lengths& n, int key, int i) const {
    const int kv = item.head / a.group;
    load_tile<N, C.dim, kThreads, C.whole>(stage(i), a.k.at(item.sequence, n.k_first + key, kv), a.k.row, len_k - key, a.head_dim);
    load_tile<N, C.v_dim, kThreads, C.whole>(stage(i) + kV, a.v.at(item.sequence, n.k_first + key, kv), a.v.row, len_k - key, a.v_head_dim);
    copy_commit();
  }

  DEVICE void add_keys(int key, uint32_t at, uint32_t stats, float slope, int len_q, const BlockTable& table) {
    const int warp_row = threadIdx.x / kWarp * 16, lane_row = warp_row + lane_index() / 4;
    float s[1][N / 8][4], dp[1][N / 8][4];
    clear(s);
    clear(dp);
    multiply<E, C.dim, false, M, true, N>(s, memory, warp_row, at, 0);
    multiply<E, C.v_dim, false, M, true, N>(dp, memory + kDout, warp_row, at + kV, 0);
    const Position where{item.first + lane_row, key + lane_index() % 4 * 2, shift, len_k, slope, len_q,
                         sequence_head(a, item.sequence, item.head)};
    if (C.blocks || needs_mask<C.left>(a, item.first, M, key, N, shift, len_k))
      weights<C, true>(a, where, stats + lane_row * 4, stats + (M + lane_row) * 4, table, s, dp);
    else
      weights<C, false>(a, where, stats + lane_row * 4, stats + (M + lane_row) * 4, table, s, dp);
    const uint32_t k_place = place_down(at);
#pragma unroll
    for (int j = 0; j < N; j += 16) {
      const float(&x)[4] = dp[0][j / 8], (&y)[4] = dp[0][j / 8 + 1];
      const uint32_t ds[4] = {pack<E>(x[0], x[1]), pack<E>(x[2], x[3]), pack<E>(y[0], y[1]), pack<E>(y[2], y[3])};
#pragma unroll
      for (int c = 0; c < C.dim; c += 16) {
        uint32_t w[4];
        ldmatrix4_transposed(w, place_of(k_place, j, c, N));
        mma<E>(dq[0][c / 8], ds, w[0], w[1]);
        mma<E>(dq[0][c / 8 + 1], ds, w[2], w[3]);
      }
    }
  }

  DEVICE void run(uint32_t stats, unsigned char* states) {
    const Lengths n = lengths_of(a, item.sequence);
    len_k = n.len_k, shift = n.len_k - n.len_q;
    clear(dq);
    const int last = smaller(item.first + M, n.len_q);
    BlockTable table{states};
    const Seen keys = C.blocks ? Seen{0, len_k} : keys_of_tile<C.left>(a, item.first, last, shift, len_k);
    const int first_key = keys.low / N * N, count = item.first < n.len_q && keys.high > keys.low ? (keys.high - first_key + N - 1) / N : 0;
    const float slope = C.alibi ? slope_of(a, item.sequence, item.head) * kLog2e : 0.0f;
    if (count > 0) {
      const int rows = n.len_q - item.first;
      load_tile<M, C.dim, kThreads, C.whole>(memory, a.q.at(item.sequence, n.q_first + item.first, item.head), a.q.row, rows, a.head_dim);
      load_tile<M, C.v_dim, kThreads, C.whole>(memory + kDout, a.dout.at(item.sequence, n.q_first + item.first, item.head), a.dout.row, rows,
                                               a.v_head_dim);
      for (int i = threadIdx.x; i < 2 * M; i += kThreads)
        copy4(stats + i * 4, (i < M ? a.lse2 : a.delta) + stats_row(a, item, n, item.head) + item.first + i % M, i % M < rows);
      load_keys(n, first_key, 0);
    }
    for (int i = 0; i < count; ++i) {
      if (kShape.stages == 1 && i > 0) {
        __syncthreads();
        load_keys(n, first_key + i * N, 0);
      }
      copy_wait<0>();
      __syncthreads();
      if (kShape.stages == 2 && i + 1 < count) load_keys(n, first_key + (i + 1) * N, i + 1);
      const int key = first_key + i * N;
      if (C.blocks && !table.read(a, item.sequence, item.head, item.first, last, key, smaller(key + N, len_k))) continue;
      add_keys(key, stage(i), stats, slope, n.len_q, table);
    }
    __syncthreads();  // Q has been read by all: each warp's dQ takes the place of its rows
    const int warp_row = threadIdx.x / kWarp * 16;
    const uint32_t place = place_pair(memory + warp_row * kSwizzleRowBytes);
#pragma unroll
    for (int j = 0; j < C.dim / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_shared1(place_of(place, 8 * half, 8 * j, M),
                      pack<E>(dq[0][j][2 * half] * a.gradient_scale, dq[0][j][2 * half + 1] * a.gradient_scale));
    __syncwarp();
    store_rows<M, C.dim, 16, kWarp, C.whole>(memory, warp_row, lane_index(), a.dq.at(item.sequence, n.q_first + item.first, item.head),
                                             a.dq.row, n.room_q - item.first, a.head_dim);
  }
};

template <Variant C>
__global__ void __launch_bounds__(queries_shape(C).warps * 32, 1) backward_queries(const __grid_constant__ Arguments a) {
  extern __shared__ char dynamic_memory[];
  __shared__ unsigned char states[C.blocks ? BlockTable::kRoom : 1];
  __shared__ float stats[2 * queries_shape(C).rows];
  const uint32_t memory = align_up(smem_address(dynamic_memory), kAlignment);
  Item item;
  for (int i = blockIdx.x; find_item(a, a.q_tiles, i, a.heads, a.max_q, queries_shape(C).rows, a.right >= 0, item); i += gridDim.x) {
    QueriesTile<C>(a, item, memory).run(smem_address(stats), states);
    if (!a.q_tiles) break;
    __syncthreads();
  }
}

}  // namespace flashgpt::attention::sm80
