// mbarrier: the phase barrier of shared memory. Addresses are 32-bit, in the shared window.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// A phase completes after `arrivals` arrivals and once every expected byte has come.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes earlier writes through the generic proxy, mbarrier.init among them, visible to the asynchronous agents, TMA and
// the tensor core. Other threads still need a CTA barrier.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// One arrival, releasing what this thread did before it.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival that also makes the phase wait for `bytes` of asynchronous copies.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Returns once the phase of `parity` has completed, acquiring what its arrivals released. On a fresh barrier parity 1
// returns at once: the phase before the first counts as complete.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n\t"
        ".reg .pred complete;\n\t"
        "wait:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n\t"
        "@!complete bra wait;\n\t"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

}  // namespace fmha::ptx
