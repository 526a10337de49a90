// Shadow state of a memory: who touched what last.
//
// Shared and global memory: a sector of 32 bytes is one cell until an access covers only part of it, then two of 16
// bytes; these divide further into words, halves and bytes. Tensor memory: eight columns of 16 lanes are one cell, and
// divide into columns (no tcgen05 access is finer).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
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
    std::array<Access, kReaders> reads{};  // those from n_reads on are as they are in a new cell
    u32 n_reads = 0;
};
static_assert(std::has_unique_object_representations_v<Cell> && sizeof(Cell) == 64);

// A cell as bytes: one vector register. Without an initial value.
using CellBytes = std::array<u64, sizeof(Cell) / sizeof(u64)>;

inline bool same(const CellBytes& a, const CellBytes& b) {
    u64 differences = 0;
    for (u32 k = 0; k < a.size(); ++k) differences |= a[k] ^ b[k];
    return differences == 0;
}

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
        cell = Cell{who.access()};
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

// What one instruction does to the cells it covers. Neighbours were mostly touched by the same accesses before: then
// they have the same to report, which is told once, and become the same.
template <class Ordered, class Report>
class Touch {
public:
    Touch(const Accessor& who, bool check_uninitialised, Ordered ordered, Report report)
        : who_(who), check_uninitialised_(check_uninitialised), ordered_(ordered), report_(report) {}
    bool writes() const { return who_.write; }
    void operator()(Cell& cell) {
        // Rows of a tile are often written by as many instructions as they have pieces.
        const u32 slot = (cell.write.pc + cell.write.agent) % kSlots;
        const CellBytes before = std::bit_cast<CellBytes>(cell);
        if (known_ >> slot & 1 && same(before, before_[slot])) {
            cell = std::bit_cast<Cell>(after_[slot]);
            return;
        }
        before_[slot] = before;
        touch_cell(cell, who_, check_uninitialised_, ordered_, report_);
        after_[slot] = std::bit_cast<CellBytes>(cell);
        known_ |= 1u << slot;
    }

private:
    static constexpr u32 kSlots = 16;
    Accessor who_;
    bool check_uninitialised_;
    Ordered ordered_;
    Report report_;
    u32 known_ = 0;
    alignas(64) CellBytes before_[kSlots];
    alignas(64) CellBytes after_[kSlots];
};

// What is never divided: a byte of linear memory, 16 lanes of a column of tensor memory.
struct Indivisible {
    static constexpr u32 kSize = 1;
    Cell cell;
};

// The parts of divided cells: they come and go with every tile.
class Arena {
public:
    template <class T>
    T* make() {
        static_assert(std::is_trivially_destructible_v<T> && units<T>() < kUnits && alignof(T) <= kUnit);
        void*& free = free_[units<T>()];
        if (!free) return new (fresh(units<T>() * kUnit)) T();
        void* at = free;
        std::memcpy(&free, at, sizeof free);
        return new (at) T();
    }
    template <class T>
    void drop(T* at) {
        std::memcpy(static_cast<void*>(at), &free_[units<T>()], sizeof(void*));
        free_[units<T>()] = at;
    }
    // Drops all.
    void reset() {
        free_ = {};
        block_ = used_ = 0;
    }

private:
    static constexpr std::size_t kUnit = 16, kUnits = 64, kBlock = 1 << 16;
    template <class T>
    static constexpr std::size_t units() {
        return (sizeof(T) + kUnit - 1) / kUnit;
    }
    void* fresh(std::size_t bytes) {
        if (used_ + bytes > kBlock) {
            block_ += 1;
            used_ = 0;
        }
        if (block_ == blocks_.size()) blocks_.push_back(std::make_unique<std::byte[]>(kBlock));
        void* at = blocks_[block_].get() + used_;
        used_ += bytes;
        return at;
    }

    std::array<void*, kUnits> free_{};
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
    std::size_t block_ = 0, used_ = 0;
};

// One cell, or one a part from the first access that covers only some of it to the next write that covers all.
template <class Part, u32 kParts>
struct Divisible {
    using PartType = Part;
    using Parts = std::array<Part, kParts>;
    static constexpr u32 kSize = Part::kSize * kParts;
    Cell cell;
    Parts* parts = nullptr;
    void divide(Arena& arena) {
        parts = arena.make<Parts>();
        for (Part& p : *parts) p.cell = cell;
    }
    void join(Arena& arena) {
        if constexpr (Part::kSize > 1)
            for (Part& p : *parts)
                if (p.parts) p.join(arena);
        arena.drop(parts);
        parts = nullptr;
    }
};

// Visits the cells of [from, to) of a part.
template <class Part, class Visit>
void touch_part(Part& part, u32 from, u32 to, Arena& arena, Visit& visit) {
    if constexpr (Part::kSize > 1) {
        const bool whole = to - from == Part::kSize;
        if (!part.parts && !whole) part.divide(arena);
        if (part.parts) {
            constexpr u32 step = Part::PartType::kSize;
            for (u32 at = from; at < to; at = (at / step + 1) * step)
                touch_part((*part.parts)[at / step], at % step, std::min(to - at / step * step, step), arena, visit);
            if (!whole || !visit.writes()) return;
            // Whoever comes next conflicts with this write or with nothing.
            part.cell = part.parts->front().cell;
            part.join(arena);
            return;
        }
    }
    visit(part.cell);
}

template <class Part, class Visit>
void touch_range(std::vector<Part>& parts, u64 from, u64 to, Arena& arena, Visit& visit) {
    while (from < to) {
        const u64 start = from / Part::kSize * Part::kSize, stop = std::min(to, start + Part::kSize);
        touch_part(parts[from / Part::kSize], static_cast<u32>(from - start), static_cast<u32>(stop - start), arena,
                   visit);
        from = stop;
    }
}

// Memory is large and what a kernel touches of it may be little: pages are made on first use.
class LinearShadow {
public:
    explicit LinearShadow(u64 bytes) { reset(bytes); }

    void reset(u64 bytes) {
        for (std::unique_ptr<Page>& page : pages_)
            if (page) spares_.push_back(std::move(page));
        pages_.clear();
        pages_.resize((bytes + kPageBytes - 1) / kPageBytes);
        arena_.reset();
    }
    void forget() { reset(pages_.size() * kPageBytes); }

    template <class Visit>
    void touch(u64 offset, u64 size, Visit& visit) {
        for (u64 from = offset, to = offset + size; from < to;) {
            const u64 start = from / kPageBytes * kPageBytes, stop = std::min(to, start + kPageBytes);
            touch_page(page(from / kPageBytes), static_cast<u32>(from - start), static_cast<u32>(stop - start), visit);
            from = stop;
        }
    }

private:
    using Half = Divisible<Indivisible, 2>;
    using Word = Divisible<Half, 2>;
    using Chunk = Divisible<Word, 4>;  // what a lane's vector access covers
    using Sector = Divisible<Chunk, 2>;
    static constexpr u32 kSectors = 128, kPageBytes = Sector::kSize * kSectors;

    // Whole sectors lie side by side; `divided` has those that are not.
    struct Page {
        alignas(64) std::array<Cell, kSectors> cells;
        std::array<Sector*, kSectors> divided{};
        u32 count = 0;
    };

    Page& page(u64 n) {
        if (!pages_[n]) {
            if (spares_.empty()) {
                pages_[n] = std::make_unique<Page>();
            } else {
                pages_[n] = std::move(spares_.back());
                spares_.pop_back();
                *pages_[n] = Page{};
            }
        }
        return *pages_[n];
    }

    template <class Visit>
    void touch_page(Page& page, u32 from, u32 to, Visit& visit) {
        constexpr u32 size = Sector::kSize;
        if (page.count == 0 && from % size == 0 && to % size == 0) {
            for (u32 n = from / size; n < to / size; ++n) visit(page.cells[n]);
            return;
        }
        while (from < to) {
            const u32 n = from / size, stop = std::min(to, (n + 1) * size);
            touch_sector(page, n, from - n * size, stop - n * size, visit);
            from = stop;
        }
    }

    template <class Visit>
    void touch_sector(Page& page, u32 n, u32 from, u32 to, Visit& visit) {
        Sector*& sector = page.divided[n];
        if (!sector) {
            if (to - from == Sector::kSize) return visit(page.cells[n]);
            sector = arena_.make<Sector>();
            sector->cell = page.cells[n];
            page.count += 1;
        }
        touch_part(*sector, from, to, arena_, visit);
        if (sector->parts) return;
        page.cells[n] = sector->cell;
        arena_.drop(sector);
        sector = nullptr;
        page.count -= 1;
    }

    Arena arena_;
    std::vector<std::unique_ptr<Page>> pages_, spares_;
};

class TmemShadow {
public:
    static constexpr u32 kLanes = 16, kLaneGroups = 8, kColumns = 512;
    // 16 lanes, from a multiple of 16 on.
    template <class Visit>
    void touch(u32 lane, u32 column, u32 columns, Visit& visit) {
        touch_range(groups_[lane / kLanes], column, column + columns, arena_, visit);
    }
    // Multiples of 8 columns; all of what is to be touched.
    void forget(u32 column, u32 columns) {
        for (std::vector<Block>& group : groups_) {
            group.resize(kColumns / Block::kSize);
            for (u32 n = column / Block::kSize; n < (column + columns) / Block::kSize; ++n) {
                if (group[n].parts) group[n].join(arena_);
                group[n] = Block{};
            }
        }
    }

private:
    using Block = Divisible<Indivisible, 8>;  // what an MMA reads of A; it writes multiples

    Arena arena_;
    std::array<std::vector<Block>, kLaneGroups> groups_;
};

}  // namespace ptxm
