// Registers that wgmma uses.
#pragma once

#include "machine/warp/warp.hpp"

namespace ptxm {

// An instruction that is not a wgmma uses its registers.
void use_wgmma_registers(Warp& w, const Inst& i);

}  // namespace ptxm
