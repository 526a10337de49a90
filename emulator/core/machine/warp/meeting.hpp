// The lanes that execute a .sync instruction together (PTX ISA 9.7.9.6, 9.7.13.2, 9.7.13.9 to 9.7.13.12).
//
// Each lane names those it waits for by a member mask of its own. Lanes that name the same mask, in instructions with
// the same qualifiers, are a meeting: it takes place once every lane that the mask names has come or has exited. The
// others of the same instruction may be of other masks, and meet on their own: tiles of 8 threads shuffle in one
// instruction under four masks. The lanes of a meeting may be at different instructions, in the two branches of a
// condition:
//
//     if (lane < 16) a = __shfl_xor_sync(~0u, x, 16); else b = __shfl_xor_sync(~0u, y, 16);
//
// is one shuffle of 32 lanes.
#pragma once

#include <bit>
#include <span>

#include "machine/warp/warp.hpp"

namespace ptxm {

// Lanes of a meeting that are at one instruction.
struct Party {
    const Inst* inst;
    u32 lanes;
};

struct Meeting {
    u32 lanes = 0, count = 0;
    Party parties[kLanes];  // the first is that of the instruction at hand

    void add(const Inst& inst, u32 of) {
        parties[count++] = {&inst, of};
        lanes |= of;
    }
    std::span<const Party> all() const { return {parties, count}; }

    // What all lanes bring in an operand: the registers themselves, or what is gathered from several instructions'.
    template <class T>
    const T* values(Warp& w, u32 operand, T* gathered) const {
        if (count == 1) return w.reg<T>(w.ops(*parties[0].inst)[operand]);
        for (const Party& p : all()) {
            const T* from = w.reg<T>(w.ops(*p.inst)[operand]);
            for (u32 l = 0; l < kLanes; ++l)
                if (p.lanes >> l & 1) gathered[l] = from[l];
        }
        return gathered;
    }
};

template <class T>
[[gnu::always_inline]] inline void store_all(T* __restrict destination, T value, u32 mask) {
    for (u32 l = 0; l < kLanes; ++l) destination[l] = mask >> l & 1 ? value : destination[l];
}

// Reads and writes the registers of all parties.
using Together = void (*)(Warp&, const Meeting&);

// The place of the member mask among the operands of a .sync instruction; -1 for other instructions.
inline i32 members_operand(const Inst& i) {
    switch (static_cast<Op>(i.op)) {
        case Op::bar_warp: return 0;
        case Op::elect:
        case Op::vote:
        case Op::redux:
        case Op::match_any: return 2;
        case Op::match_all: return 3;
        case Op::shfl: return 5;
        default: return -1;
    }
}

inline const Inst& inst_at(const Warp& w, i32 pc) { return w.program->insts[static_cast<u32>(pc)]; }

// The mask for which a fragment waits: the same in all its lanes.
inline u32 members_of(Warp& w, const Fragment& f) {
    const Inst& i = inst_at(w, f.pc);
    return w.reg<u32>(w.ops(i)[members_operand(i)])[std::countr_zero(f.mask)];
}

// Executes `together` once for each mask that lanes of `mask` name and that is complete. Lanes whose mask is not wait.
Flow meet_apart(Warp& w, const Inst& i, u32 mask, Together together);
inline Flow meet(Warp& w, const Inst& i, u32 mask, Together together) {
    const u32* named = w.reg<u32>(w.ops(i)[members_operand(i)]);
    const u32 members = named[std::countr_zero(mask)];
    u32 different = 0;  // no branches: the loop vectorises
    for (u32 l = 0; l < kLanes; ++l) different |= (named[l] ^ members) & (0u - (mask >> l & 1));
    if (different || (members & w.live) != mask) return meet_apart(w, i, mask, together);
    Meeting m;
    m.add(i, mask);
    together(w, m);
    return Flow::next;
}

}  // namespace ptxm
