// Conflict checks of tensor memory.
#pragma once

#include "order/history/access_history.hpp"

namespace ptxm {

struct Cta;
struct Warp;

// `what` is the operation that a message names. A synchronous one needs no fence::after_thread_sync before it.
void touch_tmem(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& who,
                const char* what, bool synchronous = false);
// Of what `writer` also reads, before. False, and nothing has happened, where there is something to report or not all
// has one past: then the reads and the writes are to be touched.
bool update_tmem_quietly(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& writer);

}  // namespace ptxm
