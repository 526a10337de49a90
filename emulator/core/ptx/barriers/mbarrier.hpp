// What the mbarrier instructions and the asynchronous operations do to an mbarrier.
#pragma once

#include "isa/handlers.hpp"

namespace ptxm {

struct MbarrierTarget {
    Cta* cta;
    u32 offset;
    Mbarrier* bar;
};

// Of an operation that the warp itself performs. `clock` is that of the access, when the warp has released since: 0 for
// now.
MbarrierTarget mbarrier_of(Warp& w, u64 address, const char* what, u32 clock = 0);

// A completed phase was seen. A relaxed wait learns that; what came before it, at its next acquiring fence.
void observe_phase(Warp& w, const Mbarrier& bar, bool relaxed);

// How many phases the warp knows to be complete: it has seen one, or has synchronised with everyone who arrived in one.
u32 known_phases(const Warp& w, const Mbarrier& bar);

// expect-tx.
void expect_bytes(const MbarrierTarget& t, u32 bytes);

// Completes the phase once nothing is pending.
void settle_phase(Cta& cta, u32 offset, Mbarrier& bar, i32 pc);

}  // namespace ptxm
