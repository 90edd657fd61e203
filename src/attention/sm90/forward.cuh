// Attention forward on Hopper. A block of threads owns the whole SM and takes tiles of queries in turn. One warp loads; each of the other
// warpgroups computes 64 queries:
//
//   S = Q K^T              both from shared memory
//   P = 2^(S c - m)        softmax.cuh
//   O += P V               P straight from registers
//
// S of a block of keys is computed beside P V of the block before, so the tensor cores work while P of one warpgroup is made. In the blocks
// without a mask the warpgroups take turns in issuing their products (named barriers), which keeps one's softmax beside another's products.
// K and V arrive in rings of their own, in the order K0 Q K1 V0 K2 V1 ...
#pragma once
#include "attention/sm90/forward_config.h"
#include "attention/sm90/softmax.cuh"
#include "core/tile/tma.cuh"

namespace flashgpt::attention::sm90 {

constexpr int kBarrierTurn = 1, kBarrierStore = 5;  // named barriers, one a warpgroup

// Full: a copy has landed. Empty: every warp that computes has read.
struct ForwardBarriers {
  uint32_t full_q, empty_q, full_k, empty_k, full_v, empty_v;
  DEVICE ForwardBarriers(uint32_t at, int stages)
      : full_q(at),
        empty_q(at + 8),
        full_k(at + 16),
        empty_k(full_k + 8 * stages),
        full_v(empty_k + 8 * stages),
        empty_v(full_v + 8 * stages) {}
  DEVICE void init(int stages, int warps) const {
    mbar_init(full_q, 1);
    mbar_init(empty_q, warps);
    for (int s = 0; s < stages; ++s) {
      mbar_init(full_k + 8 * s, 1);
      mbar_init(full_v + 8 * s, 1);
      mbar_init(empty_k + 8 * s, warps);
      mbar_init(empty_v + 8 * s, warps);
    }
    mbar_init_fence();
  }
};

// Columns of S behind a row's last key, relative to this thread's first column, become -inf.
template <int H> DEVICE void hide_after(float (&s)[H], int last_upper, int last_lower) {
#pragma unroll
  for (int j = 0; j < H / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e > last_upper) s[4 * j + e] = -infinity();
      if (8 * j + e > last_lower) s[4 * j + 2 + e] = -infinity();
    }
}

// Columns before a row's first key.
template <int H> DEVICE void hide_before(float (&s)[H], int first_upper, int first_lower) {
#pragma unroll
  for (int j = 0; j < H / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e < first_upper) s[4 * j + e] = -infinity();
      if (8 * j + e < first_lower) s[4 * j + 2 + e] = -infinity();
    }
}

// ALiBi: subtracts slope |distance|; `distance` is that of this thread's first column to its upper row's own position.
template <int H> DEVICE void add_distances(float (&s)[H], int distance, float slope) {
  const float upper = static_cast<float>(distance), lower = static_cast<float>(distance - 8);
#pragma unroll
  for (int j = 0; j < H / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[4 * j + e] = fmaf(-slope, fabsf(upper + static_cast<float>(8 * j + e)), s[4 * j + e]);
      s[4 * j + 2 + e] = fmaf(-slope, fabsf(lower + static_cast<float>(8 * j + e)), s[4 * j + 2 + e]);
    }
}
template <int H> DEVICE void cap(float (&s)[H], float into_tanh) {
#pragma unroll
  for (int j = 0; j < H; ++j) s[j] = 1.0f - __fdividef(2.0f, 1.0f + ex2(s[j] * into_tanh * (2 * kLog2e)));
}
// alibi_slope of score.h in single precision.
DEVICE float slope_of(const ForwardArgs& a, int sequence, int head) {
  if (a.slopes) return a.slopes[sequence * a.slopes_sequence + a.slopes_first + head];
  int power = 1;
  while (power * 2 <= a.total_heads) power *= 2;
  const int h = a.head_offset + head;
  return ex2(h < power ? -8.0f * static_cast<float>(h + 1) / static_cast<float>(power)
                       : -4.0f * static_cast<float>(2 * (h - power) + 1) / static_cast<float>(power));
}

// One tile of queries of one head.
struct ForwardWork {
  int sequence, head, kv_head;
  int first_query, len_q, len_k;  // in the sequence
  int q_row, k_row;               // where the sequence begins in the maps
};
template <ForwardConfig C> DEVICE int item_count(const ForwardArgs& a) { return C.varlen ? a.list[0] * a.heads : a.items; }
template <ForwardConfig C> DEVICE ForwardWork work_of(const ForwardArgs& a, int index) {
  ForwardWork w;
  if constexpr (C.varlen) {
    const int entry = index / a.heads;
    w.head = index % a.heads;
    w.sequence = a.list[1 + 2 * entry];
    w.first_query = a.list[2 + 2 * entry];
    w.q_row = a.cu_q[w.sequence];
    w.k_row = a.cu_k[w.sequence];
    w.len_q = a.cu_q[w.sequence + 1] - w.q_row;
    w.len_k = a.cu_k[w.sequence + 1] - w.k_row;
  } else {
    const ForwardItem item = forward_item(index, a.tiles, a.items / a.tiles, a.section, C.causal);
    w.sequence = item.head / a.heads;
    w.head = item.head % a.heads;
    w.first_query = item.tile * C.warpgroups * kGroupRows;
    w.q_row = w.k_row = 0;
    w.len_q = a.sq;
    w.len_k = a.sk;
  }
  w.kv_head = w.head / (a.heads / a.kv_heads);
  return w;
}

// What the loading thread does.
template <ForwardConfig C> DEVICE void load_tiles(uint32_t sm, const ForwardBarriers& bars, const CUtensorMap* map_q,
                                                  const CUtensorMap* map_k, const CUtensorMap* map_v, const ForwardArgs& a) {
  constexpr ForwardLayout L = forward_layout(C);
  constexpr int N = C.keys, kGroups = C.warpgroups, kPieces = blocks_of(C.head_dim);
  const int items = item_count<C>(a), grid = gridDim.x;
  Ring<L.stages> ring_k, ring_v;
  Ring<1> ring_q;
  for (int round = 0; round * grid < items; ++round) {
    const int index = forward_index(round, blockIdx.x, grid);
    if (index >= items) continue;
    const ForwardWork w = work_of<C>(a, index);
    const int blocks = blocks_until(C.causal, w.first_query + kGroups * kGroupRows - 1, w.len_q, w.len_k, N, C.window ? a.right : 0);
    const int low = C.window ? first_key_of(a.left, w.first_query, w.len_q, w.len_k) / N : 0;
    auto load_k = [&](int block) {
      const uint32_t bar = bars.full_k + 8 * ring_k.slot, to = sm + L.k + ring_k.slot * L.kv_bytes;
      mbar_wait(bars.empty_k + 8 * ring_k.slot, ring_k.parity ^ 1);
      mbar_expect(bar, L.kv_bytes);
      for (int x = 0; x < kPieces; ++x)
        tma_load(to + x * N * kSwizzleRowBytes, map_k, bar, x * kSwizzleColumns, w.k_row + block * N, w.kv_head, C.varlen ? 0 : w.sequence);
      ring_k.advance();
    };
    auto load_v = [&](int block) {
      const uint32_t bar = bars.full_v + 8 * ring_v.slot, to = sm + L.v + ring_v.slot * L.kv_bytes;
      mbar_wait(bars.empty_v + 8 * ring_v.slot, ring_v.parity ^ 1);
      mbar_expect(bar, L.kv_bytes);
      for (int x = 0; x < kPieces; ++x) {
        const uint32_t piece = to + x * N * kSwizzleRowBytes;
        if constexpr (C.varlen)
          tma_load(piece, map_v, bar, x * kSwizzleColumns, kRagged - w.len_k + block * N, w.kv_head, kRagged, w.k_row + w.len_k);
        else
          tma_load(piece, map_v, bar, x * kSwizzleColumns, block * N, w.kv_head, w.sequence);
      }
      ring_v.advance();
    };
    if (blocks > low) load_k(blocks - 1);
    mbar_wait(bars.empty_q, ring_q.parity ^ 1);
    mbar_expect(bars.full_q, kGroups * L.q_bytes);
    for (int g = 0; g < kGroups; ++g)
      for (int x = 0; x < kPieces; ++x)
        tma_load(sm + L.q + g * L.q_bytes + x * kGroupRows * kSwizzleRowBytes, map_q, bars.full_q, x * kSwizzleColumns,
                 w.q_row + w.first_query + g * kGroupRows, w.head, C.varlen ? 0 : w.sequence);
    ring_q.advance();
    for (int b = blocks - 1; b >= low; --b) {
      if (b > low) load_k(b - 1);
      load_v(b);
    }
  }
}

template <ForwardConfig C> __global__ void __launch_bounds__((C.warpgroups + 1) * kWarpGroup, 1)
    attention_forward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                      const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o,
                      const __grid_constant__ ForwardArgs a) {
  using E = Element<C.half>;
  constexpr ForwardLayout L = forward_layout(C);
  constexpr int D = C.head_dim, N = C.keys, kGroups = C.warpgroups, kRows = kGroups * kGroupRows, kPieces = blocks_of(D);
  extern __shared__ uint8_t raw[];
  const uint32_t sm = align_up(smem_address(raw), 1024);
  const ForwardBarriers bars(sm + L.barriers, L.stages);
  const int wg = warpgroup_index();
  if (threadIdx.x == 0) bars.init(L.stages, 4 * kGroups);
  __syncthreads();
  launch_dependents();
  wait_for_previous_kernel();

  if (wg == kGroups) {
    registers_down<kGroups == 3 ? 32 : 24>();
    if (threadIdx.x == kGroups * kWarpGroup) load_tiles<C>(sm, bars, &map_q, &map_k, &map_v, a);
    return;
  }

  registers_up<kGroups == 4 ? 112 : kGroups == 3 ? 160 : 240>();
  const int lane = lane_index(), warp = threadIdx.x % kWarpGroup / kWarp, items = item_count<C>(a), grid = gridDim.x;
  const float c = a.scale_log2;
  const uint32_t q = sm + L.q + wg * L.q_bytes;
  float s[N / 2], o[D / 2];
  uint32_t p[N / 4];
  SoftmaxRows rows;
  Ring<L.stages> ring_k, ring_v;
  Ring<1> ring_q;
  auto release = [&](uint32_t empty) {
    if (lane == 0) mbar_arrive(empty);
  };
  auto wait_k = [&] { mbar_wait(bars.full_k + 8 * ring_k.slot, ring_k.parity); };
  auto start_scores = [&] {
    wgmma_fence();
    product_abt<E, D, kGroupRows, N>(s, q, sm + L.k + ring_k.slot * L.kv_bytes);
    wgmma_commit();
  };
  auto start_output = [&] {
    mbar_wait(bars.full_v + 8 * ring_v.slot, ring_v.parity);
    wgmma_fence();
    product_pb<E, N, D>(o, p, sm + L.v + ring_v.slot * L.kv_bytes);
    wgmma_commit();
  };
  auto release_k = [&] {
    release(bars.empty_k + 8 * ring_k.slot);
    ring_k.advance();
  };
  auto release_v = [&] {
    release(bars.empty_v + 8 * ring_v.slot);
    ring_v.advance();
  };

#pragma unroll 1
  for (int round = 0; round * grid < items; ++round) {
    const int index = forward_index(round, blockIdx.x, grid);
    if (index >= items) continue;
    const ForwardWork w = work_of<C>(a, index);
    const int first_query = w.first_query + wg * kGroupRows, row = first_query + warp * 16 + lane / 4;
    const int right = C.window ? a.right : 0;
    const int tile_blocks = blocks_until(C.causal, w.first_query + kRows - 1, w.len_q, w.len_k, N, right);
    const int tile_low = C.window ? first_key_of(a.left, w.first_query, w.len_q, w.len_k) / N : 0;
    int blocks = blocks_until(C.causal, first_query + kGroupRows - 1, w.len_q, w.len_k, N, right);
    int low = C.window ? first_key_of(a.left, first_query, w.len_q, w.len_k) / N : 0;
    if (C.window && blocks <= low) blocks = low = smaller(tile_low, tile_blocks);  // sees nothing
    // Blocks [plain_low, plain) need no mask; the same for all warpgroups.
    const int plain = plain_blocks(C.causal, w.first_query, w.len_q, w.len_k, N, right);
    const int plain_low = C.window ? plain_from(a.left, w.first_query + kRows - 1, w.len_q, w.len_k, N) : 0;
    const int last_upper = last_key_of(C.causal, row, w.len_q, w.len_k, right) - lane % 4 * 2;
    const int last_lower = last_key_of(C.causal, row + 8, w.len_q, w.len_k, right) - lane % 4 * 2;
    const int first_upper = C.window ? first_key_of(a.left, row, w.len_q, w.len_k) - lane % 4 * 2 : 0;
    const int first_lower = C.window ? first_key_of(a.left, row + 8, w.len_q, w.len_k) - lane % 4 * 2 : 0;
    const int distance = C.alibi ? lane % 4 * 2 - row - (w.len_k - w.len_q) : 0;
    const float slope = C.alibi ? slope_of(a, w.sequence, w.head) * kLog2e / c : 0.0f;
    auto score = [&](int b) {  // of S = Q K^T
      if constexpr (C.softcap) cap(s, a.into_tanh);
      if constexpr (C.alibi) add_distances(s, distance + b * N, slope);
    };
    auto score_and_hide = [&](int b) {
      score(b);
      hide_after(s, last_upper - b * N, last_lower - b * N);
      if constexpr (C.window) hide_before(s, first_upper - b * N, first_lower - b * N);
    };
    auto masked_block = [&](int b) {
      wait_k();
      start_scores();
      start_output();
      wgmma_wait<1>();
      pin(s);
      release_k();
      score_and_hide(b);
      softmax_with_maximum(s, rows, c);
      wgmma_wait<0>();
      pin(o);
      release_v();
      pack_all<E>(p, s);
      multiply_rows(o, rows.alpha);
      pin(o);
    };
    rows.start();
    fill(o, 0.0f);

    mbar_wait(bars.full_q, ring_q.parity);
    ring_q.advance();
    // What only later warpgroups see.
    for (int b = tile_blocks; b > blocks; --b) {
      wait_k();
      release_k();
      mbar_wait(bars.full_v + 8 * ring_v.slot, ring_v.parity);
      release_v();
    }
    if (blocks > low) {
      wait_k();
      start_scores();
      wgmma_wait<0>();
      pin(s);
      release_k();
      score_and_hide(blocks - 1);
      softmax_with_maximum(s, rows, c);
      pack_all<E>(p, s);
#pragma unroll 1
      for (int b = blocks - 2; b >= (!C.window || plain > plain_low ? plain : low); --b) masked_block(b);
      const int turn = kBarrierTurn + wg, next_turn = kBarrierTurn + (wg == kGroups - 1 ? 0 : wg + 1);
      const int plain_left = C.window ? larger(0, plain - plain_low) : smaller(plain, blocks - 1);
      if (wg == kGroups - 1 && plain_left > 0) named_arrive(next_turn, 2 * kWarpGroup);
#pragma unroll 1
      for (int b = plain_left; b > 0; --b) {
        wait_k();
        named_sync(turn, 2 * kWarpGroup);
        start_scores();
        start_output();
        named_arrive(next_turn, 2 * kWarpGroup);
        wgmma_wait<1>();
        pin(s);
        score(plain_low + b - 1);
        bool scale;
        if (!softmax_without_maximum(s, rows, c, scale)) {
          scores_again<E, D, N>(s, q, sm + L.k + ring_k.slot * L.kv_bytes);
          score(plain_low + b - 1);
          softmax_with_maximum(s, rows, c);
        }
        release_k();
        wgmma_wait<0>();
        pin(o);
        release_v();
        pack_all<E>(p, s);
        if (scale) multiply_rows(o, rows.alpha);
        pin(o);
      }
      if (wg == 0 && plain_left > 0) named_sync(turn, 2 * kWarpGroup);
      if constexpr (C.window) {
        if (plain > plain_low)
#pragma unroll 1
          for (int b = plain_low - 1; b >= low; --b) masked_block(b);
      }
      if constexpr (!L.o_over_q) release(bars.empty_q);
      start_output();
      wgmma_wait<0>();
      pin(o);
      release_v();
      // What only earlier warpgroups see.
      for (int b = low; C.window && b > tile_low; --b) {
        wait_k();
        release_k();
        mbar_wait(bars.full_v + 8 * ring_v.slot, ring_v.parity);
        release_v();
      }
    } else if (!L.o_over_q) {
      release(bars.empty_q);
    }

    // O / l through shared memory, log-sum-exp.
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float l = quad_sum(rows.l[r]);
      inverse[r] = l > 0 ? 1 / l : l == 0 ? 0 : l;  // NaN stays NaN
      if (a.lse && lane % 4 == 0 && row + 8 * r < w.len_q)
        a.lse[(C.varlen ? w.q_row : w.sequence * a.lse_sequence) + w.head * a.lse_head + row + 8 * r] =
            l == 0 ? -infinity() : (rows.m[r] + lg2(l)) * kLn2;
    }
    const bool storer = threadIdx.x % kWarpGroup == 0;
    if (storer) bulk_wait_read<0>();  // the O before has left
    named_sync(kBarrierStore + wg, kWarpGroup);
    const uint32_t out = L.o_over_q ? q : sm + L.o + wg * L.q_bytes;
    const int store_row = warp * 16 + lane % 16;
#pragma unroll
    for (int x = 0; x < D / 16; ++x) {
      const float* e = &o[8 * x];
      stmatrix4(out + swizzled(store_row, 16 * x + lane / 16 * 8, kGroupRows), pack<E>(e[0] * inverse[0], e[1] * inverse[0]),
                pack<E>(e[2] * inverse[1], e[3] * inverse[1]), pack<E>(e[4] * inverse[0], e[5] * inverse[0]),
                pack<E>(e[6] * inverse[1], e[7] * inverse[1]));
    }
    fence_async_shared();
    named_sync(kBarrierStore + wg, kWarpGroup);
    if (storer) {
      if (first_query < w.len_q)
        for (int x = 0; x < kPieces; ++x) {
          const uint32_t from = out + x * kGroupRows * kSwizzleRowBytes;
          if constexpr (C.varlen)
            tma_store(&map_o, from, x * kSwizzleColumns, kRagged - w.len_q + first_query, w.head, kRagged, w.q_row + w.len_q);
          else
            tma_store(&map_o, from, x * kSwizzleColumns, first_query, w.head, w.sequence);
        }
      bulk_commit();
      if constexpr (L.o_over_q) bulk_wait_read<0>();
    }
    if constexpr (L.o_over_q) {
      named_sync(kBarrierStore + wg, kWarpGroup);
      release(bars.empty_q);
    }
  }
  bulk_wait<0>();
}

}  // namespace flashgpt::attention::sm90
