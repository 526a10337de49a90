// The bulk async-groups of a thread.
#pragma once

#include <functional>

#include "machine/warp/warp.hpp"

namespace ptxm {

BulkLane& bulk_lane(Warp& w, u32 lane);
// An operation of lane `lane`'s open bulk group. `read` runs when its sources have been read, `write` when its results
// are visible.
void start_bulk_store(Warp& w, u32 lane, u64 latency, std::function<void()> read, std::function<void()> write);

}  // namespace ptxm
