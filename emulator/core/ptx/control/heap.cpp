// malloc and free of kernels (CUDA C++ programming guide, dynamic global memory allocation): calls that the driver
// answers. Each allocation is one of global memory, with a gap behind it, at addresses that nothing has had before.
#include "isa/handlers.hpp"
#include "machine/machine.hpp"
#include "order/conflicts/conflicts.hpp"

namespace ptxm {
namespace {

// Who gets which address, or none at all, depends on the order of the clusters.
void need_order(Machine& m) {
    if (!m.global.logs()) return;
    *m.program->communicates = true;
    throw Fault("internal", "clusters that run side by side share no heap");
}

// Operands: address, size.
Flow heap_malloc(Warp& w, const Inst& i, u32 mask) {
    Machine& m = machine_of(w);
    need_order(m);
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 address = m.global.allocate_in_heap(w.reg<u64>(o[1])[l]);
        if (o[0] >= 0) w.reg<u64>(o[0])[l] = address;
    }
    return Flow::next;
}

std::string what_lies(Machine& m, u64 address) {
    if (const Allocation* const a = m.global.memory().freed(address))
        return format("'%s' was freed at PTX line %u", a->name.c_str(), a->freed_line);
    if (const Allocation* const a = m.global.find(address, 1))
        return format("%llu bytes into '%s', which %s", (unsigned long long)(address - a->base), a->name.c_str(),
                      a->of_heap ? "malloc has returned" : "malloc has not returned");
    return "malloc has not returned it";
}

// Freeing is like writing: every other access is to come before it.
void release(Warp& w, Allocation& a, u32 lane, u32 line) {
    Machine& m = machine_of(w);
    if (a.size) {
        Accessor who{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true};
        who.lanes = 1u << lane;
        touch_global(a, w, a.base, static_cast<u32>(std::min<u64>(a.size, ~0u)), who, false);
    }
    m.global.release_in_heap(a, line);
}

// Operand: address. Of null it does nothing.
Flow heap_free(Warp& w, const Inst& i, u32 mask) {
    Machine& m = machine_of(w);
    need_order(m);
    w.clocks.note_access(mask);
    for (u32 l = 0; l < kLanes; ++l) {
        const u64 address = w.reg<u64>(w.ops(i)[0])[l];
        if (!(mask >> l & 1) || !address) continue;
        Allocation* const a = m.global.find(address, 0);
        if (a && a->of_heap && a->base == address)
            release(w, *a, l, i.line);
        else
            m.report(&w, "heap-free",
                     format("free of 0x%llx: %s", (unsigned long long)address, what_lies(m, address).c_str()), w.pc());
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_heap(X)          \
    X(heap_malloc, control, heap) \
    X(heap_free, control, heap)
// clang-format on

Handler bind_heap(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::heap_malloc: return heap_malloc;
        case Op::heap_free: return heap_free;
        default: return nullptr;
    }
}

}  // namespace ptxm
