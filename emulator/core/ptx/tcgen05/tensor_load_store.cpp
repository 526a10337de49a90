// tcgen05.ld, tcgen05.st and their waits (PTX ISA 9.7.16.8).
#include "ptx/tcgen05/tensor_load_store.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isa/handlers.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "machine/warp/lanes.hpp"
#include "order/conflicts/tensor_memory_conflicts.hpp"
#include "ptx/tcgen05/allocation.hpp"

namespace ptxm {
namespace {

// Lane and column, relative to the address, of register r of lane l (PTX ISA 9.7.16.2.3.1).
struct Position {
    u32 lane, column;
};

Position position_of(TmemShape shape, u32 l, u32 r) {
    switch (shape) {
        case TmemShape::s32x32b: return {l, r};
        case TmemShape::s16x64b: return {l / 4 + 8 * (l % 2), l / 2 % 2 + 2 * r};
        case TmemShape::s16x128b: return {l / 4 + 8 * (r % 2), l % 4 + 4 * (r / 2)};
        case TmemShape::s16x256b: return {l / 4 + 8 * (r / 2 % 2), r % 2 + 2 * (l % 4) + 8 * (r / 4)};
        default: return {l % 16, r};  // 16x32bx2: its second half is split off by the caller
    }
}

// A collective access: 16 or 32 lanes of `columns` columns, and for 16x32bx2 as many again `split` columns further on.
struct Region {
    TmemShape shape;
    bool packed;  // a register holds the low halves of two adjacent columns
    u32 lane, lanes, column, columns, split;
};

// All lanes pass the same address (PTX ISA 9.7.16.8.1). CUTLASS's mixed-input FMHA has each name the row that it gets,
// where the first one's is what all should pass.
u32 uniform_address(Warp& w, u32 mask, i32 unit, const char* what) {
    const u32* a = w.reg<u32>(unit);
    const u32 first = static_cast<u32>(std::countr_zero(mask)), address = a[first];
    bool same = true, own_rows = true;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        same = same && a[l] == address;
        own_rows = own_rows && a[l] == address + ((l - first) << 16);
    }
    if (same) return address;
    const std::string message = format("%s: the lanes of a warp pass different tensor-memory addresses", what);
    if (!own_rows) throw Fault("tmem-address", message);
    machine_of(w).report_strict(&w, "tmem-address", message, w.pc());
    return address;
}

Region region_of(Warp& w, const Inst& i, u32 mask, i32 address_unit, u32 registers, const char* what) {
    const u32 address = uniform_address(w, mask, address_unit, what) + static_cast<u32>(i.immediate);
    Region r;
    r.shape = static_cast<TmemShape>(i.mods >> kTcShapeShift & 0xF);
    r.packed = i.mods & kTcPack;
    r.lane = address >> 16;
    r.column = address & 0xFFFF;
    r.lanes = r.shape == TmemShape::s32x32b ? 32 : 16;
    const bool one_column = r.shape == TmemShape::s32x32b || r.shape == TmemShape::s16x32bx2;
    r.columns = (one_column ? registers : 2 * registers) * (r.packed ? 2 : 1);
    r.split = r.shape == TmemShape::s16x32bx2 ? static_cast<u32>(i.immediate >> 32) : 0;
    const u32 quarter = 32 * (w.index % 4);
    const bool fits = r.lane == quarter || (r.lanes == 16 && r.lane == quarter + 16);
    if (!fits) {
        machine_of(w).report_strict(&w, "tmem-lane-quarter",
                                    format("%s by warp %u addresses lane %u; the warp reaches lanes %u-%u", what,
                                           w.index, r.lane, quarter, quarter + 31),
                                    w.pc());
        r.lane = quarter + (r.lanes == 16 ? r.lane % 32 / 16 * 16 : 0);
    }
    require_allocated(w, *w.cta, r.column, r.columns, what);
    if (r.split) require_allocated(w, *w.cta, r.column + r.split, r.columns, what);
    return r;
}

void touch_region(Warp& w, const Region& r, const Accessor& who, const char* what) {
    const auto touch = [&](u32 column) {
        touch_tmem(*w.cta, w, r.lane, r.lanes, column, r.columns, who, what);
        w.cta->tmem.settle(column, r.columns);
    };
    touch(r.column);
    if (r.split) touch(r.column + r.split);
}

// Calls f(register, lane, word of tensor memory, the next word for packed accesses).
template <class F>
void each_register(Tmem& t, const Region& r, u32 registers, F f) {
    const u32 step = r.packed ? 2 : 1;
    for (u32 k = 0; k < registers; ++k) {
        for (u32 l = 0; l < kLanes; ++l) {
            // A half split counts columns of tensor memory, also when two of them make a register.
            const Position p = position_of(r.shape, l, k);
            const u32 column = r.column + p.column * step + (r.split && l >= 16 ? r.split : 0);
            f(k, l, t.row(r.lane + p.lane) + column);
        }
    }
}

// Shows an observer which cell each register of each lane is moved to or from.
void show_cells(Warp& w, const Region& r, u32 registers, bool write) {
    Observer* const o = Observer::of(machine_of(w));
    if (!o || !o->wants_operands()) return;
    Tmem& t = w.cta->tmem;
    TensorAccessSeen seen{&w, w.pc(), write, {}};
    seen.cells.resize(registers * kLanes);
    each_register(t, r, registers, [&](u32 k, u32 l, const u32* word) {
        const u32 at = static_cast<u32>(word - t.row(0));
        seen.cells[k * kLanes + l] = at / Tmem::kPitch << 16 | at % Tmem::kPitch;
    });
    o->tensor_memory(seen);
}

void load_registers(Warp& w, const Region& r, const i32* destinations, u32 registers) {
    Tmem& t = w.cta->tmem;
    if (r.shape == TmemShape::s32x32b && !r.packed) {
        for (u32 k = 0; k < registers; ++k) {
            if (destinations[k] < 0) continue;
            u32* d = w.reg<u32>(destinations[k]);
            const u32* from = t.row(r.lane) + r.column + k;
            for (u32 l = 0; l < kLanes; ++l) d[l] = from[l * Tmem::kPitch];
        }
        return;
    }
    each_register(t, r, registers, [&](u32 k, u32 l, const u32* word) {
        if (destinations[k] < 0) return;
        w.reg<u32>(destinations[k])[l] = r.packed ? (word[0] & 0xFFFF) | word[1] << 16 : word[0];
    });
}

void note_loaded(Warp& w, const i32* destinations, u32 registers) {
    const Machine& m = machine_of(w);
    if (!m.checks || m.profile == Profile::strict) return;
    w.loaded.clocks.resize(w.program->units, 0);
    w.loaded.open = true;
    for (u32 k = 0; k < registers; ++k)
        if (destinations[k] >= 0) w.loaded.clocks[static_cast<u32>(destinations[k])] = w.clocks.ld_issued;
}

// The extreme of floats ignores NaN, unless `nan` asks for it (PTX ISA 9.7.16.8.3).
float extreme(const float* values, u32 n, bool max, bool abs, bool nan) {
    float x = std::numeric_limits<float>::quiet_NaN();
    bool any_nan = false;
    for (u32 k = 0; k < n; ++k) {
        const float value = abs ? std::fabs(values[k]) : values[k];
        any_nan = any_nan || std::isnan(value);
        x = max ? std::fmax(x, value) : std::fmin(x, value);
    }
    return std::isnan(x) || (nan && any_nan) ? std::bit_cast<float>(0x7FFFFFFFu) : x;
}

template <class T>
T extreme(const T* values, u32 n, bool max, bool, bool) {
    return max ? *std::max_element(values, values + n) : *std::min_element(values, values + n);
}

// .red: the extreme of a lane's columns into one more register (PTX ISA 9.7.16.8.3).
template <class T>
void reduce(Warp& w, const Inst& i, const i32* registers, u32 n) {
    T result[kLanes];
    const bool max = (i.mods >> kTcReduceShift & 3) == 2;
    for (u32 l = 0; l < kLanes; ++l) {
        T values[128];
        for (u32 k = 0; k < n; ++k) values[k] = w.reg<T>(registers[k])[l];
        result[l] = extreme(values, n, max, i.mods & kTcReduceAbs, i.mods & kTcReduceNan);
    }
    store_lanes(w.reg<T>(registers[n]), result, kFullMask);
}

// Destinations: the registers, then the result of a reduction; source: the address.
Flow load(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const bool reducing = i.mods >> kTcReduceShift & 3;
    const u32 registers = i.n_dst - (reducing ? 1u : 0u);
    const Region r = region_of(w, i, mask, o[i.n_dst], registers, "tcgen05.ld");
    touch_region(w, r, Accessor{w.clocks.ld, w.clocks.issue_ld(), static_cast<u32>(w.pc()), false}, "tcgen05.ld");
    show_cells(w, r, registers, false);
    load_registers(w, r, o, registers);
    note_loaded(w, o, i.n_dst);
    if (!reducing) return Flow::next;
    switch (static_cast<Ty>(i.type)) {
        case Ty::f32: reduce<float>(w, i, o, registers); break;
        case Ty::s32: reduce<i32>(w, i, o, registers); break;
        default: reduce<u32>(w, i, o, registers); break;
    }
    return Flow::next;
}

Flow store(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 registers = i.n_src - 1u;
    const Region r = region_of(w, i, mask, o[0], registers, "tcgen05.st");
    touch_region(w, r, Accessor{w.clocks.st, w.clocks.issue_st(), static_cast<u32>(w.pc()), true}, "tcgen05.st");
    show_cells(w, r, registers, true);
    Tmem& t = w.cta->tmem;
    if (r.shape == TmemShape::s32x32b && !r.packed) {
        for (u32 k = 0; k < registers; ++k) {
            const u32* s = w.reg<u32>(o[1 + k]);
            u32* to = t.row(r.lane) + r.column + k;
            for (u32 l = 0; l < kLanes; ++l) to[l * Tmem::kPitch] = s[l];
        }
        return Flow::next;
    }
    each_register(t, r, registers, [&](u32 k, u32 l, u32* word) {
        const u32 value = w.reg<u32>(o[1 + k])[l];
        word[0] = r.packed ? value & 0xFFFF : value;
        if (r.packed) word[1] = value >> 16;
    });
    return Flow::next;
}

}  // namespace

// A load is complete once a value that it loaded has been used: the machine waits for the register. Loads of a warp
// complete in order. Moves only hand the value on, since a compiler may leave them out.
void use_loaded_registers(Warp& w, const Inst& i) {
    const i32* o = w.ops(i);
    u32 newest = 0;
    for (u32 k = i.n_dst; k < u32{i.n_dst} + i.n_src; ++k)
        if (o[k] >= 0) newest = std::max(newest, w.loaded.clocks[static_cast<u32>(o[k])]);
    const Op op = static_cast<Op>(i.op);
    if (op == Op::mov || op == Op::pack || op == Op::unpack) {
        for (u32 k = 0; k < i.n_dst; ++k)
            if (o[k] >= 0) w.loaded.clocks[static_cast<u32>(o[k])] = newest;
        return;
    }
    for (u32 k = 0; k < i.n_dst; ++k)
        if (o[k] >= 0) w.loaded.clocks[static_cast<u32>(o[k])] = 0;
    w.clocks.tc.raise(w.clocks.ld, newest);
    w.loaded.open = newest < w.clocks.ld_issued;
}

// clang-format off
#define PTXM_OPS_tmem(X)                                                  \
    X(tmem_ld, tensor_memory, tmem)                                       \
    X(tmem_st, tensor_memory, tmem)                                       \
    X(tmem_wait_ld, tensor_memory, tmem, "tcgen05.wait::ld.sync.aligned") \
    X(tmem_wait_st, tensor_memory, tmem, "tcgen05.wait::st.sync.aligned")
// clang-format on

Handler bind_tmem(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tmem_ld: return load;
        case Op::tmem_st: return store;
        case Op::tmem_wait_ld:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.wait_ld();
                w.loaded.open = false;
                return Flow::next;
            };
        case Op::tmem_wait_st:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.wait_st();
                return Flow::next;
            };
        default: return nullptr;
    }
}

}  // namespace ptxm
