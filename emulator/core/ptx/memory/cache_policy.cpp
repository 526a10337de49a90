// Cache policies (PTX ISA 9.7.9.18): whether an operand is one. decode/policies.py has the fields.
#include "isa/handlers.hpp"
#include "machine/machine.hpp"

namespace ptxm {

namespace {

constexpr u64 kBelowPriorities = (1ull << 56) - 1, kBelowFraction = (1ull << 52) - 1, kBelowBlocks = (1ull << 37) - 1;

// What createpolicy makes, and the access properties of libcu++, which may hint at L1 and at sectors as well.
bool is_policy(u64 bits) {
    if (bits >> 63) return false;
    switch (bits >> 59 & 3) {
        case 0: return !(bits & kBelowPriorities);
        case 2: return !(bits & kBelowFraction);
        case 3: return !(bits & kBelowBlocks) && !(bits >> 51 & 1);
        default: return false;
    }
}

Flow cache_policy(Warp& w, const Inst& i, u32 mask) {
    const u64* policy = w.reg<u64>(w.ops(i)[0]);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1) || is_policy(policy[l])) continue;
        machine_of(w).report_strict(
            &w, "cache-policy",
            format("lane %u names 0x%016llx, which is no cache policy", l, static_cast<unsigned long long>(policy[l])),
            w.pc());
        break;
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_cache_policy(X) \
    X(cache_policy, control, cache_policy)
// clang-format on

Handler bind_cache_policy(const InstRecord& r) {
    return static_cast<Op>(r.op) == Op::cache_policy ? cache_policy : nullptr;
}

}  // namespace ptxm
