// Attention forward in 16 bits on tensor cores: tiled, online softmax (Dao, 2023), one pass over the keys.
//
// A block owns a tile of queries of one head and walks the tiles of keys from the last to the first; a warp owns rows / warps queries.
//   S = Q K^T    m' = max(m, rowmax S)    P = 2^(c S - c m')    l = l 2^(c m - c m') + rowsum P    O = O 2^(c m - c m') + P V
// with c = scale log2(e). The accumulators of S, packed to 16 bits, are the fragments of P that the second product reads. K of the next
// tile is under way during softmax and P V, V of this one during Q K^T.
#pragma once
#include "attention/sm80/features.cuh"

namespace flashgpt::attention::sm80 {

template <Variant C> struct ForwardTile {
  using E = Element<C.half>;
  static constexpr Shape kShape = forward_shape(C);
  static constexpr int M = kShape.rows, N = kShape.keys, kThreads = kShape.warps * kWarp;
  static constexpr int kWarpRows = M / kShape.warps, R = kWarpRows / 16;  // R: pieces of 16 rows a warp
  static constexpr bool kScored = C.alibi || C.softcap;                   // S is turned into scores times log2(e) before the maximum

  const Arguments& a;
  Item item;
  int len_k, shift;  // shift: len_k - len_q
  int kv, row0;  // row0: of this thread in the tile; the others are 8 apart
  uint32_t q, k, v;     // tiles in shared memory
  float s[R][N / 8][4], o[R][C.v_dim / 8][4], most[R][2], total[R][2];
  float slope;

  DEVICE ForwardTile(const Arguments& arguments, const Item& it, uint32_t memory) : a(arguments), item(it) {
    kv = item.head / a.group;
    row0 = threadIdx.x / kWarp * kWarpRows + lane_index() / 4;
    q = memory;
    k = q + tile_bytes_of(M, larger(C.dim, C.v_dim));
    v = k + tile_bytes_of(N, C.dim);
    slope = C.alibi ? slope_of(a, item.sequence, item.head) * kLog2e : 0.0f;
  }

  DEVICE void load_k(const unsigned short* rows, int key) const {
    load_tile<N, C.dim, kThreads, C.whole>(k, rows + key * a.k.row, a.k.row, len_k - key, a.head_dim);
  }
  DEVICE void load_v(const unsigned short* rows, int key) const {
    load_tile<N, C.v_dim, kThreads, C.whole>(v, rows + key * a.v.row, a.v.row, len_k - key, a.v_head_dim);
  }

  DEVICE void scores() {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int j = 0; j < N / 8; ++j) fill(s[r][j], 0.0f);
    const uint32_t q_place = place_down(q + threadIdx.x / kWarp * kWarpRows * kSwizzleRowBytes), k_place = place_across(k);
#pragma unroll
    for (int c = 0; c < C.dim; c += 16) {
      uint32_t x[R][4];
#pragma unroll
      for (int r = 0; r < R; ++r) ldmatrix4(x[r], place_of(q_place, r * 16, c, M));
#pragma unroll
      for (int j = 0; j < N; j += 16) {
        uint32_t y[4];
        ldmatrix4(y, place_of(k_place, j, c, N));
#pragma unroll
        for (int r = 0; r < R; ++r) {
          mma<E>(s[r][j / 8], x[r], y[0], y[1]);
          mma<E>(s[r][j / 8 + 1], x[r], y[2], y[3]);
        }
      }
    }
  }

  // f(r, half, j, e): element 2 half + e of piece r and columns j of 8; its row in the tile is row0 + 16 r + 8 half.
  template <class F> DEVICE static void each_score(F&& f) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) f(r, half, j, e);
  }

  DEVICE void transform(int key) {
    const int column = key + lane_index() % 4 * 2 - item.first - row0 - shift;  // distance of the first score
    const float linear = a.scale * kLog2e, cap = a.softcap * kLog2e;
    each_score([&](int r, int half, int j, int e) {
      float& x = s[r][j][2 * half + e];
      x = C.softcap ? cap * tanh_exact(x * a.scale) : x * linear;
      if constexpr (C.alibi) {
        const int distance = column + 8 * j + e - 16 * r - 8 * half;
        x -= slope * static_cast<float>(distance < 0 ? -distance : distance);
      }
    });
  }

  DEVICE void mask_blocks(int key, const BlockTable& table) {
    const int column = key + lane_index() % 4 * 2;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = item.first + row0 + 16 * r + 8 * half;
        const Seen seen = keys_of_query<C.left>(a, row, shift, len_k);
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int at = column + 8 * j + e;
            const bool in = row < len_k - shift && at < len_k;  // row < len_q
            if (!in || !table.sees(a, row, at, at >= seen.high || (C.left && at < seen.low))) s[r][j][2 * half + e] = -infinity();
          }
      }
  }

  // Zeroes what is dropped: after its sum, which is that of all weights.
  DEVICE void drop(int key) {
    unsigned keep[R][N / 16];
    keep_bits<R, N / 8>(a, sequence_head(a, item.sequence, item.head), item.first + row0, key + lane_index() % 4 * 2, keep);
    each_score([&](int r, int half, int j, int e) {
      if (!is_kept(keep, r, half, j, e)) s[r][j][2 * half + e] = 0.0f;
    });
  }

  DEVICE void mask(int key) {
    const int column = key + lane_index() % 4 * 2;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Seen seen = keys_of_query<C.left>(a, item.first + row0 + 16 * r + 8 * half, shift, len_k);
        const int high = seen.high - column, low = seen.low - column;
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (8 * j + e >= high || (C.left && 8 * j + e < low)) s[r][j][2 * half + e] = -infinity();
          }
      }
  }

  DEVICE void softmax() {
    const float c = kScored ? 1.0f : a.scale * kLog2e;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = most[r][half];
#pragma unroll
        for (int j = 0; j < N / 8; ++j) top = fmaxf(top, fmaxf(s[r][j][2 * half], s[r][j][2 * half + 1]));
        top = quad_max(top);
        const float shifted = top == -infinity() ? 0.0f : top * c;  // nothing seen yet: 2^(-inf - 0) = 0
        const float shrink = ex2(most[r][half] * c - shifted);
        most[r][half] = top;
        float sum = total[r][half] * shrink;
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s[r][j][2 * half + e];
            x = ex2(x * c - shifted);
            sum += x;
          }
        total[r][half] = sum;
#pragma unroll
        for (int j = 0; j < C.v_dim / 8; ++j) o[r][j][2 * half] *= shrink, o[r][j][2 * half + 1] *= shrink;
      }
  }

  DEVICE void add_values() {
    const uint32_t v_place = place_down(v);
#pragma unroll
    for (int j = 0; j < N; j += 16) {
      uint32_t p[R][4];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float(&x)[4] = s[r][j / 8], (&y)[4] = s[r][j / 8 + 1];
        p[r][0] = pack<E>(x[0], x[1]), p[r][1] = pack<E>(x[2], x[3]), p[r][2] = pack<E>(y[0], y[1]), p[r][3] = pack<E>(y[2], y[3]);
      }
#pragma unroll
      for (int c = 0; c < C.v_dim; c += 16) {
        uint32_t w[4];
        ldmatrix4_transposed(w, place_of(v_place, j, c, N));
#pragma unroll
        for (int r = 0; r < R; ++r) {
          mma<E>(o[r][c / 8], p[r], w[0], w[1]);
          mma<E>(o[r][c / 8 + 1], p[r], w[2], w[3]);
        }
      }
    }
  }

  // O / l and lse = ln 2 (c m + log2 l); rows of the sequence that are not in use get zeros and -inf.
  DEVICE void finish() {
    const Lengths n = lengths_of(a, item.sequence);  // again: kept, they would take registers from the loop
    const int warp_first = threadIdx.x / kWarp * kWarpRows;
    const float c = kScored ? 1.0f : a.scale * kLog2e;
    const uint32_t place = place_pair(q + warp_first * kSwizzleRowBytes);
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = item.first + row0 + 16 * r + 8 * half;
        float sum = quad_sum(total[r][half]), top = most[r][half] * c, factor = 1.0f;
        if constexpr (C.sink) {  // one more score, of no value
          const float sink = a.sinks[item.head] * kLog2e, larger = fmaxf(top, sink), shifted = larger == -infinity() ? 0.0f : larger;
          factor = ex2(top - shifted);
          sum = sum * factor + ex2(sink - shifted);
          top = larger;
        }
        if constexpr (C.dropout) factor *= dropout_scale(a.dropout_threshold);
        const bool any = sum > 0 && row < n.len_q;
        const float inverse = any ? factor / sum : 0.0f;
        if (a.lse.data && lane_index() % 4 == 0 && row < n.room_q)
          *a.lse.at(item.sequence, n.q_first + row, item.head) = any ? (top + lg2(sum)) * kLn2 : -infinity();
#pragma unroll
        for (int j = 0; j < C.v_dim / 8; ++j) {
          const float x = any ? o[r][j][2 * half] * inverse : 0.0f, y = any ? o[r][j][2 * half + 1] * inverse : 0.0f;
          if constexpr (C.wide) {
            const int column = 8 * j + lane_index() % 4 * 2;
            float* out = a.wide_o.at(item.sequence, n.q_first + row, item.head) + column;
            if (row < n.room_q && column < a.v_head_dim) out[0] = x;
            if (row < n.room_q && column + 1 < a.v_head_dim) out[1] = y;
          } else {
            store_shared1(place_of(place, 16 * r + 8 * half, 8 * j, M), pack<E>(x, y));
          }
        }
      }
    if constexpr (!C.wide) {
      __syncwarp();
      store_rows<M, C.v_dim, kWarpRows, kWarp, C.whole>(q, warp_first, lane_index(), a.o.at(item.sequence, n.q_first + item.first, item.head), a.o.row,
                                                 n.room_q - item.first, a.v_head_dim);
    }
  }

  DEVICE void run(unsigned char* states) {
    const Lengths n = lengths_of(a, item.sequence);
    len_k = n.len_k, shift = n.len_k - n.len_q;
    const unsigned short *k_rows = a.k.at(item.sequence, n.k_first, kv), *v_rows = a.v.at(item.sequence, n.k_first, kv);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      fill(most[r], -infinity());
      fill(total[r], 0.0f);
#pragma unroll
      for (int j = 0; j < C.v_dim / 8; ++j) fill(o[r][j], 0.0f);
    }
    const int last = smaller(item.first + M, n.len_q);
    const Seen keys = C.blocks ? Seen{0, len_k} : keys_of_tile<C.left>(a, item.first, last, shift, len_k);
    BlockTable table{states};
    const int first_key = keys.low / N * N, end = item.first < n.len_q && keys.high > keys.low ? (keys.high + N - 1) / N * N : first_key;
    // Tiles inside [all.low, all.high) need no mask.
    const Seen all{keys_of_query<C.left>(a, last - 1, shift, len_k).low, keys_of_query<C.left>(a, item.first, shift, len_k).high};
    int key = end - N;
    // The tile of keys from `at` down that is not wholly unseen; its blocks are in the table. All threads.
    const auto next_seen = [&](int at) {
      while (at >= first_key && !table.read(a, item.sequence, item.head, item.first, last, at, smaller(at + N, len_k))) at -= N;
      return at;
    };
    if constexpr (C.blocks) key = next_seen(key);
    if (key >= first_key) {
      load_tile<M, C.dim, kThreads, C.whole>(q, a.q.at(item.sequence, n.q_first + item.first, item.head), a.q.row, n.len_q - item.first,
                                             a.head_dim);
      load_k(k_rows, key);
      copy_commit();
    }
    while (key >= first_key) {
      copy_wait<0>();
      __syncthreads();  // K is here, V of the tile before has been read
      load_v(v_rows, key);
      copy_commit();
      scores();
      copy_wait<0>();
      __syncthreads();  // V is here, K has been read
      const int now = key;
      if constexpr (C.blocks) {
        if constexpr (kScored) transform(now);
        mask_blocks(now, table);
        __syncthreads();  // the table has been read
        key = next_seen(key - N);
      } else {
        key -= N;
      }
      if (key >= first_key) {
        load_k(k_rows, key);
        copy_commit();
      }
      if constexpr (kScored && !C.blocks) transform(now);
      if (!C.blocks && (now + N > all.high || (C.left && now < all.low))) mask(now);
      softmax();
      if constexpr (C.dropout) drop(now);
      add_values();
    }
    finish();
  }
};

// A block takes every gridDim.x-th piece of work: the number of tiles of a varlen batch is known on the GPU only.
template <Variant C> __global__ void __launch_bounds__(forward_shape(C).warps * 32, forward_shape(C).blocks)
    forward(const __grid_constant__ Arguments a) {
  extern __shared__ char dynamic_memory[];
  __shared__ unsigned char states[C.blocks ? BlockTable::kRoom : 1];
  const uint32_t memory = align_up(smem_address(dynamic_memory), kAlignment);
  Item item;
  for (int i = blockIdx.x; find_item(a, a.q_tiles, i, a.heads, a.max_q, forward_shape(C).rows, a.right >= 0, item); i += gridDim.x) {
    ForwardTile<C>(a, item, memory).run(states);
    if (!a.q_tiles) break;  // a dense batch has a block for each tile
    __syncthreads();        // the next tile of queries goes where this one's o was
  }
}

}  // namespace flashgpt::attention::sm80
