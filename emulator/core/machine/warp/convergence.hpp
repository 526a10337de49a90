// Fragments of a warp: how they part, wait for one another and meet again.
#pragma once

#include "machine/warp/warp.hpp"

namespace ptxm {

struct Cluster;

// Sends groups of the current fragment's lanes on to pcs of their own, to meet again at `reconverge`.
struct LaneGroup {
    i32 pc;
    u32 mask;
};
Flow diverge(Warp& w, i32 reconverge, const LaneGroup* groups, u32 count);
// Called where the fragment's pc has come to its innermost join.
void reach_join(Warp& w);
// Adds another fragment to the current one. Lanes that meet early no longer meet at joins they do not share.
void absorb(Warp& w, u32 fragment);
// True once the current fragment has these lanes, as far as they live; until then it waits for them.
bool converge(Warp& w, u32 required);
void exit_lanes(Warp& w, u32 mask);
// Lets go on what waits at joins for lanes that will not come. False where nothing does.
bool release_joins(Cluster& cluster);

}  // namespace ptxm
