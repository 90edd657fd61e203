// dQ = scale dS K on Hopper: the last step of the backward that stores dS^T (backward_wide.cuh, backward_stored.cuh). The workspace holds
// tiles of 64 keys x 64 queries as they lay in shared memory; all tiles that hold a visible pair have been written.
#pragma once
#include "attention/sm90/backward.cuh"

namespace flashgpt::attention::sm90 {

// dQ of 128 queries, each warpgroup one tile of 64; the ring brings 64 keys at a time.
template <BackwardConfig C> __global__ void __launch_bounds__(kBackwardThreads, 1)
    backward_product(const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_dq,
                     const __grid_constant__ BackwardArgs a) {
  using E = Element<C.half>;
  constexpr int D = C.head_dim, kPieces = D / kPieceColumns, kStages = product_stages(D), kStageBytes = product_stage_bytes(D);
  constexpr int kBlockBytes = 64 * kSwizzleRowBytes, kKBytes = kPieces * kBlockBytes;
  extern __shared__ uint8_t raw[];
  const uint32_t sm = align_up(smem_address(raw), 1024), full = sm + kStages * kStageBytes, empty = full + 8 * kStages;
  const int wg = warpgroup_index();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbar_init(full + 8 * s, 1);
      mbar_init(empty + 8 * s, 4 * kConsumers);
    }
    mbar_init_fence();
  }
  fence_async_shared();
  __syncthreads();
  launch_dependents();
  const int group = a.heads / a.kv_heads, query_blocks = ceil_div(a.query_tiles, kProductTiles);
  const WorkItem work = backward_work(blockIdx.x, query_blocks, a.all_kv_heads * group, a.section);
  const int first_tile = (query_blocks - 1 - work.key_block) * kProductTiles;  // causal: the last queries have the most keys
  const int all_head = a.first_kv_head * group + work.head, head = all_head % a.heads, sequence = all_head / a.heads;
  const int steps = larger(key_blocks_of_tile(C.causal, first_tile, a.query_tiles, a.sq, a.sk),
                           key_blocks_of_tile(C.causal, first_tile + 1, a.query_tiles, a.sq, a.sk));
  if (wg == kConsumers) {
    registers_down<24>();
    if (threadIdx.x == kConsumers * kWarpGroup) {
      wait_for_previous_kernel();
      const uint16_t* ds = a.ds + (static_cast<int64_t>(work.head) * ceil_div(a.sk, 64) * a.query_tiles + first_tile) * kDsTile;
      int counts[kProductTiles];
      for (int w = 0; w < kProductTiles; ++w) counts[w] = key_blocks_of_tile(C.causal, first_tile + w, a.query_tiles, a.sq, a.sk);
      Ring<kStages> ring;
      for (int i = 0; i < steps; ++i, ring.advance()) {
        const uint32_t to = sm + ring.slot * kStageBytes, bar = full + 8 * ring.slot;
        mbar_wait(empty + 8 * ring.slot, ring.parity ^ 1);
        mbar_expect(bar, kKBytes + ((i < counts[0]) + (i < counts[1])) * kDsTile * 2);
        for (int x = 0; x < kPieces; ++x) tma_load(to + x * kBlockBytes, &map_k, bar, x * kSwizzleColumns, i * 64, head / group, sequence);
        for (int w = 0; w < kProductTiles; ++w)
          if (i < counts[w])
            bulk_load(to + kKBytes + w * kDsTile * 2, ds + (static_cast<int64_t>(i) * a.query_tiles + w) * kDsTile, kDsTile * 2, bar);
      }
    }
  } else {
    registers_up<240>();
    const int lane = lane_index(), t = threadIdx.x % kWarpGroup;
    const int mine = key_blocks_of_tile(C.causal, first_tile + wg, a.query_tiles, a.sq, a.sk);
    float acc[D / 2];
    fill(acc, 0.0f);
    pin(acc);
    Ring<kStages> ring;
    int before = -1;
#pragma unroll 1
    for (int i = 0; i < mine; ++i, ring.advance()) {
      mbar_wait(full + 8 * ring.slot, ring.parity);
      const uint32_t stage = sm + ring.slot * kStageBytes;
      const uint64_t da = descriptor(stage + kKBytes + wg * kDsTile * 2), db = descriptor(stage, kBlockBytes);
      wgmma_fence();
#pragma unroll
      for (int ks = 0; ks < 64 / kProductK; ++ks)
        WgmmaShape<D>::template ss<E, 1, 1>(acc, da + mn_major_step(ks), db + mn_major_step(ks), 1);
      wgmma_commit();
      wgmma_wait<1>();
      if (before >= 0 && lane == 0) mbar_arrive(empty + 8 * before);
      before = ring.slot;
    }
    wgmma_wait<0>();
    pin(acc);
    if (before >= 0 && lane == 0) mbar_arrive(empty + 8 * before);
    for (int i = mine; i < steps; ++i, ring.advance()) {  // keys that only the other warpgroup's queries see
      mbar_wait(full + 8 * ring.slot, ring.parity);
      if (lane == 0) mbar_arrive(empty + 8 * ring.slot);
    }
    named_sync(kBarrierDs, kConsumers * kWarpGroup);  // all stages are read: dQ may take their place
    const uint32_t out = sm + wg * kPieces * kBlockBytes;
    uint32_t p[16];
#pragma unroll
    for (int x = 0; x < kPieces; ++x) {
#pragma unroll
      for (int j = 0; j < 16; ++j) p[j] = pack<E>(acc[x * 32 + 2 * j] * a.scale, acc[x * 32 + 2 * j + 1] * a.scale);
      store_block(out + x * kBlockBytes, p);
    }
    fence_async_shared();
    named_sync(kBarrierStore + wg, kWarpGroup);
    if (t == 0 && first_tile + wg < a.query_tiles) {
      for (int x = 0; x < kPieces; ++x)
        tma_store(&map_dq, out + x * kBlockBytes, x * kSwizzleColumns, (first_tile + wg) * kQueryRows, head, sequence);
      bulk_commit();
      bulk_wait_read<0>();
    }
  }
}

}  // namespace flashgpt::attention::sm90
