// The handler families; bind_handler (bind.cpp) asks each in turn.
#pragma once

#include "machine.hpp"

namespace ptxm {

Handler bind_integer(const InstRecord& r);
Handler bind_float(const InstRecord& r);
Handler bind_convert(const InstRecord& r);
Handler bind_memory(const InstRecord& r);
Handler bind_control(const InstRecord& r);
Handler bind_barrier(const InstRecord& r);
Handler bind_mbarrier(const InstRecord& r);
Handler bind_tma(const InstRecord& r);
Handler bind_tmem(const InstRecord& r);
Handler bind_tensor(const InstRecord& r);
Handler bind_matrix_move(const InstRecord& r);
Handler bind_warp_mma(const InstRecord& r);
Handler bind_cp_async(const InstRecord& r);
Handler bind_wgmma(const InstRecord& r);

// Stores the result of a setp, combined with its third source when there is one.
void write_comparison(Warp& w, const Inst& i, u32 mask, u32 bits);

}  // namespace ptxm
