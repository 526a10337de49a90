// Loads and stores of the generic proxy, for the instructions built on them.
#pragma once

#include "machine/machine.hpp"

namespace ptxm {

// Addresses of the .param space from here on are those of call sites, kept in local memory; below lie the kernel's.
constexpr u64 kCallParams = u64{1} << 32;

struct Addresses {
    u64 at[kLanes];
};

Addresses lane_addresses(Warp& w, i32 unit, u32 width, i64 offset);
// Strong: atomic, volatile or with memory-ordering semantics, at the scope of the CTA or a wider one.
enum class Strength : u8 { weak, cta, wide };
// Points each active lane at its bytes, after bounds, alignment and conflict checks. `store`: the instruction whose
// values are about to be written.
void resolve_lanes(Warp& w, Space space, Addresses& a, u32 mask, u32 size, bool write, u8* (&pointers)[kLanes],
                   Strength strength = Strength::weak, const Inst* store = nullptr, bool non_coherent = false);
void load_values(Warp& w, const Inst& i, u32 mask, u8* const (&pointers)[kLanes]);
void store_values(Warp& w, const Inst& i, u32 mask, u8* const (&pointers)[kLanes]);
// Behind the values: a load of what has none, of local memory or of what such a store has left in shared memory.
void follow_load(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask);
void follow_store(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask);

}  // namespace ptxm
