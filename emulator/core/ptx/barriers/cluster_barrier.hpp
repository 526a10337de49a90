// Lanes that leave the cluster barrier.
#pragma once

#include "machine/warp/warp.hpp"

namespace ptxm {

// They have exited: nothing waits for them any longer.
void leave_cluster_barrier(Warp& w, u32 exited);

}  // namespace ptxm
