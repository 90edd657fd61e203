// Attention backward for head dim 128 on Hopper without any reduction: like backward_wide.cuh, dS^T goes to a workspace and
// backward_product multiplies it with K. Deterministic, and the faster way for short sequences, where zeroing, adding and rounding fp32
// sums of dQ costs more than the workspace. The two warpgroups of a block own 64 keys each and share nothing but the tiles of Q and dO:
// they never wait for each other.
#pragma once
#include "attention/sm90/backward.cuh"

namespace flashgpt::attention::sm90 {

template <BackwardConfig C> __global__ void __launch_bounds__(kBackwardThreads, 1)
    backward_stored(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_dout,
                    const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                    const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv,
                    const __grid_constant__ BackwardArgs a) {
  using E = Element<C.half>;
  constexpr BackwardLayout L = stored_layout();
  constexpr int D = 128, kM = kQueryRows, kN = 128, kPieces = 2, kStages = kStoredStages;
  extern __shared__ uint8_t raw[];
  const uint32_t sm = align_up(smem_address(raw), 1024);
  const TileBarriers<kStages> bars(sm + L.barriers);
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
    float dk[D / 2], dv[D / 2], s[32], dp[32];
    uint32_t p[16], ds[16];
    fill(dk, 0.0f);
    fill(dv, 0.0f);
    pin(dk);
    pin(dv);
    const int first_key = work.key_block * kN, my_key = first_key + wg * 64, my_rows = wg * 64 * kSwizzleRowBytes;
    const uint32_t lane_stats = sm + L.stats + lane % 4 * 8, boxes = sm + L.ds + wg * kDsTile * 2;
    constexpr int kNextBox = kConsumers * kDsTile * 2;
    QueryWalk<C.causal> walk(a, my_key, work.head);
    // The upper 64 keys may start one tile later than the block.
    const int skipped = smaller(walk.m, a.query_tiles) - smaller(first_query_tile(C.causal, first_key, a.sq, a.sk), a.query_tiles);
    Ring<kStages> ring;
    auto release = [&](int slot) {
      if (lane == 0) {
        mbar_arrive(bars.empty_q + 8 * slot);
        mbar_arrive(bars.empty_o + 8 * slot);
      }
    };
    auto skip = [&] {
      for (int i = 0; i < skipped; ++i) {
        mbar_wait(bars.full_q + 8 * ring.slot, ring.parity);
        mbar_wait(bars.full_o + 8 * ring.slot, ring.parity);
        release(ring.slot);
        ring.advance();
      }
    };
    auto scores = [&](int slot) {
      wgmma_fence();
      product_abt<E, D, kN, kM>(s, sm + L.k + my_rows, sm + L.q + slot * L.q_bytes);
      wgmma_commit();
    };
    mbar_wait(bars.full_k, 0);
    if (walk.left > 0) {
      if (C.causal) skip();
      mbar_wait(bars.full_q + 8 * ring.slot, ring.parity);
      scores(ring.slot);
    } else if (C.causal) {
      for (int group = a.heads / a.kv_heads; group > 0; --group) skip();
    }
    mbar_wait(bars.full_v, 0);
    int box = 0;
#pragma unroll 1
    while (walk.left > 0) {
      const int slot = ring.slot;
      const uint32_t stats = lane_stats + slot * kStats * 4, dout = sm + L.dout + slot * L.q_bytes;
      mbar_wait(bars.full_o + 8 * slot, ring.parity);
      start_from_columns(dp, stats + kStatsLse * 4);
      wgmma_wait<0>();
      pin(s);
      wgmma_fence();
      product_abt<E, D, kN, kM>(dp, sm + L.v + my_rows, dout, true);
      wgmma_commit();
      exponentials(s, a.scale_log2, stats);
      mask_block<C.causal>(s, my_key, walk.m * kM, a);
      pack_all<E>(p, s);
      wgmma_fence();
      product_pb<E, kM, D>(dv, p, dout);
      wgmma_commit();
      wgmma_wait<1>();
      pin(dp);
#pragma unroll
      for (int j = 0; j < 32; ++j) dp[j] *= s[j];
      pack_all<E>(ds, dp);
      store_block(boxes + box * kNextBox, ds);
      fence_async_shared();
      wgmma_fence();
      product_pb<E, kM, D>(dk, ds, sm + L.q + slot * L.q_bytes);
      wgmma_commit();
      // dS^T of this tile to [head][block of 64 keys][tile].
      const int64_t tile =
          (static_cast<int64_t>(walk.block / a.query_tiles - a.first_kv_head * (a.heads / a.kv_heads)) * ceil_div(a.sk, 64) + my_key / 64) *
              a.query_tiles +
          walk.m;
      ring.advance();
      walk.advance(a, my_key);
      if (C.causal && skipped && walk.left > 0 && walk.m == first_query_tile(true, my_key, a.sq, a.sk)) skip();
      if (walk.left > 0) mbar_wait(bars.full_q + 8 * ring.slot, ring.parity);
      scores(ring.slot);                // after the last tile: of stale data, not used
      if (t == 0) bulk_wait_read<0>();  // the other box: behind the barrier everybody may write it
      named_sync(kBarrierStore + wg, kWarpGroup);
      if (t == 0 && my_key < a.sk) {
        bulk_store(a.ds + tile * kDsTile, boxes + box * kNextBox, kDsTile * 2);
        bulk_commit();
      }
      box ^= 1;
      wgmma_wait<1>();
      pin(dk);
      pin(dv);
      release(slot);
    }
    wgmma_wait<0>();
    pin(s);

    // dV takes the place of V, dK that of K: only this warpgroup reads these rows.
    named_sync(kBarrierStore + wg, kWarpGroup);
#pragma unroll
    for (int x = 0; x < kPieces; ++x) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        p[j] = pack<E>(dv[x * 32 + 2 * j], dv[x * 32 + 2 * j + 1]);
        ds[j] = pack<E>(dk[x * 32 + 2 * j] * a.scale, dk[x * 32 + 2 * j + 1] * a.scale);
      }
      store_block(sm + L.v + x * kN * kSwizzleRowBytes + my_rows, p);
      store_block(sm + L.k + x * kN * kSwizzleRowBytes + my_rows, ds);
    }
    fence_async_shared();
    named_sync(kBarrierStore + wg, kWarpGroup);
    if (t == 0) {
      const int kv_head = work.head % a.kv_heads, sequence = work.head / a.kv_heads;
#pragma unroll
      for (int x = 0; x < kPieces; ++x) {
        tma_store(&map_dv, sm + L.v + x * kN * kSwizzleRowBytes + my_rows, x * kSwizzleColumns, my_key, kv_head, sequence);
        tma_store(&map_dk, sm + L.k + x * kN * kSwizzleRowBytes + my_rows, x * kSwizzleColumns, my_key, kv_head, sequence);
      }
      bulk_commit();
      bulk_wait_read<0>();
    }
  }
}

}  // namespace flashgpt::attention::sm90
