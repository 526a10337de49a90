#include "machine/addresses.hpp"

#include "machine/machine.hpp"
#include "machine/names.hpp"

namespace ptxm {

SharedRef resolve_shared(Warp& w, u32 address, u32 size, const char* what) {
    const u32 rank = address >> kSharedRankShift, offset = address & kSharedOffsetMask;
    Cluster& cluster = *w.cta->cluster;
    if (rank >= cluster.ctas.size())
        throw Fault("shared-out-of-bounds", format("%s at shared address 0x%x names CTA rank %u of a cluster of %zu",
                                                   what, address, rank, cluster.ctas.size()));
    Cta& cta = *cluster.ctas[rank];
    if (u64{offset} + size <= cta.reserved) return {&cta, offset};
    if (offset < kSharedStart || u64{offset} + size > cta.shared.size())
        throw Fault("shared-out-of-bounds", format("%s of %u bytes at shared address 0x%x; %s", what, size, address,
                                                   shared_extent(cta).c_str()));
    return {&cta, offset};
}

namespace {

std::string where_it_lies(const GlobalMemory& memory, u64 address) {
    switch (window_of(address)) {
        case Space::local: return "that is in the window of the thread's local memory, and not in global memory";
        case Space::shared_cluster: return "that is in the window of shared memory, and not in global memory";
        case Space::param: return "that is in the window of the kernel's parameters, and not in global memory";
        default: return memory.describe(address);
    }
}

}  // namespace

Allocation& resolve_global(Warp& w, u64 address, u64 size, const char* what) {
    GlobalView& memory = machine_of(w).global;
    if (Allocation* a = memory.find(address, size)) return *a;
    if (const Allocation* a = memory.memory().freed(address))
        throw Fault("use-after-free",
                    format("%s of %llu bytes at byte %llu of '%s', of %llu bytes, which was freed at PTX line %u", what,
                           (unsigned long long)size, (unsigned long long)(address - a->base), a->name.c_str(),
                           (unsigned long long)a->size, a->freed_line));
    throw Fault("global-out-of-bounds",
                format("%s of %llu bytes at 0x%llx: %s", what, (unsigned long long)size, (unsigned long long)address,
                       where_it_lies(memory.memory(), address).c_str()));
}

u8* resolve_param(Warp& w, u64 offset, u64 size) {
    const Launch& launch = *machine_of(w).launch;
    if (size > launch.params.size() || offset > launch.params.size() - size)
        throw Fault("param-out-of-bounds",
                    format("access of %llu bytes at parameter byte %llu of %zu", (unsigned long long)size,
                           (unsigned long long)offset, launch.params.size()));
    return const_cast<u8*>(launch.params.data() + offset);
}

}  // namespace ptxm
