// Tensor memory: allocation, tcgen05.ld and tcgen05.st, and their waits (PTX ISA 9.7.16.7, 9.7.16.8).
#include "handlers.hpp"
#include "lanes.hpp"

namespace ptxm {

bool Tmem::allocated(u32 column, u32 count) const {
    if (column + count > kColumns) return false;
    for (u32 c = column / kGranule; c <= (column + count - 1) / kGranule; ++c)
        if (!owner[c]) return false;
    return true;
}

namespace {

Flow alloc(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 lane = static_cast<u32>(std::countr_zero(mask));
    const u32 columns = w.reg<u32>(o[1])[lane];
    Tmem& t = w.cta->tmem;
    if (columns < 32 || columns > Tmem::kColumns || !std::has_single_bit(columns))
        throw Fault("tmem-alloc-size",
                    format("tcgen05.alloc of %u columns; a power of two of 32..512 is allowed", columns));
    if (t.relinquished) throw Fault("tmem-alloc-relinquished", "tcgen05.alloc after tcgen05.relinquish_alloc_permit");
    const u32 need = columns / Tmem::kGranule, total = Tmem::kColumns / Tmem::kGranule;
    for (u32 first = 0; first + need <= total; first += need) {
        bool free = true;
        for (u32 g = first; g < first + need; ++g) free = free && !t.owner[g];
        if (!free) continue;
        for (u32 g = first; g < first + need; ++g) {
            t.owner[g] = w.pc() + 1;
            t.block[g] = static_cast<u16>(first);
        }
        t.shadow.forget(first * Tmem::kGranule, columns);
        u64 address = i.width_src == 64 ? w.reg<u64>(o[0])[lane] : w.reg<u32>(o[0])[lane];
        if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
        const SharedRef to =
            resolve_shared(w, static_cast<u32>(address + static_cast<u64>(i.immediate)), 4, "tcgen05.alloc");
        touch_shared(*to.cta, w, to.offset, 4,
                     Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true}, false);
        const u32 value = first * Tmem::kGranule;
        std::memcpy(to.cta->shared.data() + to.offset, &value, 4);
        return Flow::next;
    }
    throw Fault("tmem-alloc-blocked",
                format("tcgen05.alloc of %u columns waits for columns that this CTA holds itself", columns));
}

Flow dealloc(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 lane = static_cast<u32>(std::countr_zero(mask));
    const u32 address = w.reg<u32>(o[0])[lane], columns = w.reg<u32>(o[1])[lane];
    Tmem& t = w.cta->tmem;
    const u32 first = address / Tmem::kGranule, count = columns / Tmem::kGranule;
    const bool whole = address % Tmem::kGranule == 0 && columns % Tmem::kGranule == 0 && columns &&
                       address + columns <= Tmem::kColumns && t.allocated(address, columns) &&
                       t.block[first] == first && t.block[first + count - 1] == first &&
                       (first + count == t.owner.size() || !t.owner[first + count] || t.block[first + count] != first);
    if (!whole)
        throw Fault("tmem-dealloc",
                    format("tcgen05.dealloc of %u columns at 0x%x is no allocation of this CTA", columns, address));
    // Giving columns back is a write: nobody may still be reading or writing them.
    touch_tmem(*w.cta, w, 0, Tmem::kLanesTotal, address, columns,
               Accessor{w.clocks.st, ++w.clocks.st_issued, static_cast<u32>(w.pc()), true}, "tcgen05.dealloc");
    w.clocks.wait_st();
    for (u32 g = first; g < first + count; ++g) t.owner[g] = 0;
    t.shadow.forget(address, columns);
    return Flow::next;
}

// Lane and column, relative to the address, of register r of lane l (the maps of blackwell's tcgen05.ld shapes).
struct Position {
    u32 lane, column;
};

Position position_of(TmemShape shape, u32 l, u32 r) {
    switch (shape) {
        case TmemShape::s32x32b: return {l, r};
        case TmemShape::s16x64b: return {l / 4 + 8 * (l % 2), l / 2 % 2 + 2 * r};
        case TmemShape::s16x128b: return {l / 4 + 8 * (r % 2), l % 4 + 4 * (r / 2)};
        default: return {l / 4 + 8 * (r / 2 % 2), r % 2 + 2 * (l % 4) + 8 * (r / 4)};
    }
}

u32 columns_of(TmemShape shape, u32 registers) {
    switch (shape) {
        case TmemShape::s32x32b: return registers;
        case TmemShape::s16x64b: return 2 * registers;
        case TmemShape::s16x128b: return 2 * registers;
        default: return 2 * registers;
    }
}

struct Region {
    TmemShape shape;
    u32 lane, lanes, column, columns;
};

Region region_of(Warp& w, const Inst& i, u32 mask, i32 address_unit, u32 registers, const char* what) {
    const u32* a = w.reg<u32>(address_unit);
    const u32 address = a[std::countr_zero(mask)];
    for (u32 l = 0; l < kLanes; ++l)
        if ((mask >> l & 1) && a[l] != address)
            throw Fault("tmem-address", format("%s: the lanes of a warp pass different tensor-memory addresses", what));
    Region r;
    r.shape = static_cast<TmemShape>(i.mods >> kTcShapeShift & 0xF);
    r.lane = address >> 16;
    r.column = (address & 0xFFFF) + static_cast<u32>(i.immediate);
    r.lanes = r.shape == TmemShape::s32x32b ? 32 : 16;
    r.columns = columns_of(r.shape, registers);
    const u32 quarter = 32 * (w.index % 4);
    const bool fits = r.lane == quarter || (r.lanes == 16 && r.lane == quarter + 16);
    if (!fits) {
        machine_of(w).report_strict(&w, "tmem-lane-quarter",
                                    format("%s by warp %u addresses lane %u; the warp reaches lanes %u-%u", what,
                                           w.index, r.lane, quarter, quarter + 31),
                                    w.pc());
        r.lane = quarter + (r.lanes == 16 ? r.lane % 32 / 16 * 16 : 0);
    }
    if (!w.cta->tmem.allocated(r.column, r.columns))
        throw Fault("tmem-unallocated", format("%s of columns %u-%u, which are not all allocated", what, r.column,
                                               r.column + r.columns - 1));
    return r;
}

Flow load(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const Region r = region_of(w, i, mask, o[i.n_dst], i.n_dst, "tcgen05.ld");
    touch_tmem(*w.cta, w, r.lane, r.lanes, r.column, r.columns,
               Accessor{w.clocks.ld, ++w.clocks.ld_issued, static_cast<u32>(w.pc()), false}, "tcgen05.ld");
    Tmem& t = w.cta->tmem;
    for (u32 k = 0; k < i.n_dst; ++k) {
        if (o[k] < 0) continue;
        u32* d = w.reg<u32>(o[k]);
        for (u32 l = 0; l < kLanes; ++l) {
            const Position p = position_of(r.shape, l, k);
            d[l] = t.row(r.lane + p.lane)[r.column + p.column];
        }
    }
    return Flow::next;
}

Flow store(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 registers = i.n_src - 1u;
    const Region r = region_of(w, i, mask, o[0], registers, "tcgen05.st");
    touch_tmem(*w.cta, w, r.lane, r.lanes, r.column, r.columns,
               Accessor{w.clocks.st, ++w.clocks.st_issued, static_cast<u32>(w.pc()), true}, "tcgen05.st");
    Tmem& t = w.cta->tmem;
    for (u32 k = 0; k < registers; ++k) {
        const u32* s = w.reg<u32>(o[1 + k]);
        for (u32 l = 0; l < kLanes; ++l) {
            const Position p = position_of(r.shape, l, k);
            t.row(r.lane + p.lane)[r.column + p.column] = s[l];
        }
    }
    return Flow::next;
}

}  // namespace

Handler bind_tmem(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tmem_alloc: return alloc;
        case Op::tmem_dealloc: return dealloc;
        case Op::tmem_relinquish:
            return [](Warp& w, const Inst&, u32) {
                w.cta->tmem.relinquished = true;
                return Flow::next;
            };
        case Op::tmem_ld: return load;
        case Op::tmem_st: return store;
        case Op::tmem_wait_ld:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.wait_ld();
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
