// The grid: which clusters are resident, and which of them runs.
//
// A cluster runs until it is done or only polls: then it waits for what another cluster writes to global memory, and
// the others get their turn. Clusters start in order, as many at a time as the multiprocessors hold, so that a kernel
// which counts on co-residence finds it and one that counts on more than there is does not.
#pragma once

#include <array>

#include "machine/machine.hpp"

namespace ptxm {

// The clusters of a grid that have not started, in launch order.
class GridCursor {
public:
    explicit GridCursor(const Launch& launch) : launch_(&launch), next_{0, 0, launch.first_plane} {}
    // The first CTA of the next cluster. False when there is none left.
    bool take(std::array<u32, 3>& first);

private:
    const Launch* launch_;
    std::array<u32, 3> next_;
    bool exhausted_ = false;
};

// The clusters of a launch that the device holds at a time.
u32 resident_limit(u32 multiprocessors, const Program& program, const Launch& launch);
void run_grid(Machine& m);

}  // namespace ptxm
