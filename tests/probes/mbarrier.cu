// Scripts of mbarrier operations, run by one thread; after each step: both parities tested, the last state tested, and
// the pending count in it. Two interpreters, so that rarer operations do not hide the common ones from a machine that
// lacks them.
#include <cstdint>

enum Op { init, arrive, expect_tx, complete_tx, arrive_expect_tx, arrive_no_complete, drop, drop_expect_tx, drop_no_complete };

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ uint32_t test_parity(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

__device__ uint32_t test_state(uint32_t barrier, uint64_t state) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "l"(state)
                 : "memory");
    return done;
}

__device__ bool common(uint32_t op, uint32_t barrier, uint32_t x, uint64_t& state) {
    switch (op) {
        case init: asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(x) : "memory"); return false;
        case arrive:
            asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(x) : "memory");
            return true;
        case expect_tx:
            asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(x) : "memory");
            return false;
        case complete_tx:
            asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(x) : "memory");
            return false;
        case arrive_expect_tx:
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(x) : "memory");
            return true;
        default: return false;
    }
}

__device__ bool rare(uint32_t op, uint32_t barrier, uint32_t x, uint64_t& state) {
    switch (op) {
        case arrive_no_complete:
            asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(x) : "memory");
            return true;
        case drop:
            asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(x) : "memory");
            return true;
        case drop_expect_tx:
            asm volatile("mbarrier.arrive_drop.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(x) : "memory");
            return true;
        case drop_no_complete:
            asm volatile("mbarrier.arrive_drop.noComplete.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(barrier), "r"(x) : "memory");
            return true;
        default: return common(op, barrier, x, state);
    }
}

__device__ uint32_t pending_count(uint64_t state) {
    uint32_t n;
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(state));
    return n;
}

#define SCRIPT(NAME, STEP, STATES)                                                          \
    extern "C" __global__ void NAME(const uint32_t* script, uint32_t steps, uint32_t* out) { \
        __shared__ uint64_t memory;                                                         \
        const uint32_t barrier = shared_address(&memory);                                   \
        uint64_t state = 0;                                                                 \
        bool have = false;                                                                  \
        for (uint32_t i = 0; i < steps; ++i) {                                              \
            have = STEP(script[2 * i], barrier, script[2 * i + 1], state) || have;          \
            out[4 * i + 0] = test_parity(barrier, 0);                                       \
            out[4 * i + 1] = test_parity(barrier, 1);                                       \
            if (STATES && have) {                                                           \
                out[4 * i + 2] = test_state(barrier, state);                                \
                out[4 * i + 3] = pending_count(state);                                      \
            }                                                                               \
        }                                                                                   \
    }
SCRIPT(common_steps, common, false)
SCRIPT(common_states, common, true)
SCRIPT(rare_states, rare, true)
