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
  constexpr BackwardLayout L = wide_layout();
  constexpr int D = 256, kM = kQueryRows, kN = 64, kBlockBytes = 64 * kSwizzleRowBytes;
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
    float acc[128], s[32];  // dV or dK; S or dP
    uint32_t p[16];         // P or dS
    fill(acc, 0.0f);
    const uint32_t p_box = sm + L.dq + t * 16;
    auto release = [&](uint32_t empty, int slot) {
      if (lane == 0) mbar_arrive(empty + 8 * slot);
    };
    const int first_key = work.key_block * kN;
    QueryWalk<C.causal> walk(a, first_key, work.head);
    mbar_wait(wg ? bars.full_v : bars.full_k, 0);
    Ring<kQueryStages> ring;
    if (wg == 0) {
      const uint32_t lane_lse = sm + L.stats + lane % 4 * 8;
      auto scores = [&](int slot) {
        wgmma_fence();
        product_abt<E, D, kN, kM>(s, sm + L.k, sm + L.q + slot * L.q_bytes);
        wgmma_commit();
      };
      if (walk.left > 0) {
        mbar_wait(bars.full_q, 0);
        scores(0);
        wgmma_wait<0>();
        pin(s);
      }
      bool first = true;
#pragma unroll 1
      for (; walk.left > 0; walk.advance(a, first_key)) {
        const int slot = ring.slot;
        const uint32_t lse = lane_lse + slot * kStats * 4;
        exponentials(s, a.scale_log2, lse);
        mask_block<C.causal>(s, first_key, walk.m * kM, a);
        pack_all<E>(p, s);
        if (!first) named_sync(kBarrierPEmpty, kConsumers * kWarpGroup);
        first = false;
#pragma unroll
        for (int j = 0; j < 4; ++j) store_shared4(p_box + j * kWarpGroup * 16, p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3]);
        named_arrive(kBarrierPFull, kConsumers * kWarpGroup);
        mbar_wait(bars.full_o + 8 * slot, ring.parity);
        accumulate_wide<E>(acc, p, sm + L.dout + slot * L.q_bytes);
        ring.advance();
        if (walk.left > 1) mbar_wait(bars.full_q + 8 * ring.slot, ring.parity);
        scores(ring.slot);  // after the last tile: of stale data, not used
        wgmma_wait<1>();
        pin(acc);
        release(bars.empty_q, slot);
        release(bars.empty_o, slot);
        wgmma_wait<0>();
        pin(s);
      }
    } else {
      const uint32_t lane_delta = sm + L.stats + kStatsLse * 4 + lane % 4 * 8;
      auto gradients = [&](int slot) {
        start_from_columns(s, lane_delta + slot * kStats * 4);
        wgmma_fence();
        product_abt<E, D, kN, kM>(s, sm + L.v, sm + L.dout + slot * L.q_bytes, true);
        wgmma_commit();
      };
      if (walk.left > 0) {
        mbar_wait(bars.full_o, 0);
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
        mbar_wait(bars.full_q + 8 * slot, ring.parity);
        accumulate_wide<E>(acc, p, sm + L.q + slot * L.q_bytes);
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
        if (walk.left > 1) mbar_wait(bars.full_o + 8 * ring.slot, ring.parity);
        gradients(ring.slot);
        wgmma_wait<1>();
        pin(acc);
        release(bars.empty_q, slot);
        release(bars.empty_o, slot);
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
