// Operations and their binders. A row stands beside the binder that has its handlers, in a macro PTXM_OPS_BINDER.
// isa/collect.py copies these macros into isa/operations.hpp, whose PTXM_OPS is the one table; Python reads it as well.
// A row has:
//
// - the name: that of the PTX ISA's instruction, or what an instruction's forms have in common;
// - its class, for the counters and the timing model. by_space is that of the state space, by_binder that of the
//   arithmetic binder that has taken it, which types and rounding decide;
// - who binds it: bind_NAME, which has the handler of a record, or none for its types;
// - the syntax of the instructions that are this operation and no more, as decode/table.py reads it: they are decoded
//   by it. Other rows have none: a function of decode/ emits their records.
//
// A row's number is its place in the table, which no program sees.
#pragma once

#include "isa/program.hpp"

namespace ptxm {

#define PTXM_BINDER(name, kind, binder, ...) Handler bind_##binder(const InstRecord& r);
PTXM_OPS(PTXM_BINDER)
#undef PTXM_BINDER

// These have no row of their own: bind_arithmetic asks them.
Handler bind_directed(const InstRecord& r);
Handler bind_half(const InstRecord& r);

}  // namespace ptxm
