// What tensor and non-tensor bulk copies share.
#pragma once

#include "machine.hpp"

namespace ptxm {

SharedRef resolve_bulk_shared(Warp& w, u32 address, u32 bytes, u32 alignment, const char* what);
u32 signal_rank(u32 rank, u32 mbarrier_rank, bool pair);
std::vector<u32> multicast_ranks(Warp& w, u32 mask);
void check_signal(u32 destination, u32 mbarrier, bool pair);
// Whether an earlier lane of this store has the same operands, the first of 64 bits and the others of 32: its bytes are
// written twice, with what is there. Reported by the strict profile.
bool repeats_store(Warp& w, const Inst& i, u32 mask, u32 lane);
// Whether the lanes before and after it have these operands too: its writes follow the one's, with what is there, and
// leave nothing that the other's do not replace.
bool is_between_repeats(Warp& w, const Inst& i, u32 mask, u32 lane);

}  // namespace ptxm
