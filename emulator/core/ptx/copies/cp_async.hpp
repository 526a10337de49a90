// What a lane of a non-bulk cp.async reads.
#pragma once

#include "machine/machine.hpp"

namespace ptxm {

u64 source_address(Warp& w, const Inst& i, u32 lane);
// Fewer than the instruction writes where its src-size says so, none where the source is ignored.
u32 source_bytes(Warp& w, const Inst& i, u32 lane);

}  // namespace ptxm
