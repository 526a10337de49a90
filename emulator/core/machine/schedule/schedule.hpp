// Who runs next. Warps take turns in virtual time, one tick an instruction; asynchronous work completes by the
// schedule:
//   realistic  at a latency that resembles the machine's
//   early      when it is issued
//   late       only when no warp can go on
//   random     any legal order and moment, and warps in any order, under the seed
//   spurious   as realistic, but a try_wait may fail at once, under the seed, whether its phase is complete or not
//   pct        as random, by priorities (machine/schedule/search.hpp)
#pragma once

#include "machine/cluster/cluster.hpp"

namespace ptxm {

// done: its warps have exited. polling: they wait for something that only another cluster can do. failed: deadlock.
// yielded: the budget is used up.
enum class Progress : u8 { done, polling, failed, yielded };
Progress run_cluster(Cluster& cluster, u64 budget);

// What a warp that waits would do if its wait were over: runs it alone up to its next wait, or for so many
// instructions. For an observer of a launch that has ended in a deadlock: nothing that follows means anything.
void suppose_released(Warp& w, u64 budget);

}  // namespace ptxm
