// Which operations of the tensor core are pipelined with one another (PTX ISA 9.7.16.6.2): MMAs of the same cta_group,
// accumulator, shape and kind; an MMA behind a copy. An MMA behind another one, or a copy behind an MMA, that uses the
// same tensor memory has to wait for it. The machine runs all in issue order, so what it reports here never shows in
// the numbers.
#include "machine/machine.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm::tc {
namespace {

u32 signature_of(const Mma& op) {
    const Instruction& s = op.shape;
    return op.d_column | (op.d_lane ? 1u : 0u) << 9 | s.n / 8 << 10 | s.m / 16 << 16 | static_cast<u32>(s.kind) << 21 |
           (op.mods.ws ? 1u : 0u) << 24 | (op.mods.pair ? 1u : 0u) << 25;
}

bool strict(Warp& w) { return machine_of(w).checks && machine_of(w).profile == Profile::strict; }

class OrderCheck {
public:
    OrderCheck(Warp& w, const Accessor& who, u32 signature) : w_(w), who_(who), signature_(signature) {}

    // `halves`: of every 32 lanes, the lower 16 (bit 0) and the upper (bit 1).
    void read(Tmem& t, u32 halves, const Columns& columns, const char* mine) {
        each_half(halves, columns, [&](u32 from) {
            check(t.mma_writes, from, columns, 0, mine, "writes D to");
            mark(t.mma_reads, from, columns);
        });
    }
    void accumulate(Tmem& t, u32 halves, const Columns& columns) {
        each_half(halves, columns, [&](u32 from) {
            check(t.mma_writes, from, columns, signature_, "tcgen05.mma writes D to", "writes D to");
            check(t.mma_reads, from, columns, 0, "tcgen05.mma writes D to", "reads");
            mark(t.mma_writes, from, columns);
        });
    }
    void copy(Tmem& t, u32 halves, const Columns& columns) {
        each_half(halves, columns, [&](u32 from) {
            check(t.mma_writes, from, columns, 0, "tcgen05.cp writes", "writes D to");
            check(t.mma_reads, from, columns, 0, "tcgen05.cp writes", "reads");
        });
    }

private:
    template <class F>
    void each_half(u32 halves, const Columns& columns, F f) {
        for (u32 half = 0; half < 2; ++half)
            if (halves >> half & 1) f(half * Tmem::kColumns + columns.first);
    }

    // An MMA of this stream that is not known to be complete, and not pipelined with the operation at hand: of another
    // signature than `pipelined`, 0 for none. Its own operands may overlap its D only by mistake, but that is another
    // rule's.
    void check(const MmaMarks& earlier, u32 from, const Columns& columns, u32 pipelined, const char* mine,
               const char* theirs) {
        const u32 known = w_.clocks.tc.get(who_.agent), end = from + columns.count;
        for (const MmaMarks::Run& run : earlier.runs()) {
            const bool unordered =
                run.clock > known && run.clock != who_.clock && run.agent == who_.agent && run.signature != pipelined;
            if (unordered && std::max(from, run.from) < std::min(end, run.end)) report(run, columns, mine, theirs);
        }
    }

    void report(const MmaMarks::Run& earlier, const Columns& columns, const char* mine, const char* theirs) {
        const u32 first = earlier.from % Tmem::kColumns;
        machine_of(w_).report_strict(
            &w_, "mma-unordered",
            format("%s tensor memory columns %u-%u while an earlier tcgen05.mma %s columns %u-%u: the two are not "
                   "pipelined, and nothing waits for a commit in between",
                   mine, columns.first, columns.first + columns.count - 1, theirs, first,
                   first + earlier.end - earlier.from - 1),
            static_cast<i32>(who_.pc), static_cast<i32>(earlier.pc));
    }

    void mark(MmaMarks& marks, u32 from, const Columns& columns) {
        marks.mark({from, from + columns.count, who_.clock, who_.pc, signature_, who_.agent});
    }

    Warp& w_;
    const Accessor& who_;
    u32 signature_;
};

constexpr u32 kBothHalves = 3;

}  // namespace

void check_order(Warp& w, const Mma& op, const Accessor& who) {
    if (!strict(w)) return;
    OrderCheck order(w, who, signature_of(op));
    const u32 halves = !op.path.half ? kBothHalves : op.d_lane ? 2 : 1;
    for (Cta* cta : op.ctas) {
        if (!cta) continue;
        Tmem& t = cta->tmem;
        if (op.mods.a_tmem) order.read(t, halves, {op.a_column, kRowColumns}, "tcgen05.mma reads A from");
        if (op.mods.scales) {
            order.read(t, kBothHalves, op.scale_a_columns(), "tcgen05.mma reads scales of A from");
            order.read(t, kBothHalves, op.scale_b_columns(), "tcgen05.mma reads scales of B from");
        }
        if (op.mods.sparse)
            order.read(t, kBothHalves, op.metadata_columns(), "tcgen05.mma reads sparsity metadata from");
        order.accumulate(t, halves, op.d_columns());
    }
}

void check_copy_order(Warp& w, Cta& cta, const Columns& written, const Accessor& who) {
    if (strict(w)) OrderCheck(w, who, 0).copy(cta.tmem, kBothHalves, written);
}

}  // namespace ptxm::tc
