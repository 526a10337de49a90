// st.async and red.async through an mbarrier (PTX ISA 9.7.9 and 9.7.13): stores to the shared memory of the cluster
// that complete-tx their bytes. They are weak operations of the generic proxy.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/async/async.hpp"
#include "order/conflicts/conflicts.hpp"
#include "ptx/barriers/mbarrier.hpp"
#include "ptx/copies/bulk.hpp"
#include "ptx/copies/reduction.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {
namespace {

constexpr u64 kStoreLatency = 300;

// Operands: address, mbarrier, values. Inst::mods: the reduction, none for a store.
Flow store_async(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 pc = static_cast<u32>(w.pc());
    const Ty type = static_cast<Ty>(i.type);
    const auto reduction = static_cast<Reduction>(i.mods >> kReduceShift & 0xF);
    const char* const what = reduction == Reduction::none ? "st.async" : "red.async";
    const u32 element = element_bytes(type), count = i.n_src - 2u, bytes = element * count;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const SharedRef to = resolve_bulk_shared(w, w.reg<u32>(o[0])[l], bytes, bytes, what);
        const SharedRef at = resolve_shared(w, w.reg<u32>(o[1])[l], 8, what);
        check_signal(to.cta->rank, at.cta->rank, false);
        const TxSource source = begin_tx(w, at.cta->shared_address(at.offset), what);
        touch_shared(*to.cta, w, to.offset, bytes,
                     Accessor{source.agent, source.clock(), pc, true, reduction != Reduction::none}, false);
        std::array<u8, 16> value;
        for (u32 k = 0; k < count; ++k)
            std::memcpy(value.data() + k * element, w.reg<u8>(o[2 + k]) + l * element, element);
        start_async(w, false, kStoreLatency, [to, value, bytes, source, pc, reduction, type] {
            u8* d = to.cta->shared.data() + to.offset;
            if (reduction == Reduction::none)
                std::memcpy(d, value.data(), bytes);
            else
                reduce_bytes(reduction, type, d, value.data(), bytes);
            end_tx(source, bytes, static_cast<i32>(pc));
        });
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_async_store(X) \
    X(store_async, copy, async_store)
// clang-format on

Handler bind_async_store(const InstRecord& r) {
    return static_cast<Op>(r.op) == Op::store_async ? store_async : nullptr;
}

}  // namespace ptxm
