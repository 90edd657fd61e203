// Attention backward for head dims 64 and 128 on Hopper. One block of threads owns a block of keys and walks the tiles of 64 queries:
//
//   S^T = K Q^T             P^T = 2^(S^T c - lse)
//   dP^T = V dO^T - delta   dS^T = P^T dP^T
//   dV += P^T dO            dK += dS^T Q          (A straight from registers: that is why everything is transposed)
//   dQ += dS K              (dS through shared memory; added to fp32 sums in global memory, in fragment order)
//
// Warpgroups 0 and 1 compute, each for half of the keys; one thread of warpgroup 2 loads: K and V once, then Q with lse and dO with delta,
// two tiles ahead. Both halves of dS meet at one named barrier a tile. dQ of a tile leaves while dK is computed.
#pragma once
#include "attention/sm90/backward_config.h"
#include "core/tile/math.cuh"
#include "core/tile/packed.cuh"
#include "core/tile/tma.cuh"
#include "core/tile/wgmma.cuh"

namespace flashgpt::attention::sm90 {

using namespace tile;

constexpr int kConsumers = 2;  // warpgroups
constexpr int kBackwardThreads = (kConsumers + 1) * kWarpGroup;
constexpr int kPieceColumns = 64;
constexpr int kBarrierDs = 1, kBarrierStore = 2;  // named barriers; the second has one a warpgroup

// The tiles of queries of a work item, as producer and consumers walk them: every query head of the group, then every tile it meets.
template <bool Causal> struct QueryWalk {
  int m, block, left;  // block: index of the tile in arrays over all heads
  DEVICE QueryWalk(const BackwardArgs& a, int first_key, int kv_head_of_all) {
    const int group = a.heads / a.kv_heads;
    m = first_query_tile(Causal, first_key, a.sq, a.sk);
    block = kv_head_of_all * group * a.query_tiles + m;
    left = group * larger(0, a.query_tiles - m);
  }
  DEVICE void advance(const BackwardArgs& a, int first_key) {
    ++block;
    --left;
    if (++m == a.query_tiles) {
      m = first_query_tile(Causal, first_key, a.sq, a.sk);
      block += m;
    }
  }
};

// Sets to zero what no query sees. `low` and `high` say, relative to this thread's first query of the tile, which query is the first to see
// its two keys.
template <int H> DEVICE void hide(float (&p)[H], int low, int high) {
#pragma unroll
  for (int j = 0; j < H / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e < low) p[4 * j + e] = 0;
      if (8 * j + e < high) p[4 * j + 2 + e] = 0;
    }
}

// Packed accumulators (64 rows of this warpgroup, 64 columns) to a swizzled block of shared memory; `rows` is its first row's address.
DEVICE void store_block(uint32_t rows, const uint32_t* d) {
  const int lane = lane_index(), row = threadIdx.x % kWarpGroup / kWarp * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    stmatrix4(rows + row * kSwizzleRowBytes + ((2 * j + lane / 16) ^ row % 8) * 16, d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
}

// Accumulators that start from a value of their column; `columns`: address of this lane's first one.
DEVICE void start_from_columns(float (&d)[32], uint32_t columns) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    load_shared2(d[4 * j], d[4 * j + 1], columns + j * 32);
    d[4 * j + 2] = d[4 * j];
    d[4 * j + 3] = d[4 * j + 1];
  }
}

// A 64 x 64 piece of dQ to shared memory, in fragment order.
DEVICE void stage(uint32_t box, const float (&dq)[32]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    store_shared4(box + (j * kWarpGroup + threadIdx.x % kWarpGroup) * 16, __float_as_uint(dq[4 * j]), __float_as_uint(dq[4 * j + 1]),
                  __float_as_uint(dq[4 * j + 2]), __float_as_uint(dq[4 * j + 3]));
}

// The barriers of the tiles: full when a copy has landed, empty when every consumer warp has read.
template <int Stages> struct TileBarriers {
  uint32_t full_q, full_o, empty_q, empty_o, full_k, full_v;
  DEVICE explicit TileBarriers(uint32_t at)
      : full_q(at),
        full_o(at + 8 * Stages),
        empty_q(at + 16 * Stages),
        empty_o(at + 24 * Stages),
        full_k(at + 32 * Stages),
        full_v(full_k + 8) {}
  DEVICE void init() const {
    for (int s = 0; s < Stages; ++s) {
      mbar_init(full_q + 8 * s, 1);
      mbar_init(full_o + 8 * s, 1);
      mbar_init(empty_q + 8 * s, 4 * kConsumers);
      mbar_init(empty_o + 8 * s, 4 * kConsumers);
    }
    mbar_init(full_k, 1);
    mbar_init(full_v, 1);
    mbar_init_fence();
  }
};

// What the loading thread does: K, the first Q, V, the first dO (S can start with the first two), then Q and dO of every tile.
template <BackwardConfig C, BackwardLayout L, int Stages>
DEVICE void load_tiles(uint32_t sm, const TileBarriers<Stages>& bars, const CUtensorMap* map_q, const CUtensorMap* map_dout,
                       const CUtensorMap* map_k, const CUtensorMap* map_v, const BackwardArgs& a, const WorkItem& work) {
  constexpr int kPieces = C.head_dim / kPieceColumns, kM = kQueryRows, kN = L.key_rows;
  const int first_key = work.key_block * kN, kv_head = work.head % a.kv_heads, sequence = work.head / a.kv_heads;
  wait_for_previous_kernel();
  auto load_keys = [&](uint32_t to, const CUtensorMap* map, uint32_t full) {
    mbar_expect(full, L.kv_bytes);
    for (int x = 0; x < kPieces; ++x)
      tma_load(to + x * kN * kSwizzleRowBytes, map, full, x * kSwizzleColumns, first_key, kv_head, sequence);
  };
  load_keys(sm + L.k, map_k, bars.full_k);
  QueryWalk<C.causal> walk(a, first_key, work.head);
  bool first = true;
  for (Ring<Stages> ring; walk.left > 0; walk.advance(a, first_key), ring.advance()) {
    const int head = walk.block / a.query_tiles - sequence * a.heads, slot = ring.slot;
    const float* stats = a.stats + static_cast<int64_t>(walk.block) * kStats;
    const uint32_t to_q = sm + L.q + slot * L.q_bytes, to_o = sm + L.dout + slot * L.q_bytes, to_stats = sm + L.stats + slot * kStats * 4;
    mbar_wait(bars.empty_q + 8 * slot, ring.parity ^ 1);
    mbar_expect(bars.full_q + 8 * slot, L.q_bytes + kStatsLse * 4);
    for (int x = 0; x < kPieces; ++x)
      tma_load(to_q + x * kM * kSwizzleRowBytes, map_q, bars.full_q + 8 * slot, x * kSwizzleColumns, walk.m * kM, head, sequence);
    bulk_load(to_stats, stats, kStatsLse * 4, bars.full_q + 8 * slot);
    if (first) load_keys(sm + L.v, map_v, bars.full_v);
    first = false;
    mbar_wait(bars.empty_o + 8 * slot, ring.parity ^ 1);
    mbar_expect(bars.full_o + 8 * slot, L.q_bytes + (kStats - kStatsLse) * 4);
    for (int x = 0; x < kPieces; ++x)
      tma_load(to_o + x * kM * kSwizzleRowBytes, map_dout, bars.full_o + 8 * slot, x * kSwizzleColumns, walk.m * kM, head, sequence);
    bulk_load(to_stats + kStatsLse * 4, stats + kStatsLse, (kStats - kStatsLse) * 4, bars.full_o + 8 * slot);
  }
  if (first) load_keys(sm + L.v, map_v, bars.full_v);
}

// P^T = 2^(S^T c - lse) in place; `lse`: address of this lane's first value.
DEVICE void exponentials(float (&s)[32], float scale_log2, uint32_t lse) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    float l0, l1;
    load_shared2(l0, l1, lse + j * 32);
    s[4 * j] = ex2(fmaf(s[4 * j], scale_log2, -l0));
    s[4 * j + 1] = ex2(fmaf(s[4 * j + 1], scale_log2, -l1));
    s[4 * j + 2] = ex2(fmaf(s[4 * j + 2], scale_log2, -l0));
    s[4 * j + 3] = ex2(fmaf(s[4 * j + 3], scale_log2, -l1));
  }
}
// Sets to zero what no query of the tile sees; `first_key`: the first of this warpgroup's 64 keys.
template <bool Causal> DEVICE void mask_block(float (&p)[32], int first_key, int first_query, const BackwardArgs& a) {
  if (tile_needs_mask(Causal, first_key, 64, first_query, a.sq, a.sk)) {
    const int lane = lane_index(), key = first_key + threadIdx.x % kWarpGroup / kWarp * 16 + lane / 4, query = first_query + lane % 4 * 2;
    hide(p, first_query_of(Causal, key, a.sq, a.sk) - query, first_query_of(Causal, key + 8, a.sq, a.sk) - query);
  }
}

template <BackwardConfig C> __global__ void __launch_bounds__(kBackwardThreads, 1)
    attention_backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_dout,
                       const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                       const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv,
                       const __grid_constant__ BackwardArgs a) {
  using E = Element<C.half>;
  constexpr int D = C.head_dim, kM = kQueryRows;
  constexpr BackwardLayout L = backward_layout(D);
  constexpr int kN = L.key_rows, kBlocks = kN / (64 * kConsumers);  // blocks of 64 keys a warpgroup
  constexpr int kPieces = D / kPieceColumns;
  constexpr bool kShareTiles = kPieces == 1;  // dQ is one piece: the warpgroups take turns; else each takes its piece of every tile
  static_assert(kShareTiles || kPieces == kConsumers);

  extern __shared__ uint8_t raw[];
  const uint32_t sm = align_up(smem_address(raw), 1024);
  const TileBarriers<kQueryStages> bars(sm + L.barriers);
  const int wg = warpgroup_index();
  if (threadIdx.x == 0) bars.init();
  fence_async_shared();
  __syncthreads();
  launch_dependents();
  WorkItem work = backward_work(blockIdx.x, a.key_blocks, a.all_kv_heads, a.section);
  work.head += a.first_kv_head;

  if (wg == kConsumers) {
    registers_down<24>();
    if (threadIdx.x == kConsumers * kWarpGroup) load_tiles<C, L>(sm, bars, &map_q, &map_dout, &map_k, &map_v, a, work);
  } else {
    registers_up<240>();
    const int lane = lane_index(), t = threadIdx.x % kWarpGroup;
    float dk[kBlocks][D / 2], dv[kBlocks][D / 2], s[32], dp[32];
    float(&dq)[32] = dp;  // dQ of a tile takes the registers of its dP
    uint32_t p[16], ds[16];
    const uint32_t lane_stats = sm + L.stats + lane % 4 * 8;
    const uint32_t boxes = sm + L.dq + wg * kPiece * 4;
    constexpr int kNextBox = kConsumers * kPiece * 4;
    // Blocks of 64 keys go to the warpgroups in turn, so that under the diagonal both have work.
    auto key_row = [&](int b) { return (b * kConsumers + wg) * 64; };
    Ring<kQueryStages> ring;
    const int first_key = work.key_block * kN;
    QueryWalk<C.causal> walk(a, first_key, work.head);
    mbar_wait(bars.full_k, 0);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      fill(dk[b], 0.0f);
      fill(dv[b], 0.0f);
    }
    auto scores = [&](int b, int slot) {
      wgmma_fence();
      product_abt<E, D, kN, kM>(s, sm + L.k + key_row(b) * kSwizzleRowBytes, sm + L.q + slot * L.q_bytes);
      wgmma_commit();
    };
    // dP; in registers before: what it is added to.
    auto weight_gradients = [&](int b, uint32_t dout, bool accumulate) {
      wgmma_fence();
      product_abt<E, D, kN, kM>(dp, sm + L.v + key_row(b) * kSwizzleRowBytes, dout, accumulate);
      wgmma_commit();
    };
    auto weights = [&](int b, uint32_t lse) {
      exponentials(s, a.scale_log2, lse);
      mask_block<C.causal>(s, first_key + key_row(b), walk.m * kM, a);
      pack_all<E>(p, s);
    };
    auto value_gradient = [&](int b, uint32_t dout) {
      wgmma_fence();
      product_pb<E, kM, D>(dv[b], p, dout);
      wgmma_commit();
    };
    auto key_gradient = [&](int b, uint32_t q) {
      wgmma_fence();
      product_pb<E, kM, D>(dk[b], ds, q);
      wgmma_commit();
    };
    // dS is [keys][queries], K [keys][columns]: both MN-major.
    auto query_gradient = [&](uint32_t ds_tile, int piece) {
      const uint64_t da = descriptor(ds_tile), db = descriptor(sm + L.k + piece * kN * kSwizzleRowBytes);
      wgmma_fence();
#pragma unroll
      for (int block = 0; block < kN / 64; ++block)
#pragma unroll
        for (int ks = block * 4; ks < block * 4 + 4; ++ks)
          WgmmaShape<kPieceColumns>::template ss<E, 1, 1>(dq, da + mn_major_step(ks), db + mn_major_step(ks), ks > 0);
      wgmma_commit();
    };
    auto release = [&](uint32_t empty, int slot) {
      if (lane == 0) mbar_arrive(empty + 8 * slot);
    };
    int staged = -1;  // the tile whose dQ is staged
    int sent_box = 0;
    auto sum_of = [&](int block) {
      return a.dq_sum +
             (static_cast<int64_t>(block - a.first_kv_head * (a.heads / a.kv_heads) * a.query_tiles) * kPieces + (kShareTiles ? 0 : wg)) *
                 kPiece;
    };
    if constexpr (kShareTiles) {
      // The warpgroups take turns with dQ of a tile.
      mbar_wait(bars.full_v, 0);
#pragma unroll 1
      for (; walk.left > 0; walk.advance(a, first_key), ring.advance()) {
        const int slot = ring.slot;
        const uint32_t q = sm + L.q + slot * L.q_bytes, dout = sm + L.dout + slot * L.q_bytes, ds_tile = sm + L.ds + slot * L.ds_bytes;
        const uint32_t stats = lane_stats + slot * kStats * 4;
        mbar_wait(bars.full_q + 8 * slot, ring.parity);
        mbar_wait(bars.full_o + 8 * slot, ring.parity);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          scores(b, slot);
          weight_gradients(b, dout, false);
          wgmma_wait<1>();
          pin(s);
          if (b > 0) {
            pin(dk[b - 1]);
            pin(dv[b - 1]);
          }
          weights(b, stats);
          value_gradient(b, dout);
          wgmma_wait<1>();
          pin(dp);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            float d0, d1;
            load_shared2(d0, d1, stats + kStatsLse * 4 + j * 32);
            dp[4 * j] += d0;
            dp[4 * j + 1] += d1;
            dp[4 * j + 2] += d0;
            dp[4 * j + 3] += d1;
          }
          // There are no registers to keep P unrounded. bf16 multiplies the rounded pairs (fp16 could overflow in dP).
          if constexpr (!C.half) {
            pack_all<E>(ds, dp);
#pragma unroll
            for (int j = 0; j < 16; ++j) ds[j] = multiply2<E>(p[j], ds[j]);
          } else {
#pragma unroll
            for (int j = 0; j < 16; ++j) {
              dp[2 * j] *= unpack_low<E>(p[j]);
              dp[2 * j + 1] *= unpack_high<E>(p[j]);
            }
            pack_all<E>(ds, dp);
          }
          store_block(ds_tile + key_row(b) * kSwizzleRowBytes, ds);
          key_gradient(b, q);
          if (b + 1 < kBlocks) {
            wgmma_wait<1>();
            pin(dv[b]);
          }
        }
        fence_async_shared();
        if (t == 0) bulk_wait_read<0>();
        named_sync(kBarrierDs, kConsumers * kWarpGroup);
        if (t == 0 && staged >= 0) {
          bulk_reduce_add(sum_of(staged), boxes, kPiece * 4);
          bulk_commit();
        }
        staged = -1;
        if (slot == wg) {
          query_gradient(ds_tile, 0);
          wgmma_wait<0>();
          pin(dq);
          stage(boxes, dq);
          staged = walk.block;
        }
        wgmma_wait<0>();
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          pin(dk[b]);
          pin(dv[b]);
        }
        release(bars.empty_q, slot);
        release(bars.empty_o, slot);
      }
    } else {
      // Each warpgroup computes its piece of dQ. The piece is staged in shared memory; the next tile's barrier over dS also says that it is
      // complete, and then one thread sends it off as a bulk reduction: no barrier and no fence of its own.
      if (walk.left > 0) {
        mbar_wait(bars.full_q + 8 * ring.slot, ring.parity);
        scores(0, ring.slot);
      }
      mbar_wait(bars.full_v, 0);
#pragma unroll 1
      for (; walk.left > 0; walk.advance(a, first_key)) {
        const int slot = ring.slot;
        const uint32_t q = sm + L.q + slot * L.q_bytes, dout = sm + L.dout + slot * L.q_bytes, ds_tile = sm + L.ds + slot * L.ds_bytes;
        mbar_wait(bars.full_o + 8 * slot, ring.parity);
        start_from_columns(dp, lane_stats + slot * kStats * 4 + kStatsLse * 4);
        wgmma_wait<0>();
        pin(s);
        weight_gradients(0, dout, true);
        weights(0, lane_stats + slot * kStats * 4);
        value_gradient(0, dout);
        wgmma_wait<1>();
        pin(dp);
#pragma unroll
        for (int j = 0; j < 32; ++j) dp[j] *= s[j];
        pack_all<E>(ds, dp);
        store_block(ds_tile + key_row(0) * kSwizzleRowBytes, ds);
        fence_async_shared();
        key_gradient(0, q);
        if (t == 0) bulk_wait_read<0>();  // the box of two tiles ago, about to be written
        named_sync(kBarrierDs, kConsumers * kWarpGroup);
        if (t == 0 && staged >= 0) {
          bulk_reduce_add(sum_of(staged), boxes + (slot ^ 1) * kNextBox, kPiece * 4);
          bulk_commit();
        }
        query_gradient(ds_tile, wg);
        wgmma_wait<1>();
        pin(dk[0]);
        pin(dv[0]);
        release(bars.empty_q, slot);
        release(bars.empty_o, slot);
        ring.advance();
        if (walk.left > 1) mbar_wait(bars.full_q + 8 * ring.slot, ring.parity);
        scores(0, ring.slot);  // after the last tile: of stale data, not used
        wgmma_wait<1>();
        pin(dq);
        stage(boxes + slot * kNextBox, dq);
        staged = walk.block;
      }
      wgmma_wait<0>();
      pin(s);
      sent_box = ring.slot ^ 1;
    }
    if (staged >= 0) {
      fence_async_shared();
      named_sync(kBarrierStore + wg, kWarpGroup);
      if (t == 0) {
        bulk_reduce_add(sum_of(staged), boxes + sent_box * kNextBox, kPiece * 4);
        bulk_commit();
      }
    }

    // dV takes the place of V, dK that of K once nobody reads it. (A block of 64 keys is 64 rows of each piece.)
    named_sync(kBarrierDs, kConsumers * kWarpGroup);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int x = 0; x < kPieces; ++x) {
        const uint32_t rows = (x * kN + key_row(b)) * kSwizzleRowBytes;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          p[j] = pack<E>(dv[b][x * 32 + 2 * j], dv[b][x * 32 + 2 * j + 1]);
          ds[j] = pack<E>(dk[b][x * 32 + 2 * j] * a.scale, dk[b][x * 32 + 2 * j + 1] * a.scale);
        }
        store_block(sm + L.v + rows, p);
        store_block(sm + L.k + rows, ds);
      }
    fence_async_shared();
    named_sync(kBarrierStore + wg, kWarpGroup);
    if (t == 0) {
      const int kv_head = work.head % a.kv_heads, sequence = work.head / a.kv_heads;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int x = 0; x < kPieces; ++x) {
          const uint32_t rows = (x * kN + key_row(b)) * kSwizzleRowBytes;
          tma_store(&map_dv, sm + L.v + rows, x * kSwizzleColumns, first_key + key_row(b), kv_head, sequence);
          tma_store(&map_dk, sm + L.k + rows, x * kSwizzleColumns, first_key + key_row(b), kv_head, sequence);
        }
      bulk_commit();
      bulk_wait_read<0>();
    }
  }
}

}  // namespace flashgpt::attention::sm90
