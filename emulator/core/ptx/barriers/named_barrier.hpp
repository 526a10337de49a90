// Lanes that leave the named barriers of their CTA.
#pragma once

#include "machine/warp/warp.hpp"

namespace ptxm {

// They have exited: nothing waits for them any longer.
void leave_named_barriers(Warp& w, u32 exited);

}  // namespace ptxm
