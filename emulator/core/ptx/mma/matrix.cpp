// Checks shared by the matrix instructions.
#include "ptx/mma/matrix.hpp"

#include "machine/addresses.hpp"

namespace ptxm {
void need_full_warp(u32 mask, const char* what) {
    if (mask != kFullMask)
        throw Fault("partial-warp",
                    format("%s executed by lanes 0x%08x: it needs all 32 lanes of the warp", what, mask));
}

u32 own_shared(Warp& w, u64 address, bool generic, u32 size, const char* what) {
    // ptxas takes the low half of a generic address here, so that a shared one does as well; a register of 32 bits has
    // nothing else.
    if (generic && address >> 32) {
        if ((address & kWindowMask) != kSharedWindow)
            throw Fault("address-space", format("%s at generic address 0x%llx, which is not in shared memory", what,
                                                (unsigned long long)address));
        address &= ~kWindowMask;
    }
    const u64 own = static_cast<u32>(address) - (u64{w.cta->rank} << kSharedRankShift);
    if (own >= kSharedStart && own <= kSharedOffsetMask && own + size <= w.cta->shared.size())
        return static_cast<u32>(own);
    const SharedRef ref = resolve_shared(w, static_cast<u32>(address), size, what);
    if (ref.cta != w.cta)
        throw Fault("shared-out-of-bounds",
                    format("%s at shared 0x%llx, which lies in another CTA", what, (unsigned long long)address));
    return ref.offset;
}

}  // namespace ptxm
