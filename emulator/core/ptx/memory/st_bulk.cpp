// st.bulk: zeros over a range of the CTA's own shared memory (PTX ISA 9.7.9.13), through the generic proxy.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/cluster/cluster.hpp"
#include "order/conflicts/conflicts.hpp"

namespace ptxm {
namespace {

constexpr u64 kLargest = 1 << 24;

// Operands: address, size in bytes.
Flow fill(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u32 address = w.reg<u32>(o[0])[l];
        const u64 size = w.reg<u64>(o[1])[l];
        if (size == 0) continue;
        if (address % 8 || size % 8 || size > kLargest)
            throw Fault("misaligned",
                        format("st.bulk of %llu bytes at shared 0x%x: both are multiples of 8, the size at most 2^24",
                               (unsigned long long)size, address));
        const SharedRef to = resolve_shared(w, address, static_cast<u32>(size), "st.bulk");
        if (to.cta != w.cta) throw Fault("address-space", "st.bulk to the shared memory of another CTA");
        w.clocks.note_access(mask);
        touch_shared(*to.cta, w, to.offset, static_cast<u32>(size),
                     Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true}, false);
        std::memset(to.cta->shared.data() + to.offset, 0, size);
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_fill(X) \
    X(store_bulk, shared_memory, fill)
// clang-format on

Handler bind_fill(const InstRecord& r) { return static_cast<Op>(r.op) == Op::store_bulk ? fill : nullptr; }

}  // namespace ptxm
