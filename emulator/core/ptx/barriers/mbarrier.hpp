// What the mbarrier instructions and the asynchronous operations do to an mbarrier.
#pragma once

#include "machine/cluster/cluster.hpp"

namespace ptxm {

Mbarrier& mbarrier_at(Warp& w, u32 address, const char* what);
// An asynchronous operation that will perform complete-tx on this mbarrier; its agent and the clock of its accesses.
struct TxSource {
    Cta* cta;
    u32 offset;
    AgentId agent;
    u32 phase;
    u32 clock() const { return phase + 1; }
};
TxSource begin_tx(Warp& w, u32 address, const char* what);
void end_tx(const TxSource& source, u32 bytes, i32 pc);
void mbarrier_arrive(Warp* w, Cta& cta, u32 offset, Mbarrier& bar, u32 count, const Message* message);
void mbarrier_complete_tx(Cta& cta, u32 offset, Mbarrier& bar, u32 bytes, u32 issued_phase, i32 pc);
void check_mbarrier_visible(Warp& w, Mbarrier& bar, bool proxy_async);

struct MbarrierTarget {
    Cta* cta;
    u32 offset;
    Mbarrier* bar;
};

// Where an address points; there may be no mbarrier: `bar` is null then.
MbarrierTarget place_of_mbarrier(Warp& w, u64 address, const char* what);

// Of an operation that the warp itself performs. `clock` is that of the access, when the warp has released since: 0 for
// now.
MbarrierTarget mbarrier_of(Warp& w, u64 address, const char* what, u32 clock = 0);

// How a wait acquires what came before the phase that it sees complete.
struct WaitOrder {
    bool relaxed = false;  // it learns that the phase is complete; what came before it, at its next acquiring fence
    bool narrow = false;   // at .cta scope: not what other CTAs have released
};
// A completed phase was seen by these lanes.
void observe_phase(Warp& w, const Mbarrier& bar, WaitOrder order, u32 lanes);

// How many phases the warp knows to be complete: it has seen one, or has synchronised with everyone who arrived in one.
u32 known_phases(const Warp& w, const Mbarrier& bar);

// expect-tx.
void expect_bytes(const MbarrierTarget& t, u32 bytes);

// Completes the phase once nothing is pending.
void settle_phase(Cta& cta, u32 offset, Mbarrier& bar, i32 pc);

}  // namespace ptxm
