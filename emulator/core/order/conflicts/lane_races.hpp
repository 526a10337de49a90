// Lanes of one warp that access the same shared memory. They run in any order between bar.warp.sync, a barrier, or a
// release and an acquire (PTX ISA 8.9, 9.7.13.2). The shadow takes a warp for one agent; it notices that the warp comes
// back to what it has accessed since, and only then the lanes are compared.
#pragma once

#include "order/history/access_history.hpp"

namespace ptxm {

struct Warp;

// An instruction's accesses to shared memory, lane by lane, after touch_shared: against those of other lanes of this
// warp.
void check_lanes(Warp& w, const u64* at, u32 mask, u32 size, const Accessor& who);

}  // namespace ptxm
