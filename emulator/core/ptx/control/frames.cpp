// Calls of functions that call themselves: their frames in local memory, and the registers that they keep.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {
namespace {

// What `frame_push` keeps stands in the instruction's operands behind its sources: unit and bits of each register.
struct Kept {
    u32 unit, bits;
};

Kept kept(const Warp& w, const Inst& i, u32 k) {
    const i32* o = w.ops(i) + i.n_dst + i.n_src + 2 * k;
    return {static_cast<u32>(o[0]), static_cast<u32>(o[1])};
}

u32 undefined_lanes(const Warp& w, u32 unit) { return w.undefined.empty() ? 0 : w.undefined[unit]; }

void put_bit(u32& word, u32 lane, bool set) { word = (word & ~(1u << lane)) | static_cast<u32>(set) << lane; }

// Of a lane: a byte that says whether the register has a value, then the value.
void keep(Warp& w, Kept r, u32 lane, std::vector<u8>& to) {
    to.push_back(static_cast<u8>((w.initialised[r.unit] >> lane & 1) | (undefined_lanes(w, r.unit) >> lane & 1) << 1 |
                                 (r.bits == 1 ? (w.pred(static_cast<i32>(r.unit)) >> lane & 1) << 2 : 0)));
    if (r.bits == 1) return;
    const u8* from = w.reg<u8>(static_cast<i32>(r.unit)) + lane * (r.bits / 8);
    to.insert(to.end(), from, from + r.bits / 8);
}

void bring_back(Warp& w, Kept r, u32 lane, std::vector<u8>& from) {
    if (r.bits != 1) {
        std::copy(from.end() - r.bits / 8, from.end(), w.reg<u8>(static_cast<i32>(r.unit)) + lane * (r.bits / 8));
        from.resize(from.size() - r.bits / 8);
    }
    const u8 flags = from.back();
    from.pop_back();
    if (r.bits == 1) put_bit(w.pred(static_cast<i32>(r.unit)), lane, flags >> 2 & 1);
    put_bit(w.initialised[r.unit], lane, flags & 1);
    if (!w.undefined.empty()) put_bit(w.undefined[r.unit], lane, flags >> 1 & 1);
}

// Operands frame; frame, bytes of this frame, bytes of the next one, end of the stack; registers.
Flow push(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    w.kept.resize(kLanes);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 frame = w.reg<u64>(o[1])[l] + w.reg<u64>(o[2])[l], end = frame + w.reg<u64>(o[3])[l];
        if (end > w.reg<u64>(o[4])[l])
            throw Fault("local-out-of-bounds",
                        format("the call needs %llu bytes of stack more than there are (lane %u)",
                               (unsigned long long)(end - w.reg<u64>(o[4])[l]), l));
        for (u32 k = 0; k < i.immediate; ++k) keep(w, kept(w, i, k), l, w.kept[l]);
        w.reg<u64>(o[0])[l] = frame;
        if (w.local_written.empty()) continue;
        u8* const notes = w.local_written.data() + u64{l} * w.program->local_bytes;
        std::fill(notes + frame, notes + end, u8{0});
    }
    return Flow::next;
}

// Operands frame; frame, bytes of the frame to return to; registers.
Flow pop(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        for (u32 k = static_cast<u32>(i.immediate); k-- > 0;) bring_back(w, kept(w, i, k), l, w.kept[l]);
        w.reg<u64>(o[0])[l] = w.reg<u64>(o[1])[l] - w.reg<u64>(o[2])[l];
    }
    return Flow::next;
}

// Operands to, from: .param addresses; of a variable of a function, or of the kernel's. What has no value leaves none
// behind.
Flow copy(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u64 bytes = static_cast<u64>(i.immediate);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 first = u64{l} * w.program->local_bytes - kCallParams, from = w.reg<u64>(o[1])[l];
        const u64 to = first + w.reg<u64>(o[0])[l];
        const bool of_function = from >= kCallParams;
        const auto in_frame = [&](u64 at) {
            const u64 size = w.program->local_bytes;
            return at >= kCallParams && bytes <= size && at - kCallParams <= size - bytes;
        };
        if (!in_frame(w.reg<u64>(o[0])[l]) || (of_function && !in_frame(from)))
            throw Fault("param-out-of-bounds", format("copy of %llu parameter bytes", (unsigned long long)bytes));
        const u8* source =
            of_function ? w.local.data() + first + from : resolve_param(w, from, static_cast<u32>(bytes));
        std::copy_n(source, bytes, w.local.data() + to);
        if (w.local_written.empty()) continue;
        u8* const notes = w.local_written.data();
        if (of_function)
            std::copy_n(notes + first + from, bytes, notes + to);
        else
            std::fill_n(notes + to, bytes, u8{1});
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_frames(X)         \
    X(frame_push, control, frames) \
    X(frame_pop, control, frames)  \
    X(local_copy, control, frames)
// clang-format on

Handler bind_frames(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::frame_push: return push;
        case Op::frame_pop: return pop;
        case Op::local_copy: return copy;
        default: return nullptr;
    }
}

}  // namespace ptxm
