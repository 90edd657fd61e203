// Who waits for whom: mbarriers (count arrivals and bytes of copies, in shared memory), named barriers (between warpgroups of a block, four
// times cheaper), fences between ordinary accesses and the asynchronous units, the register budget of a warpgroup.
#pragma once
#include "core/tile/types.cuh"

namespace flashgpt::tile {

DEVICE uint32_t smem_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
DEVICE uint32_t align_up(uint32_t a, uint32_t to) { return (a + to - 1) & ~(to - 1); }

// An mbarrier is 8 bytes of shared memory, named by its address. A wait names the parity of the phase it waits for: the first phase is 0.
DEVICE void mbar_init(uint32_t bar, uint32_t arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals)); }
DEVICE void mbar_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbar_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
// Arrives and announces the bytes that copies will bring (whole boxes, clipped or not).
DEVICE void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEVICE bool mbar_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
  return done;
}
DEVICE void mbar_wait(uint32_t bar, uint32_t parity) {
  while (!mbar_try_wait(bar, parity)) {
  }
}

// The slot and the parity of a ring of `Stages` buffers, as one side walks it.
template <int Stages> struct Ring {
  int slot = 0;
  uint32_t parity = 0;
  DEVICE void advance() {
    if (++slot == Stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Named barriers, ids 0 to 15; 0 is __syncthreads. `threads` counts everybody who syncs or arrives and never changes for one id.
DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// Between ordinary stores to shared memory and the tensor cores or copies that read them: every storing thread, before the barrier.
DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers a thread of this warpgroup: multiples of 8, 24 to 256, the sum over warpgroups at most what the launch gave.
template <int R> DEVICE void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> DEVICE void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }

// Programmatic dependent launch: the next kernel may start; wait for what the previous ones wrote.
DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace flashgpt::tile
