// Attention backward in 16 bits: dk and dv of a tile of keys, and this tile's part of dq, which is added up in memory in fp32 (the order of
// the additions is not fixed; with Arguments::dq_sum null, backward_queries.cuh makes dq instead, and every bit is).
//
// A block owns the keys of one key/value head and walks the tiles of queries of all query heads that read it:
//   S = Q K^T    dP = dO V^T    P, dS (weights.cuh)    dV += P^T dO    dK += dS^T Q    dQ += dS K
// P and dS go through shared memory in 16 bits, so that the warps can share each product in the way that loads least.
#pragma once
#include "attention/sm80/weights.cuh"

namespace flashgpt::attention::sm80 {

template <Variant C, bool SumDq> struct KeysTile {
  using E = Element<C.half>;
  static constexpr BackwardShape kShape = keys_shape(C);
  static constexpr KeysLayout kLayout = keys_layout(C);
  static constexpr int M = kShape.rows, N = kShape.keys, kWarps = kShape.warps, kThreads = kWarps * kWarp;
  // Warps along the rows of S, dK, dV and dQ, and the sides of a warp's part.
  static constexpr int kS = warps_along_rows(M, N, kWarps), kSRows = M / kS, kSColumns = N / (kWarps / kS);
  static constexpr int kK = warps_along_rows(N, C.dim, kWarps), kKRows = N / kK, kKColumns = C.dim / (kWarps / kK);
  static constexpr int kV = warps_along_rows(N, C.v_dim, kWarps), kVRows = N / kV, kVColumns = C.v_dim / (kWarps / kV);
  static constexpr int kQ = warps_along_rows(M, C.dim, kWarps), kQRows = M / kQ, kQColumns = C.dim / (kWarps / kQ);

  const Arguments& a;
  Item item;
  uint32_t memory;
  int len_q, len_k, shift, warp;
  float dk[kKRows / 16][kKColumns / 8][4], dv[kVRows / 16][kVColumns / 8][4];

  DEVICE KeysTile(const Arguments& arguments, const Item& it, uint32_t at) : a(arguments), item(it), memory(at) {
    warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0);
  }

  DEVICE uint32_t stage(int i) const { return memory + kLayout.queries + (kShape.stages == 1 ? 0 : i % 2 * kLayout.stage_bytes); }

  DEVICE void load_queries(const Lengths& n, int head, int row, int i) const {
    const uint32_t at = stage(i);
    load_tile<M, C.dim, kThreads, C.whole>(at, a.q.at(item.sequence, n.q_first + row, head), a.q.row, len_q - row, a.head_dim);
    load_tile<M, C.v_dim, kThreads, C.whole>(at + kLayout.q_bytes, a.dout.at(item.sequence, n.q_first + row, head), a.dout.row, len_q - row,
                                             a.v_head_dim);
    if (threadIdx.x < 2 * M) {
      const int r = threadIdx.x % M;
      const float* from = threadIdx.x < M ? a.lse2 : a.delta;
      copy4(at + kLayout.stats + threadIdx.x * 4, from + stats_row(a, item, n, head) + row + r, row + r < len_q);
    }
    copy_commit();
  }

  template <int R, int J> DEVICE void to_shared(uint32_t tile, const float (&x)[R][J][4], int row, int column) const {
    const uint32_t place = place_part<kSColumns>(place_pair(tile), row, column, M);
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int j = 0; j < J; ++j) {
        store_shared1(place_of(place, 16 * r, 8 * j, M), pack<E>(x[r][j][0], x[r][j][1]));
        store_shared1(place_of(place, 16 * r + 8, 8 * j, M), pack<E>(x[r][j][2], x[r][j][3]));
      }
  }

  DEVICE void make_weights(int row, int head, uint32_t at, float slope, const BlockTable& table) const {
    const int warp_row = warp / (kWarps / kS) * kSRows, warp_column = warp % (kWarps / kS) * kSColumns;
    float s[kSRows / 16][kSColumns / 8][4], dp[kSRows / 16][kSColumns / 8][4];
    clear(s);
    clear(dp);
    multiply<E, C.dim, false, M, true, N>(s, at, warp_row, memory, warp_column);
    multiply<E, C.v_dim, false, M, true, N>(dp, at + kLayout.q_bytes, warp_row, memory + kLayout.v, warp_column);
    const int lane_row = warp_row + lane_index() / 4;
    const uint32_t lse2 = at + kLayout.stats + lane_row * 4, delta = lse2 + M * 4;
    const Position where{row + lane_row, item.first + warp_column + lane_index() % 4 * 2, shift, len_k, slope, len_q,
                         sequence_head(a, item.sequence, head)};
    if (C.blocks || needs_mask<C.left>(a, row, M, item.first, N, shift, len_k))
      weights<C, true>(a, where, lse2, delta, table, s, dp);
    else
      weights<C, false>(a, where, lse2, delta, table, s, dp);
    to_shared(memory + kLayout.p, s, warp_row, warp_column);
    to_shared(memory + kLayout.ds, dp, warp_row, warp_column);
  }

  DEVICE void add_dq(const Lengths& n, int head, int row) const {
    const int warp_row = warp / (kWarps / kQ) * kQRows, warp_column = warp % (kWarps / kQ) * kQColumns;
    float dq[kQRows / 16][kQColumns / 8][4];
    clear(dq);
    multiply<E, N, false, M, false, N>(dq, memory + kLayout.ds, warp_row, memory, warp_column);
    const int first = row + warp_row + lane_index() / 4;
    if (a.varlen) {
      float* to = a.dq_sum + (stats_row(a, item, n, head) + first) * C.dim + warp_column;
#pragma unroll
      for (int r = 0; r < kQRows / 16; ++r)
#pragma unroll
        for (int j = 0; j < kQColumns / 8; ++j)
          reduce_rows(to + 16 * r * C.dim + 8 * j, 8 * C.dim, dq[r][j], first + 16 * r < len_q, first + 16 * r + 8 < len_q);
    } else {
      float* to = a.dq_sum + ((Int64{item.sequence} * a.heads + head) * sum_rows(a.max_q) + row + warp_row) * C.dim + warp_column * 16;
#pragma unroll
      for (int r = 0; r < kQRows / 16; ++r)
#pragma unroll
        for (int j = 0; j < kQColumns / 8; ++j) reduce_fragment(to + 16 * r * C.dim + 128 * j, dq[r][j]);
    }
  }

  template <int Columns, int Width, int R, int J>
  DEVICE void store(uint32_t tile, const float (&x)[R][J][4], float scale, int row, int column, unsigned short* to, Int64 stride, int room,
                    int columns) const {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int j = 0; j < J; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          store_shared1(place_of(place_pair(tile), row + 16 * r + 8 * half, column + 8 * j, N),
                        pack<E>(x[r][j][2 * half] * scale, x[r][j][2 * half + 1] * scale));
    __syncthreads();
    store_rows<N, Columns, N, kThreads, C.whole>(tile, 0, threadIdx.x, to, stride, room, columns);
  }

  DEVICE void run(unsigned char* states) {
    const Lengths n = lengths_of(a, item.sequence);
    len_q = n.len_q, len_k = n.len_k, shift = len_k - len_q;
    clear(dk);
    clear(dv);
    // Queries that see a key of the tile: mask.h's rule, in 32 bits.
    const int last_key = smaller(item.first + N, len_k);
    BlockTable table{states};
    const int low = C.blocks || a.right < 0 ? 0 : larger(0, item.first - shift - a.right);
    const int high = C.blocks || !C.left ? len_q : smaller(len_q, last_key - shift + a.left);
    const int first_row = low / M * M, tiles = item.first < len_k && high > low ? (high - first_row + M - 1) / M : 0;
    const int count = tiles * a.group, first_head = item.head * a.group;
    if (count > 0) {
      load_tile<N, C.dim, kThreads, C.whole>(memory, a.k.at(item.sequence, n.k_first + item.first, item.head), a.k.row, len_k - item.first,
                                             a.head_dim);
      load_tile<N, C.v_dim, kThreads, C.whole>(memory + kLayout.v, a.v.at(item.sequence, n.k_first + item.first, item.head), a.v.row,
                                               len_k - item.first, a.v_head_dim);
      load_queries(n, first_head, first_row, 0);
    }
    int head = first_head, tile = 0;
    for (int i = 0; i < count; ++i) {
      const int row = first_row + tile * M;
      const int next_tile = tile + 1 < tiles ? tile + 1 : 0, next_head = next_tile == 0 ? head + 1 : head;
      if (kShape.stages == 1 && i > 0) {
        __syncthreads();
        load_queries(n, head, row, 0);
      }
      copy_wait<0>();
      __syncthreads();  // the tiles are here; those of the turn before, P and dS have been read
      if (kShape.stages == 2 && i + 1 < count) load_queries(n, next_head, first_row + next_tile * M, i + 1);
      const uint32_t at = stage(i);
      if constexpr (C.blocks) {
        if (!table.read(a, item.sequence, head, row, smaller(row + M, len_q), item.first, last_key)) {
          tile = next_tile, head = next_head;
          continue;
        }
      }
      make_weights(row, head, at, C.alibi ? slope_of(a, item.sequence, head) * kLog2e : 0.0f, table);
      __syncthreads();  // P and dS are whole
      multiply<E, M, true, M, false, M>(dv, memory + kLayout.p, warp / (kWarps / kV) * kVRows, at + kLayout.q_bytes,
                                        warp % (kWarps / kV) * kVColumns);
      multiply<E, M, true, M, false, M>(dk, memory + kLayout.ds, warp / (kWarps / kK) * kKRows, at, warp % (kWarps / kK) * kKColumns);
      if constexpr (SumDq) add_dq(n, head, row);
      tile = next_tile, head = next_head;
    }
    __syncthreads();  // K and V have been read: their places take dK and dV
    const int room = n.room_k - item.first;
    store<C.dim, kKColumns>(memory, dk, a.gradient_scale, warp / (kWarps / kK) * kKRows, warp % (kWarps / kK) * kKColumns,
                            a.dk.at(item.sequence, n.k_first + item.first, item.head), a.dk.row, room, a.head_dim);
    store<C.v_dim, kVColumns>(memory + kLayout.v, dv, 1.0f, warp / (kWarps / kV) * kVRows, warp % (kWarps / kV) * kVColumns,
                              a.dv.at(item.sequence, n.k_first + item.first, item.head), a.dv.row, room, a.v_head_dim);
  }
};

template <Variant C, bool SumDq> DEVICE void backward_keys_block(const Arguments& a) {
  extern __shared__ char dynamic_memory[];
  __shared__ unsigned char states[C.blocks ? BlockTable::kRoom : 1];
  const uint32_t memory = align_up(smem_address(dynamic_memory), kAlignment);
  Item item;
  for (int i = blockIdx.x; find_item(a, a.k_tiles, i, a.kv_heads, a.max_k, keys_shape(C).keys, false, item); i += gridDim.x) {
    KeysTile<C, SumDq>(a, item, memory).run(states);
    if (!a.k_tiles) break;
    __syncthreads();
  }
}
template <Variant C> __global__ void __launch_bounds__(keys_shape(C).warps * 32, 1) backward_keys(const __grid_constant__ Arguments a) {
  backward_keys_block<C, false>(a);
}
template <Variant C> __global__ void __launch_bounds__(keys_shape(C).warps * 32, 1) backward(const __grid_constant__ Arguments a) {
  backward_keys_block<C, true>(a);
}

}  // namespace flashgpt::attention::sm80
