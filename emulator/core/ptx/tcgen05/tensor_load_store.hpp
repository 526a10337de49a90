// What tcgen05.ld has loaded.
#pragma once

#include "machine/warp/warp.hpp"

namespace ptxm {

// An instruction uses registers that a tcgen05.ld may have written.
void use_loaded_registers(Warp& w, const Inst& i);

}  // namespace ptxm
