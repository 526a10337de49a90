// Tensor memory that an instruction may use.
#pragma once

#include "machine/warp/warp.hpp"

namespace ptxm {

struct Cluster;

// Columns of which some have never been allocated are a fault. What has been given back still holds its values until
// another CTA gets it, and kernels have been released that rely on that: a hazard.
void require_allocated(Warp& w, const Cta& cta, u32 column, u32 count, const char* what);

// Warps of this cluster that wait for columns which other clusters hold try again. False where there are none.
bool retry_allocators(Cluster& cluster);

}  // namespace ptxm
