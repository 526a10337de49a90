// What a CTA owes the others before it exits: its shared memory goes with it.
#pragma once

#include "order/clocks.hpp"

namespace ptxm {

struct Cta;

// Another CTA, a copy or a commit's arrival accesses the shared memory of `target`. Of an arrival `agent` is the
// mbarrier's phases, and `clock` the one that it falls in, counted from 1.
void note_outside_access(Cta& target, AgentId agent, u32 clock, u32 pc);
// Its last warp exits.
void check_cta_exit(Cta& cta);

}  // namespace ptxm
