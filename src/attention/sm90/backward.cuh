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
struct QueryWalk {
  int first, tiles, m, head, block, left;  // block: index of the tile in arrays over all heads
  DEVICE QueryWalk(const BackwardArgs& a, bool causal, int first_key, int kv_head_of_all) {
    const int group = a.heads / a.kv_heads;
    first = first_query_tile(causal, first_key, a.sq, a.sk);
    tiles = a.query_tiles;
    m = first;
    head = kv_head_of_all * group;  // of all query heads of all sequences
    block = head * tiles + first;
    left = group * larger(0, tiles - first);
  }
  DEVICE void advance() {
    ++block;
    --left;
    if (++m == tiles) {
      m = first;
      block += first;
      ++head;
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

// A 64 x 64 piece of dQ to shared memory, in fragment order.
DEVICE void stage(uint32_t box, const float (&dq)[32]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    store_shared4(box + (j * kWarpGroup + threadIdx.x % kWarpGroup) * 16, __float_as_uint(dq[4 * j]), __float_as_uint(dq[4 * j + 1]),
                  __float_as_uint(dq[4 * j + 2]), __float_as_uint(dq[4 * j + 3]));
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
  constexpr bool kPacked = (C.experiment & 2) && !C.half;

  extern __shared__ uint8_t raw[];
  const uint32_t sm = align_up(smem_address(raw), 1024), bars = sm + L.barriers;
  const uint32_t full_q = bars, full_o = bars + 8 * kQueryStages, empty_q = bars + 16 * kQueryStages, empty_o = bars + 24 * kQueryStages,
                 full_kv = bars + 32 * kQueryStages;
  const int wg = warpgroup_index();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kQueryStages; ++s) {
      mbar_init(full_q + 8 * s, 1);
      mbar_init(full_o + 8 * s, 1);
      mbar_init(empty_q + 8 * s, 4 * kConsumers);
      mbar_init(empty_o + 8 * s, 4 * kConsumers);
    }
    mbar_init(full_kv, 1);
    mbar_init_fence();
  }
  fence_async_shared();
  __syncthreads();
  launch_dependents();
  WorkItem work = backward_work(blockIdx.x, a.key_blocks, a.all_kv_heads, a.section);
  work.head += a.first_kv_head;
  const int first_key = work.key_block * kN;
  QueryWalk walk(a, C.causal, first_key, work.head);

  if (wg == kConsumers) {
    registers_down<24>();
    if (threadIdx.x == kConsumers * kWarpGroup) {
      const int kv_head = work.head % a.kv_heads, sequence = work.head / a.kv_heads;
      mbar_expect(full_kv, 2 * L.kv_bytes);
#pragma unroll
      for (int x = 0; x < kPieces; ++x) {
        tma_load(sm + L.k + x * kN * kSwizzleRowBytes, &map_k, full_kv, x * kSwizzleColumns, first_key, kv_head, sequence);
        tma_load(sm + L.v + x * kN * kSwizzleRowBytes, &map_v, full_kv, x * kSwizzleColumns, first_key, kv_head, sequence);
      }
      wait_for_previous_kernel();
      for (Ring<kQueryStages> ring; walk.left > 0; walk.advance(), ring.advance()) {
        const int head = walk.head - sequence * a.heads;
        const float* stats = a.stats + static_cast<int64_t>(walk.block) * kStats;
        const uint32_t stats_to = sm + L.stats + ring.slot * kStats * 4;
        const uint32_t to_q = sm + L.q + ring.slot * L.q_bytes, to_o = sm + L.dout + ring.slot * L.q_bytes;
        mbar_wait(empty_q + 8 * ring.slot, ring.parity ^ 1);
        mbar_expect(full_q + 8 * ring.slot, L.q_bytes + kStatsLse * 4);
#pragma unroll
        for (int x = 0; x < kPieces; ++x)
          tma_load(to_q + x * kM * kSwizzleRowBytes, &map_q, full_q + 8 * ring.slot, x * kSwizzleColumns, walk.m * kM, head, sequence);
        bulk_load(stats_to, stats, kStatsLse * 4, full_q + 8 * ring.slot);
        mbar_wait(empty_o + 8 * ring.slot, ring.parity ^ 1);
        mbar_expect(full_o + 8 * ring.slot, L.q_bytes + kStatsDelta * 4);
#pragma unroll
        for (int x = 0; x < kPieces; ++x)
          tma_load(to_o + x * kM * kSwizzleRowBytes, &map_dout, full_o + 8 * ring.slot, x * kSwizzleColumns, walk.m * kM, head, sequence);
        bulk_load(stats_to + kStatsLse * 4, stats + kStatsLse, kStatsDelta * 4, full_o + 8 * ring.slot);
      }
    }
  } else {
    registers_up<240>();
    const int lane = lane_index(), t = threadIdx.x % kWarpGroup;
    float dk[kBlocks][D / 2], dv[kBlocks][D / 2], s[32], dp[32];
    float(&dq)[32] = dp;  // dQ of a tile takes the registers of its dP
    uint32_t p[16], ds[16];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      fill(dk[b], 0.0f);
      fill(dv[b], 0.0f);
    }
    const int my_keys = wg * kBlocks * 64;  // of the tile
    const uint32_t lane_stats = sm + L.stats + lane % 4 * 8, lane_delta = sm + L.stats + kStatsLse * 4 + lane % 4 * 16;
    auto scores = [&](int b, int slot) {
      wgmma_fence();
      product_abt<E, D, kN, kM>(s, sm + L.k + (my_keys + b * 64) * kSwizzleRowBytes, sm + L.q + slot * L.q_bytes);
      wgmma_commit();
    };
    auto start_from_delta = [&](int slot) {
#pragma unroll
      for (int j = 0; j < 8; ++j) load_shared4(reinterpret_cast<float(&)[4]>(dp[4 * j]), lane_delta + slot * kStats * 4 + j * 64);
    };
    auto weight_gradients = [&](int b, uint32_t dout) {
      wgmma_fence();
      product_abt<E, D, kN, kM>(dp, sm + L.v + (my_keys + b * 64) * kSwizzleRowBytes, dout, true);
      wgmma_commit();
    };
    auto weights = [&](int b, int slot) {
      const uint32_t lse = lane_stats + slot * kStats * 4;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float l0, l1;
        load_shared2(l0, l1, lse + j * 32);
        s[4 * j] = ex2(fmaf(s[4 * j], a.scale_log2, -l0));
        s[4 * j + 1] = ex2(fmaf(s[4 * j + 1], a.scale_log2, -l1));
        s[4 * j + 2] = ex2(fmaf(s[4 * j + 2], a.scale_log2, -l0));
        s[4 * j + 3] = ex2(fmaf(s[4 * j + 3], a.scale_log2, -l1));
      }
      if (tile_needs_mask(C.causal, first_key, kN, walk.m * kM, a.sq, a.sk)) {
        const int key = first_key + my_keys + b * 64 + t / kWarp * 16 + lane / 4, first = walk.m * kM + lane % 4 * 2;
        hide(s, first_query_of(C.causal, key, a.sq, a.sk) - first, first_query_of(C.causal, key + 8, a.sq, a.sk) - first);
      }
      pack_all<E>(p, s);
    };
    auto score_gradients = [&] {
      if constexpr (kPacked) {
        pack_all<E>(ds, dp);
#pragma unroll
        for (int j = 0; j < 16; ++j) ds[j] = multiply2<E>(p[j], ds[j]);
      } else {
#pragma unroll
        for (int j = 0; j < 16; ++j) {  // two blocks of keys leave no registers to keep P unrounded
          dp[2 * j] *= kBlocks > 1 ? unpack_low<E>(p[j]) : s[2 * j];
          dp[2 * j + 1] *= kBlocks > 1 ? unpack_high<E>(p[j]) : s[2 * j + 1];
        }
        pack_all<E>(ds, dp);
      }
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
    // dS is [keys][queries], K [keys][columns]: both MN-major. `from`: where in K the 64 columns and the keys of `ds_rows` start.
    auto query_gradient = [&](uint32_t ds_rows, uint32_t from) {
      constexpr int kDepth = kShareTiles ? 64 * kBlocks : kN;
      const uint64_t da = descriptor(ds_rows), db = descriptor(sm + L.k + from);
      wgmma_fence();
#pragma unroll
      for (int ks = 0; ks < kDepth / kProductK; ++ks)
        WgmmaShape<kPieceColumns>::template ss<E, 1, 1>(dq, da + mn_major_step(ks), db + mn_major_step(ks), ks > 0);
      wgmma_commit();
    };
    auto release = [&](uint32_t empty, int slot) {
      if (lane == 0) mbar_arrive(empty + 8 * slot);
    };
    mbar_wait(full_kv, 0);
    Ring<kQueryStages> ring;
    if constexpr (kShareTiles) {
      // Each warpgroup contracts dQ over its own 128 keys: twice the reductions, but the warpgroups never wait for each other.
      const uint32_t boxes = sm + L.dq + wg * kPiece * 4, ds_tile = sm + L.ds + my_keys * kSwizzleRowBytes;
      float *sent = nullptr, *ready = nullptr;
      fill(dq, 0.0f);
      pin(dq);
#pragma unroll 1
      for (; walk.left > 0; walk.advance(), ring.advance()) {
        const int slot = ring.slot;
        const uint32_t q = sm + L.q + slot * L.q_bytes, dout = sm + L.dout + slot * L.q_bytes;
        mbar_wait(full_q + 8 * slot, ring.parity);
        scores(0, slot);
        stage(boxes + (slot ^ 1) * kConsumers * kPiece * 4, dq);  // before the first tile: of nothing, not sent
        sent = ready;
        mbar_wait(full_o + 8 * slot, ring.parity);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          start_from_delta(slot);
          weight_gradients(b, dout);
          wgmma_wait<1>();
          pin(s);
          weights(b, slot);
          value_gradient(b, dout);
          wgmma_wait<1>();
          pin(dp);
          score_gradients();
          store_block(ds_tile + b * 64 * kSwizzleRowBytes, ds);
          if (b + 1 < kBlocks) {
            key_gradient(b, q);
            wgmma_wait<1>();
            pin(dv[b]);
            scores(b + 1, slot);
          }
        }
        fence_async_shared();
        key_gradient(kBlocks - 1, q);
        if (t == 0) bulk_wait_read<0>();
        named_sync(kBarrierStore + wg, kWarpGroup);
        if (t == 0 && sent) {
          bulk_reduce_add(sent, boxes + (slot ^ 1) * kConsumers * kPiece * 4, kPiece * 4);
          bulk_commit();
        }
        query_gradient(ds_tile, my_keys * kSwizzleRowBytes);
        wgmma_wait<0>();
        pin(dq);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          pin(dk[b]);
          pin(dv[b]);
        }
        release(empty_q, slot);
        release(empty_o, slot);
        ready = a.dq_sum + static_cast<int64_t>(walk.block) * kPiece;
      }
      if (ready) {
        const uint32_t box = boxes + (ring.slot ^ 1) * kConsumers * kPiece * 4;
        stage(box, dq);
        fence_async_shared();
        named_sync(kBarrierStore + wg, kWarpGroup);
        if (t == 0) {
          bulk_reduce_add(ready, box, kPiece * 4);
          bulk_commit();
        }
      }
    } else {
      // dQ of a tile is staged in shared memory; the next tile's barrier over dS also says that it is complete, and then one thread sends
      // it off as a bulk reduction: no barrier and no fence of its own.
      const uint32_t boxes = sm + L.dq + wg * kPiece * 4;
      float* sent = nullptr;
      if (walk.left > 0) {
        mbar_wait(full_q, 0);
        scores(0, 0);
      }
#pragma unroll 1
      for (; walk.left > 0; walk.advance()) {
        const int slot = ring.slot;
        const uint32_t q = sm + L.q + slot * L.q_bytes, dout = sm + L.dout + slot * L.q_bytes, ds_tile = sm + L.ds + slot * L.ds_bytes;
        mbar_wait(full_o + 8 * slot, ring.parity);
        start_from_delta(slot);
        wgmma_wait<0>();
        pin(s);
        weight_gradients(0, dout);
        weights(0, slot);
        value_gradient(0, dout);
        wgmma_wait<1>();
        pin(dp);
        score_gradients();
        store_block(ds_tile + my_keys * kSwizzleRowBytes, ds);
        fence_async_shared();
        key_gradient(0, q);
        if (t == 0) bulk_wait_read<0>();  // the box of two tiles ago, about to be written
        named_sync(kBarrierDs, kConsumers * kWarpGroup);
        if (t == 0 && sent) {
          bulk_reduce_add(sent, boxes + (slot ^ 1) * kPieces * kPiece * 4, kPiece * 4);
          bulk_commit();
        }
        query_gradient(ds_tile, wg * kN * kSwizzleRowBytes);
        wgmma_wait<1>();
        pin(dk[0]);
        pin(dv[0]);
        release(empty_q, slot);
        release(empty_o, slot);
        ring.advance();
        if (walk.left > 1) mbar_wait(full_q + 8 * ring.slot, ring.parity);
        scores(0, ring.slot);  // after the last tile: of stale data, not used
        wgmma_wait<1>();
        pin(dq);
        stage(boxes + slot * kPieces * kPiece * 4, dq);
        sent = a.dq_sum + (static_cast<int64_t>(walk.block) * kPieces + wg) * kPiece;
      }
      wgmma_wait<0>();
      pin(s);
      if (sent) {
        fence_async_shared();
        named_sync(kBarrierStore + wg, kWarpGroup);
        if (t == 0) {
          bulk_reduce_add(sent, boxes + (ring.slot ^ 1) * kPieces * kPiece * 4, kPiece * 4);
          bulk_commit();
        }
      }
    }

    // dV takes the place of V (only this warpgroup read these rows), dK that of K.
    named_sync(kBarrierDs, kConsumers * kWarpGroup);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int x = 0; x < kPieces; ++x) {
        const uint32_t rows = (x * kN + my_keys + b * 64) * kSwizzleRowBytes;
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
          const int row = my_keys + b * 64;
          const uint32_t rows = (x * kN + row) * kSwizzleRowBytes;
          tma_store(&map_dv, sm + L.v + rows, x * kSwizzleColumns, first_key + row, kv_head, sequence);
          tma_store(&map_dk, sm + L.k + rows, x * kSwizzleColumns, first_key + row, kv_head, sequence);
        }
      bulk_commit();
      bulk_wait_read<0>();
    }
  }
}

}  // namespace flashgpt::attention::sm90
