// Shadow state of a memory: who touched what last.
//
// Shared and global memory: a sector of 32 bytes is one cell until an access covers only part of it, then two of 16
// bytes; these divide further into words and bytes. Tensor memory: eight columns of 16 lanes are one cell, and divide
// into columns (no tcgen05 access is finer).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "clocks.hpp"

namespace ptxm {

struct Access {
    u32 clock = 0;  // 0: none
    u32 pc : 27 = 0;
    u32 strong : 1 = 0;  // atomic, volatile or with memory-ordering semantics: two such never race
    u32 kind : 4 = 0;    // AgentKind: the agents of a cluster that is gone are not described anywhere else
    AgentId agent = 0;
    u16 cluster = 0;  // agents are numbered within their cluster; 0 in memory that only one cluster reaches
};
static_assert(sizeof(Access) == 12);

struct Cell {
    static constexpr u32 kReaders = 4;
    Access write;
    std::array<Access, kReaders> reads;
    u8 n_reads = 0;
};

struct Conflict {
    const Access* earlier = nullptr;
    bool earlier_was_write = false;
    bool uninitialised = false;
};

// Who is accessing now.
struct Accessor {
    AgentId agent;
    u32 clock;
    u32 pc;
    bool write;
    bool strong = false;
    u16 cluster = 0;
    AgentKind kind = AgentKind::warp;
    bool repeats = false;  // writes the value that is there: no conflict with whoever wrote it

    bool same_agent(const Access& a) const { return a.agent == agent && a.cluster == cluster; }
    Access access() const {
        Access a;
        a.clock = clock;
        a.pc = pc & 0x7FFFFFF;
        a.strong = strong;
        a.kind = static_cast<u32>(kind) & 0xF;
        a.agent = agent;
        a.cluster = cluster;
        return a;
    }
};

// Policy: bool ordered(const Access& earlier, bool earlier_was_write) for the accessor at hand.
template <class Ordered, class Report>
void touch_cell(Cell& cell, const Accessor& who, bool check_uninitialised, Ordered&& ordered, Report&& report) {
    if (cell.write.clock == 0) {
        if (!who.write && check_uninitialised) report(Conflict{nullptr, false, true});
    } else if (!who.repeats && !ordered(cell.write, true)) {
        report(Conflict{&cell.write, true, false});
    }
    if (who.write) {
        for (u32 i = 0; i < cell.n_reads; ++i)
            if (!ordered(cell.reads[i], false)) report(Conflict{&cell.reads[i], false, false});
        cell.write = who.access();
        cell.n_reads = 0;
        return;
    }
    for (u32 i = 0; i < cell.n_reads; ++i) {
        if (who.same_agent(cell.reads[i])) {
            const bool strong = who.strong && cell.reads[i].strong;
            cell.reads[i] = who.access();
            cell.reads[i].strong = strong;
            return;
        }
    }
    // A reader that is ordered before this one can be forgotten: whoever is ordered after this read is after that one.
    for (u32 i = 0; i < cell.n_reads; ++i) {
        if (ordered(cell.reads[i], false)) {
            cell.reads[i] = who.access();
            return;
        }
    }
    if (cell.n_reads < Cell::kReaders)
        cell.reads[cell.n_reads++] = who.access();
    else
        cell.reads[who.pc % Cell::kReaders] = who.access();
}

// What is never divided: a byte of linear memory, 16 lanes of a column of tensor memory.
struct Indivisible {
    static constexpr u32 kSize = 1;
    Cell cell;
};

// One cell, or one a part from the first access that covers only some of it to the next write that covers all.
template <class Part, u32 kParts>
struct Divisible {
    using PartType = Part;
    static constexpr u32 kSize = Part::kSize * kParts;
    Cell cell;
    std::unique_ptr<std::array<Part, kParts>> parts;
    void divide() {
        parts = std::make_unique<std::array<Part, kParts>>();
        for (Part& p : *parts) p.cell = cell;
    }
};

// Visits the cells of [from, to) of a part.
template <class Part, class Visit>
void touch_part(Part& part, u32 from, u32 to, bool write, Visit& visit) {
    if constexpr (Part::kSize > 1) {
        const bool whole = to - from == Part::kSize;
        if (!part.parts && !whole) part.divide();
        if (part.parts) {
            constexpr u32 step = Part::PartType::kSize;
            for (u32 at = from; at < to; at = (at / step + 1) * step)
                touch_part((*part.parts)[at / step], at % step, std::min(to - at / step * step, step), write, visit);
            if (!whole || !write) return;
            // Whoever comes next conflicts with this write or with nothing.
            part.cell = part.parts->front().cell;
            part.parts.reset();
            return;
        }
    }
    visit(part.cell);
}

template <class Part, class Visit>
void touch_range(std::vector<Part>& parts, u64 from, u64 to, bool write, Visit& visit) {
    while (from < to) {
        const u64 start = from / Part::kSize * Part::kSize, stop = std::min(to, start + Part::kSize);
        touch_part(parts[from / Part::kSize], static_cast<u32>(from - start), static_cast<u32>(stop - start), write,
                   visit);
        from = stop;
    }
}

class LinearShadow {
public:
    explicit LinearShadow(u64 bytes) { reset(bytes); }

    void reset(u64 bytes) {
        sectors_.clear();
        sectors_.resize((bytes + Sector::kSize - 1) / Sector::kSize);
    }

    template <class Ordered, class Report>
    void touch(u64 offset, u32 size, const Accessor& who, bool check_uninitialised, Ordered&& ordered,
               Report&& report) {
        const auto visit = [&](Cell& cell) { touch_cell(cell, who, check_uninitialised, ordered, report); };
        touch_range(sectors_, offset, offset + size, who.write, visit);
    }

private:
    using Word = Divisible<Indivisible, 4>;
    using Chunk = Divisible<Word, 4>;  // what a lane's vector access covers
    using Sector = Divisible<Chunk, 2>;

    std::vector<Sector> sectors_;
};

class TmemShadow {
public:
    static constexpr u32 kLanes = 16, kLaneGroups = 8, kColumns = 512;
    TmemShadow() { forget(0, kColumns); }

    // 16 lanes, from a multiple of 16 on.
    template <class Ordered, class Report>
    void touch(u32 lane, u32 column, u32 columns, const Accessor& who, Ordered&& ordered, Report&& report) {
        const auto visit = [&](Cell& cell) { touch_cell(cell, who, true, ordered, report); };
        touch_range(groups_[lane / kLanes], column, column + columns, who.write, visit);
    }
    // Multiples of 8 columns.
    void forget(u32 column, u32 columns) {
        for (std::vector<Block>& group : groups_) {
            group.resize(kColumns / Block::kSize);
            for (u32 n = column / Block::kSize; n < (column + columns) / Block::kSize; ++n) group[n] = Block{};
        }
    }

private:
    using Block = Divisible<Indivisible, 8>;  // what an MMA reads of A; it writes multiples

    std::array<std::vector<Block>, kLaneGroups> groups_;
};

}  // namespace ptxm
