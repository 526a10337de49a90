// What cp.async reads, for those who look on.
#pragma once

#include "isa/program.hpp"
#include "machine/cluster.hpp"

namespace ptxm {

struct CopySource {
    u64 address;
    u32 bytes;  // fewer than the destination's where the rest becomes zeros
};

// Of a lane that executes `i`. Fault for a src-size that is too large.
CopySource cp_async_source(Warp& w, const Inst& i, u32 lane);

}  // namespace ptxm
