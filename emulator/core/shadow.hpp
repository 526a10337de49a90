// Shadow state of a memory: who touched what last, in sectors.
//
// Shared and global memory: a sector is 32 bytes (eight 4-byte words), kept as one cell until an access covers only
// part of it, then as eight. Tensor memory: a sector is 16 lanes of one column, never split (no tcgen05 access is
// finer).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "clocks.hpp"

namespace ptxm {

struct Access {
    u32 clock = 0;  // 0: none
    u32 pc : 23 = 0;
    u32 bytes : 4 = 0xF;  // within a word, for accesses narrower than one
    u32 strong : 1 = 0;   // atomic, volatile or with memory-ordering semantics: two such never race
    u32 kind : 4 = 0;     // AgentKind: the agents of a cluster that is gone are not described anywhere else
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
    Access access(u32 bytes) const {
        Access a;
        a.clock = clock;
        a.pc = pc & 0x7FFFFF;
        a.bytes = bytes & 0xF;
        a.strong = strong;
        a.kind = static_cast<u32>(kind) & 0xF;
        a.agent = agent;
        a.cluster = cluster;
        return a;
    }
};

// Policy: bool ordered(const Access& earlier, bool earlier_was_write) for the accessor at hand.
template <class Ordered, class Report>
void touch_cell(Cell& cell, const Accessor& who, u8 bytes, bool check_uninitialised, Ordered&& ordered,
                Report&& report) {
    if (cell.write.clock == 0) {
        if (!who.write && check_uninitialised) report(Conflict{nullptr, false, true});
    } else if ((cell.write.bytes & bytes) && !who.repeats && !ordered(cell.write, true)) {
        report(Conflict{&cell.write, true, false});
    }
    if (who.write) {
        for (u32 i = 0; i < cell.n_reads; ++i)
            if ((cell.reads[i].bytes & bytes) && !ordered(cell.reads[i], false))
                report(Conflict{&cell.reads[i], false, false});
        cell.write = who.access(who.same_agent(cell.write) ? cell.write.bytes | bytes : bytes);
        cell.n_reads = 0;
        return;
    }
    for (u32 i = 0; i < cell.n_reads; ++i) {
        if (who.same_agent(cell.reads[i])) {
            const bool strong = who.strong && cell.reads[i].strong;
            cell.reads[i] = who.access(cell.reads[i].bytes | bytes);
            cell.reads[i].strong = strong;
            return;
        }
    }
    // A reader that is ordered before this one can be forgotten: whoever is ordered after this read is after that one.
    for (u32 i = 0; i < cell.n_reads; ++i) {
        if (ordered(cell.reads[i], false)) {
            cell.reads[i] = who.access(bytes);
            return;
        }
    }
    if (cell.n_reads < Cell::kReaders)
        cell.reads[cell.n_reads++] = who.access(bytes);
    else
        cell.reads[who.pc % Cell::kReaders] = who.access(bytes);
}

class LinearShadow {
public:
    static constexpr u32 kSector = 32, kWords = 8;
    explicit LinearShadow(u64 bytes) : sectors_((bytes + kSector - 1) / kSector) {}

    template <class Ordered, class Report>
    void touch(u64 offset, u32 size, const Accessor& who, bool check_uninitialised, Ordered&& ordered,
               Report&& report) {
        const u64 end = offset + size;
        while (offset < end) {
            const u64 sector_end = (offset / kSector + 1) * kSector;
            const u64 stop = std::min(end, sector_end);
            Sector& s = sectors_[offset / kSector];
            const bool whole = offset % kSector == 0 && stop == sector_end;
            if (whole && !s.words) {
                touch_cell(s.cell, who, 0xF, check_uninitialised, ordered, report);
            } else {
                if (!s.words) split(s);
                touch_words(s, offset, stop, who, check_uninitialised, ordered, report);
            }
            offset = stop;
        }
    }

private:
    struct Sector {
        Cell cell;
        std::unique_ptr<std::array<Cell, kWords>> words;
    };

    static void split(Sector& s) {
        s.words = std::make_unique<std::array<Cell, kWords>>();
        s.words->fill(s.cell);
    }

    template <class Ordered, class Report>
    void touch_words(Sector& s, u64 offset, u64 stop, const Accessor& who, bool check, Ordered&& ordered,
                     Report&& report) {
        while (offset < stop) {
            const u64 word_end = (offset / 4 + 1) * 4;
            const u64 to = std::min(stop, word_end);
            const u8 bytes = static_cast<u8>(((1u << (to - offset)) - 1) << (offset % 4));
            touch_cell((*s.words)[offset / 4 % kWords], who, bytes, check, ordered, report);
            offset = to;
        }
    }

    std::vector<Sector> sectors_;
};

class TmemShadow {
public:
    static constexpr u32 kLaneGroups = 8, kColumns = 512;
    TmemShadow() : cells_(kLaneGroups * kColumns) {}
    Cell& at(u32 lane, u32 column) { return cells_[lane / 16 * kColumns + column]; }
    void forget(u32 column, u32 count) {
        for (u32 g = 0; g < kLaneGroups; ++g)
            for (u32 c = column; c < column + count; ++c) cells_[g * kColumns + c] = Cell{};
    }

private:
    std::vector<Cell> cells_;
};

}  // namespace ptxm
