// What tensor and non-tensor bulk copies share.
#pragma once

#include "machine.hpp"

namespace ptxm {

SharedRef resolve_bulk_shared(Warp& w, u32 address, u32 bytes, u32 alignment, const char* what);
u32 signal_rank(u32 rank, u32 mbarrier_rank, bool pair);
std::vector<u32> multicast_ranks(Warp& w, u32 mask);
void check_signal(u32 destination, u32 mbarrier, bool pair);

}  // namespace ptxm
