// Lanes of one warp that access the same shared or global memory. They run in any order between bar.warp.sync, a
// barrier, or a release and an acquire (PTX ISA 8.9, 9.7.13.2). The shadow takes a warp for one agent; it notices that
// the warp comes back to what it has accessed since, and only then the lanes are compared.
#pragma once

#include "order/history/access_history.hpp"

namespace ptxm {

struct Allocation;
struct Warp;

// An instruction's accesses, lane by lane, after touch_shared or touch_global: against those of other lanes of this
// warp. Of global memory all are within one allocation, of less than 4 GiB; of shared memory it is null.
void check_lanes(Warp& w, const u64* at, u32 mask, u32 size, const Accessor& who, const Allocation* of = nullptr);

}  // namespace ptxm
