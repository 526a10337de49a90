// What tcgen05 shows of itself.
#pragma once

#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm::tc {

// Shows an observer which bytes and cells the MMA that `lane` issues reads and writes.
void show_mma(Warp& w, const Inst& i, u32 lane, const Mma& op);
// As PTX names it.
const char* type_name(ElementType f);

}  // namespace ptxm::tc
