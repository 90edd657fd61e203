// Attention backward for head dim 256 on Hopper, where adding dQ to memory for every 64 keys would cost more than everything else:
//
//   backward_wide     a block of threads owns 64 keys; dK, dV as in backward.cuh, dS^T goes to a workspace (16 bits a pair)
//   backward_product  dQ = scale dS K, a plain product over the workspace. No reduction anywhere: the same bits in every run.
//
// backward_wide splits the work by kind, so that each warpgroup holds one 64 x 256 accumulator: warpgroup 0 computes S, P and dV, warpgroup
// 1 dP, dS and dK; P passes through shared memory. The next tile's S (dP) is in flight while dV (dK) is finished.
#pragma once
#include "attention/sm90/backward.cuh"

namespace flashgpt::attention::sm90 {

constexpr int kWidePieces = 4;  // of 64 columns
constexpr int kBarrierPFull = 1, kBarrierPEmpty = 2, kBarrierDsFull = 3, kBarrierRows = 4, kBarrierEnd = 6;

template <class E> DEVICE void accumulate_wide(float (&acc)[128], const uint32_t (&p)[16], uint32_t b) {
  wgmma_fence();
  product_pb<E, kQueryRows, 256>(acc, p, b);
  wgmma_commit();
}

template <BackwardConfig C> __global__ void __launch_bounds__(kBackwardThreads, 1)
    backward_wide(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_dout,
                  const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                  const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv,
                  const __grid_constant__ BackwardArgs a) {
  using E = Element<C.half>;
  constexpr WideLayout L = wide_layout();
  constexpr int D = 256, kM = kQueryRows, kN = 64, kBlockBytes = 64 * kSwizzleRowBytes;
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
  QueryWalk<C.causal> walk(a, first_key, work.head);

  if (wg == kConsumers) {
    registers_down<24>();
    if (threadIdx.x == kConsumers * kWarpGroup) {
      const int kv_head = work.head % a.kv_heads, sequence = work.head / a.kv_heads;
      mbar_expect(full_kv, 2 * L.tile_bytes);
      for (int x = 0; x < kWidePieces; ++x)
        tma_load(sm + L.k + x * kBlockBytes, &map_k, full_kv, x * kSwizzleColumns, first_key, kv_head, sequence);
      for (int x = 0; x < kWidePieces; ++x)
        tma_load(sm + L.v + x * kBlockBytes, &map_v, full_kv, x * kSwizzleColumns, first_key, kv_head, sequence);
      wait_for_previous_kernel();
      for (Ring<kQueryStages> ring; walk.left > 0; walk.advance(a, first_key), ring.advance()) {
        const int head = walk.block / a.query_tiles - sequence * a.heads;
        const float* stats = a.stats + static_cast<int64_t>(walk.block) * kStats;
        const uint32_t stats_to = sm + L.stats + ring.slot * kStats * 4;
        const uint32_t to_q = sm + L.q + ring.slot * L.tile_bytes, to_o = sm + L.dout + ring.slot * L.tile_bytes;
        mbar_wait(empty_q + 8 * ring.slot, ring.parity ^ 1);
        mbar_expect(full_q + 8 * ring.slot, L.tile_bytes + kStatsLse * 4);
        for (int x = 0; x < kWidePieces; ++x)
          tma_load(to_q + x * kBlockBytes, &map_q, full_q + 8 * ring.slot, x * kSwizzleColumns, walk.m * kM, head, sequence);
        bulk_load(stats_to, stats, kStatsLse * 4, full_q + 8 * ring.slot);
        mbar_wait(empty_o + 8 * ring.slot, ring.parity ^ 1);
        mbar_expect(full_o + 8 * ring.slot, L.tile_bytes + (kStats - kStatsLse) * 4);
        for (int x = 0; x < kWidePieces; ++x)
          tma_load(to_o + x * kBlockBytes, &map_dout, full_o + 8 * ring.slot, x * kSwizzleColumns, walk.m * kM, head, sequence);
        bulk_load(stats_to + kStatsLse * 4, stats + kStatsLse, (kStats - kStatsLse) * 4, full_o + 8 * ring.slot);
      }
    }
  } else {
    registers_up<240>();
    const int lane = lane_index(), t = threadIdx.x % kWarpGroup;
    float acc[128], s[32];  // dV or dK; S or dP
    uint32_t p[16];         // P or dS
    fill(acc, 0.0f);
    const uint32_t p_box = sm + L.p + t * 16;
    auto release = [&](uint32_t empty, int slot) {
      if (lane == 0) mbar_arrive(empty + 8 * slot);
    };
    mbar_wait(full_kv, 0);
    Ring<kQueryStages> ring;
    if (wg == 0) {
      const uint32_t lane_lse = sm + L.stats + lane % 4 * 8;
      auto scores = [&](int slot) {
        wgmma_fence();
        product_abt<E, D, kN, kM>(s, sm + L.k, sm + L.q + slot * L.tile_bytes);
        wgmma_commit();
      };
      if (walk.left > 0) {
        mbar_wait(full_q, 0);
        scores(0);
        wgmma_wait<0>();
        pin(s);
      }
      bool first = true;
#pragma unroll 1
      for (; walk.left > 0; walk.advance(a, first_key)) {
        const int slot = ring.slot;
        const uint32_t lse = lane_lse + slot * kStats * 4;
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
          const int key = first_key + t / kWarp * 16 + lane / 4, query = walk.m * kM + lane % 4 * 2;
          hide(s, first_query_of(C.causal, key, a.sq, a.sk) - query, first_query_of(C.causal, key + 8, a.sq, a.sk) - query);
        }
        pack_all<E>(p, s);
        if (!first) named_sync(kBarrierPEmpty, kConsumers * kWarpGroup);
        first = false;
#pragma unroll
        for (int j = 0; j < 4; ++j) store_shared4(p_box + j * kWarpGroup * 16, p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3]);
        named_arrive(kBarrierPFull, kConsumers * kWarpGroup);
        mbar_wait(full_o + 8 * slot, ring.parity);
        accumulate_wide<E>(acc, p, sm + L.dout + slot * L.tile_bytes);
        ring.advance();
        if (walk.left > 1) mbar_wait(full_q + 8 * ring.slot, ring.parity);
        scores(ring.slot);  // after the last tile: of stale data, not used
        wgmma_wait<1>();
        pin(acc);
        release(empty_q, slot);
        release(empty_o, slot);
        wgmma_wait<0>();
        pin(s);
      }
    } else {
      const uint32_t lane_delta = sm + L.stats + kStatsLse * 4 + lane % 4 * 8;
      auto gradients = [&](int slot) {
        start_from_columns(s, lane_delta + slot * kStats * 4);
        wgmma_fence();
        product_abt<E, D, kN, kM>(s, sm + L.v, sm + L.dout + slot * L.tile_bytes, true);
        wgmma_commit();
      };
      if (walk.left > 0) {
        mbar_wait(full_o, 0);
        gradients(0);
        wgmma_wait<0>();
        pin(s);
      }
      const int group = a.heads / a.kv_heads;
      uint32_t ds = sm + L.ds;
#pragma unroll 1
      for (; walk.left > 0; walk.advance(a, first_key)) {
        const int slot = ring.slot;
        if (t == 0) bulk_wait_read<1>();
        named_sync(kBarrierPFull, kConsumers * kWarpGroup);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float w[4];
          load_shared4(w, p_box + j * kWarpGroup * 16);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint32_t pair = __float_as_uint(w[i]);
            p[4 * j + i] = pack<E>(unpack_low<E>(pair) * s[8 * j + 2 * i], unpack_high<E>(pair) * s[8 * j + 2 * i + 1]);
          }
        }
        if (walk.left > 1) named_arrive(kBarrierPEmpty, kConsumers * kWarpGroup);
        store_block(ds, p);
        fence_async_shared();
        mbar_wait(full_q + 8 * slot, ring.parity);
        accumulate_wide<E>(acc, p, sm + L.q + slot * L.tile_bytes);
        named_sync(kBarrierDsFull, kWarpGroup);
        if (t == 0) {
          const int64_t tile =
              (static_cast<int64_t>(walk.block / a.query_tiles - a.first_kv_head * group) * a.key_blocks + work.key_block) * a.query_tiles +
              walk.m;
          bulk_store(a.ds + tile * kDsTile, ds, kDsTile * 2);
          bulk_commit();
        }
        ds = sm + L.ds + (ring.slot ^ 1) * kDsTile * 2;
        ring.advance();
        if (walk.left > 1) mbar_wait(full_o + 8 * ring.slot, ring.parity);
        gradients(ring.slot);
        wgmma_wait<1>();
        pin(acc);
        release(empty_q, slot);
        release(empty_o, slot);
        wgmma_wait<0>();
        pin(s);
      }
    }

    // dV takes the place of V, dK that of K, once nobody reads them. (A barrier of its own: the last arrival for P may still wait for its
    // reader.)
    named_sync(kBarrierEnd, kConsumers * kWarpGroup);
    const uint32_t out = sm + (wg ? L.k : L.v);
    const float scale = wg ? a.scale : 1.0f;
#pragma unroll
    for (int x = 0; x < kWidePieces; ++x) {
#pragma unroll
      for (int j = 0; j < 16; ++j) p[j] = pack<E>(acc[x * 32 + 2 * j] * scale, acc[x * 32 + 2 * j + 1] * scale);
      store_block(out + x * kBlockBytes, p);
    }
    fence_async_shared();
    named_sync(kBarrierRows + wg, kWarpGroup);
    if (t == 0) {
      const int kv_head = work.head % a.kv_heads, sequence = work.head / a.kv_heads;
      for (int x = 0; x < kWidePieces; ++x)
        tma_store(wg ? &map_dk : &map_dv, out + x * kBlockBytes, x * kSwizzleColumns, first_key, kv_head, sequence);
      bulk_commit();
      bulk_wait_read<0>();
    }
  }
}

}  // namespace flashgpt::attention::sm90
