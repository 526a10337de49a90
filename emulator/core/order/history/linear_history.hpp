// Shadow state of shared and global memory: the past of each of its bytes.
//
// Memory is divided into blocks of 1024 bytes. A block whose bytes all have one past is the number of that past; one
// whose chunks of 16 bytes have few between them is a state (order/history/history_blocks.hpp); any other has cells,
// the numbers of pasts, a cell for every 16 bytes, 4, 2 or 1, by the finest access.
#pragma once

#include <cstddef>
#include <span>

#include "order/history/block_chunks.hpp"
#include "order/history/history_blocks.hpp"
#include "order/history/history_runs.hpp"
#include "order/history/history_store.hpp"

namespace ptxm {

// How an operation is remembered where it covers only part of a block.
enum class Grain : u8 {
    cells,
    chunks,  // as a state: of what others will access in the same parts
};

class LinearShadow {
public:
    static constexpr u32 kBlockBytes = ptxm::kBlockBytes;

    explicit LinearShadow(u64 bytes) { reset(bytes); }

    void reset(u64 bytes) {
        blocks_.assign((bytes + kBlockBytes - 1) / kBlockBytes, 0);
        cells_.clear();
        states_.reset();
        pasts_.reset();
    }
    void forget() { reset(blocks_.size() * kBlockBytes); }

    // Whether something has written all of these bytes.
    bool written(u64 offset, u64 size) {
        u64 bytes = 0;
        each_written(offset, offset + size, [&](u64 begin, u64 end) { bytes += end - begin; });
        return bytes == size;
    }
    // Calls f(begin, end) for the parts of [from, to) that something has written.
    template <class F>
    void each_written(u64 from, u64 to, F f) {
        each_piece(from, to, [&](u64 begin, u64 end, const Past& past) {
            if (past.write.clock) f(begin, end);
        });
    }
    // Calls f(past) for the parts of [from, to).
    template <class F>
    void each_past(u64 from, u64 to, F f) {
        each_piece(from, to, [&](u64, u64, const Past& past) { f(past); });
    }

    // For an operation that begins.
    Pasts& pasts() {
        changed_ = {};
        if (pasts_.crowded() || states_.crowded()) forget_unused();
        return pasts_;
    }

    template <class Touch>
    void touch(u64 offset, u64 size, Touch& touch, Grain grain = Grain::cells) {
        for (u64 from = offset, to = offset + size; from < to;) {
            const u64 n = from / kBlockBytes;
            const u32 at = static_cast<u32>(from % kBlockBytes);
            if (const u64 whole = at ? 0 : (to - from) / kBlockBytes) {
                touch_run(&blocks_[n], static_cast<u32>(whole), touch,
                          [&](u32 block) { return touch_block(block, touch); });
                from += whole * kBlockBytes;
                continue;
            }
            const u32 end = static_cast<u32>(std::min<u64>(kBlockBytes, at + (to - from)));
            touch_part(n, at, end, touch, grain);
            from += end - at;
        }
    }

    // Ranges of one operation, `offset` further on; `at` is the one at hand.
    template <class R, class Touch>
    void touch_each(std::span<const R> ranges, u64 offset, const R*& at, Touch& touch, Grain grain) {
        for (const R& r : ranges) {
            at = &r;
            const u64 start = r.start + offset;
            const u32 block = blocks_[start / kBlockBytes], in = static_cast<u32>(start % kBlockBytes);
            // A row of a tensor copy, or a lane's chunk, where cells are as large.
            if (block >> kFineness == kOther >> kFineness && in % kChunk == 0) {
                u32* const cell = cells_of(block) + in / kChunk;
                if (r.bytes == 8 * kChunk && in + r.bytes <= kBlockBytes &&
                    replace8(cell, touch.before(), touch.after()))
                    continue;
                if (r.bytes == kChunk) {
                    *cell = *cell == touch.before() ? touch.after() : touch(*cell);
                    continue;
                }
            }
            this->touch(start, r.bytes, touch, grain);
        }
    }

    // `offset` further on. False, and nothing has another past, when `refused` turns true.
    template <class Touch>
    bool touch_lanes(const LanePieces& all, u64 offset, Touch& touch, const bool& refused) {
        const u64(&lanes)[kLanes] = all.at;
        const u32 size = all.size;
        const u64 span = all.end - all.low;
        constexpr u64 kFar = 8 * kBlockBytes, kApart = kSetCells / 4;
        const u64 step = std::max(lanes[0], lanes[1]) - std::min(lanes[0], lanes[1]);
        u32* cells[kLanes];
        if ((span > kFar || step >= kApart << shift_for(size)) && find_cells(lanes, size, offset, cells))
            return touch_cells(cells, touch, refused);
        LaneSets sets;
        if (!find_chunk_sets(all, offset, sets) && !find_even_sets(lanes, size, offset, sets))
            find_sets(lanes, size, offset, sets);
        for (u32 k = 0; k < sets.count; ++k) meet(sets.sets[k], touch);
        if (refused) return false;
        for (u32 k = 0; k < sets.count; ++k) replace(sets.sets[k], touch);
        return true;
    }

    // Whole chunks of blocks, `first` blocks further on, none of them twice. False, and nothing has another past, where
    // what they leave behind is too much for a state, and when `refused` turns true.
    template <class Touch>
    bool touch_blocks(std::span<const BlockChunks> all, u64 first, Touch& touch, const bool& refused) {
        alike_.clear();
        for (const BlockChunks& b : all) {
            const u32* const blocks = &blocks_[first + b.block];
            for (u32 k = 0; k < b.blocks; k += alike_.back().blocks) {
                u32 after = blocks[k], n = 1;
                if (has_cells(after)) {
                    each_set(after, b.chunks, [&](const CellSet& set) { meet(set, touch); });
                } else {
                    n = count_alike(blocks + k, b.blocks - k);
                    after = change_part(after, b.chunks, touch);
                    if (after == kNothing) return false;
                }
                alike_.push_back({n, after});
            }
        }
        if (refused) return false;
        auto next = alike_.begin();
        for (const BlockChunks& b : all) {
            for (u32 k = 0; k < b.blocks; k += next++->blocks) {
                if (has_cells(next->after))
                    each_set(next->after, b.chunks, [&](const CellSet& set) { replace(set, touch); });
                else
                    std::fill_n(&blocks_[first + b.block + k], next->blocks, next->after);
            }
        }
        return true;
    }

private:
    static constexpr u32 kChunk = 16, kSetCells = 64, kChunkShift = 4;
    // What is not the number of a past: a state, or cells of 1 << (4, 2, 1 or 0) bytes.
    static constexpr u32 kOther = 1u << 31, kState = 1u << 30, kFineness = 28, kIndex = (1u << kFineness) - 1;
    static constexpr u32 kNothing = ~0u;
    static constexpr u32 kShifts[] = {kChunkShift, 2, 1, 0};

    static bool has_cells(u32 block) { return (block & (kOther | kState)) == kOther; }
    static bool has_state(u32 block) { return (block & (kOther | kState)) == (kOther | kState); }
    static u32 shift_of(u32 block) { return kShifts[block >> kFineness & 3]; }
    // Of the coarsest cells that a multiple of `bytes` is a multiple of.
    static u32 shift_for(u32 bytes) { return bytes % 16 == 0 ? 4 : bytes % 4 == 0 ? 2 : bytes % 2 == 0 ? 1 : 0; }
    static u32 cells_in(u32 block) { return kBlockBytes >> shift_of(block); }
    u32* cells_of(u32 block) { return cells_[block & kIndex]; }

    struct LaneSets {
        CellSet sets[kLanes];
        u32 count = 0;
    };
    static u64 bits(u32 n) { return (u64{2} << (n - 1)) - 1; }

    void find_sets(const u64 (&lanes)[kLanes], u32 size, u64 offset, LaneSets& found) {
        const u32 coarsest = shift_for(size);
        u64 places[kLanes];  // of the sets
        u64 block = ~u64{0}, place = block, highest = 0, members = 0;
        u32 n = 0, k = 0, shift = 0;
        u32* cells = nullptr;
        for (u64 lane : lanes) {
            const u64 at = lane + offset;
            if (at / kBlockBytes != block) {
                block = at / kBlockBytes;
                cells = cells_for(block, coarsest);
                shift = shift_of(blocks_[block]);
                members = bits(size >> shift);
            }
            const u32 cell = static_cast<u32>(at % kBlockBytes) >> shift;
            if (const u64 here = block * kBlockBytes + cell / kSetCells; here != place) {
                place = here;
                k = n;
                if (n && place <= highest)  // lanes mostly ascend
                    k = static_cast<u32>(std::find(places, places + n, place) - places);
                if (k == n) {
                    found.sets[n] = {cells + cell / kSetCells * kSetCells, 0};
                    places[n++] = place;
                    highest = std::max(highest, place);
                }
            }
            found.sets[k].members |= members << cell % kSetCells;
        }
        found.count = n;
    }
    // Chunks in few blocks that have a cell for each; false where they are not.
    bool find_chunk_sets(const LanePieces& all, u64 offset, LaneSets& found) {
        constexpr u64 kMostBlocks = 4;
        const u64 first = (all.low + offset) / kBlockBytes, last = (all.end + offset - 1) / kBlockBytes;
        if (all.size != kChunk || last - first >= kMostBlocks) return false;
        for (u64 n = first; n <= last; ++n)
            if (has_cells(blocks_[n]) && shift_of(blocks_[n]) != kChunkShift) return false;
        for (u64 n = first; n <= last; ++n) {
            u64 members = 0;
            for (u64 lane : all.at) {
                const u64 at = lane + offset, chunk = u64{1} << at / kChunk % kSetCells;
                members |= at / kBlockBytes == n ? chunk : 0;
            }
            if (members) found.sets[found.count++] = {cells_for(n, kChunkShift), members};
        }
        return true;
    }
    // Lanes at equal distances, a power of two; false where they are not.
    bool find_even_sets(const u64 (&lanes)[kLanes], u32 size, u64 offset, LaneSets& found) {
        constexpr u64 kFarthest = 64;
        const u64 distance = lanes[1] - lanes[0];
        u64 differences = 0;
        for (u32 l = 1; l < kLanes; ++l) differences |= (lanes[l] - lanes[l - 1]) ^ distance;
        if (differences || distance < size || distance > kFarthest || !std::has_single_bit(distance)) return false;
        const u32 coarsest = shift_for(size);
        for (u32 lane = 0; lane < kLanes;) {
            const u64 at = lanes[lane] + offset, block = at / kBlockBytes;
            u32* const cells = cells_for(block, coarsest);
            const u32 shift = shift_of(blocks_[block]), step = static_cast<u32>(distance) >> shift;
            const u32 cell = static_cast<u32>(at % kBlockBytes) >> shift, in = cell % kSetCells;
            const u32 count = std::min(kLanes - lane, (kSetCells - in + step - 1) / step);
            const u64 firsts = (~u64{0} / bits(step)) & bits(std::min(count * step, kSetCells));
            found.sets[found.count++] = {cells + (cell - in), (firsts * bits(size >> shift)) << in};
            lane += count;
        }
        return true;
    }

    // A cell for each lane; false where it takes several.
    bool find_cells(const u64 (&lanes)[kLanes], u32 size, u64 offset, u32* (&cells)[kLanes]) {
        const u32 shift = shift_for(size);
        u32 others = size >> shift ^ 1;
        for (u32 l = 0; l < kLanes; ++l) {
            const u64 at = lanes[l] + offset, n = at / kBlockBytes;
            cells[l] = cells_for(n, shift) + (at % kBlockBytes >> shift);
            others |= shift_of(blocks_[n]) ^ shift;
        }
        return others == 0;
    }
    template <class Touch>
    static bool touch_cells(u32* const (&cells)[kLanes], Touch& touch, const bool& refused) {
        u32 before[kLanes], after[kLanes], others = 0;
        for (u32 l = 0; l < kLanes; ++l) before[l] = *cells[l];
        for (u32 l = 0; l < kLanes; ++l) others |= before[l] ^ before[0];
        std::fill_n(after, kLanes, touch(before[0]));
        for (u32 l = 1; others && l < kLanes; ++l) after[l] = touch(before[l]);
        if (refused) return false;
        for (u32 l = 0; l < kLanes; ++l) *cells[l] = after[l];
        return true;
    }

    // The cells of some chunks, in sets.
    template <class F>
    [[gnu::always_inline]] void each_set(u32 block, u64 chunks, F f) {
        u32* const cells = cells_of(block);
        const u32 shift = shift_of(block);
        if (shift == kChunkShift) return f(CellSet{cells, chunks});
        const u32 in_chunk = 16u >> shift, chunks_in_set = kSetCells / in_chunk;
        for (u32 n = 0; n < 64; n += chunks_in_set) {
            u64 members = 0;
            for (u32 k = 0; k < chunks_in_set; ++k)
                if (chunks >> (n + k) & 1) members |= ((u64{1} << in_chunk) - 1) << k * in_chunk;
            if (members) f(CellSet{cells + n * in_chunk, members});
        }
    }

    template <class F>
    void each_piece(u64 from, u64 to, F f) {
        for (u64 at = from, next = at; at < to; at = next) {
            const u32 block = blocks_[at / kBlockBytes];
            const u64 step = !(block & kOther) ? kBlockBytes : has_cells(block) ? u64{1} << shift_of(block) : kChunk;
            next = std::min(to, (at / step + 1) * step);
            f(at, next, pasts_[number_at(at)]);
        }
    }

    // Of the past of a byte.
    u32 number_at(u64 at) {
        const u32 block = blocks_[at / kBlockBytes], in = static_cast<u32>(at % kBlockBytes);
        if (!(block & kOther)) return block;
        if (has_cells(block)) return cells_of(block)[in >> shift_of(block)];
        const BlockState& s = states_[block & kIndex];
        u32 k = 0;
        while (!(s.chunks[k] >> in / kChunk & 1)) ++k;
        return s.numbers[k];
    }

    // Not inlined: the loops over the ranges of an operation are to be short.
    template <class Touch>
    [[gnu::noinline]] void touch_part(u64 n, u32 from, u32 to, Touch& touch, Grain grain) {
        u32& block = blocks_[n];
        const u32 needed = shift_for(from | to);
        if (!has_cells(block)) {
            if (grain == Grain::chunks && needed == kChunkShift) {
                const u64 chunks = (~u64{0} >> (64 - (to - from) / 16)) << from / 16;
                if (const u32 changed = change_part(block, chunks, touch); changed != kNothing) {
                    block = changed;
                    return;
                }
            } else if (!has_state(block) && touch(block) == block) {
                return;
            }
        }
        u32* const cells = cells_for(n, needed);
        const u32 shift = shift_of(block);
        touch_run(cells + (from >> shift), (to - from) >> shift, touch, touch);
    }

    // What a block becomes of which all is accessed.
    template <class Touch>
    [[gnu::noinline]] u32 touch_block(u32 block, Touch& touch) {
        if (!(block & kOther)) return touch(block);
        if (has_state(block)) return change_part(block, ~u64{0}, touch);
        u32* const cells = cells_of(block);
        const u32 n = cells_in(block);
        touch_run(cells, n, touch, touch);
        u32 differences = 0;
        for (u32 k = 0; k < n; ++k) differences |= cells[k] ^ cells[0];
        if (differences) return block;
        const u32 number = cells[0];
        cells_.give_back(block & kIndex, n);
        return number;
    }

    // What a number or a state becomes of which some chunks are accessed; kNothing where it is too much for a state.
    template <class Touch>
    [[gnu::always_inline]] u32 change_part(u32 block, u64 chunks, Touch& touch) {
        if (block != changed_.before || chunks != changed_.chunks)
            changed_ = {chunks, block, change(block, chunks, touch)};
        return changed_.after;
    }
    template <class Touch>
    [[gnu::noinline]] u32 change(u32 block, u64 chunks, Touch& touch) {
        BlockParts parts;
        if (!has_state(block)) {
            parts.add(touch(block), chunks);
            parts.add(block, ~chunks);
        } else {
            const BlockState& s = states_[block & kIndex];
            std::array<u32, BlockState::kMost> after;
            for (u64 rest = chunks; rest;) {  // in the order of the chunks: it is that of what is reported
                u32 k = 0;
                while (!(s.chunks[k] & (rest & (0 - rest)))) ++k;
                after[k] = touch(s.numbers[k]);
                rest &= ~s.chunks[k];
            }
            for (u32 k = 0; k < s.n; ++k) {
                if (s.chunks[k] & chunks) parts.add(after[k], s.chunks[k] & chunks);
                if (s.chunks[k] & ~chunks) parts.add(s.numbers[k], s.chunks[k] & ~chunks);
            }
        }
        if (parts.size() == 1) return parts.first();
        if (parts.size() > BlockState::kMost) return kNothing;
        return kOther | kState | states_.index_of(parts.sorted());
    }

    // The cells of block `n`, which get as fine as 1 << shift bytes if they are not.
    u32* cells_for(u64 n, u32 shift) {
        const u32 block = blocks_[n];
        return has_cells(block) && shift_of(block) <= shift ? cells_of(block) : refine(n, shift);
    }
    [[gnu::noinline]] u32* refine(u64 n, u32 shift) {
        const u32 before = blocks_[n], fineness = shift == kChunkShift ? 0 : 3 - shift, count = kBlockBytes >> shift;
        const u32 at = cells_.take(count);
        u32* const cells = cells_[at];
        blocks_[n] = kOther | fineness << kFineness | at;
        if (!(before & kOther)) {
            std::fill_n(cells, count, before);
        } else if (has_state(before)) {
            const BlockState& s = states_[before & kIndex];
            for (u32 k = 0; k < s.n; ++k)
                for (u64 rest = s.chunks[k]; rest; rest &= rest - 1)
                    std::fill_n(cells + (static_cast<u32>(std::countr_zero(rest)) << (kChunkShift - shift)),
                                16u >> shift, s.numbers[k]);
        } else {
            const u32* const coarse = cells_of(before);
            const u32 parts = shift_of(before) - shift;
            for (u32 k = 0; k < count; ++k) cells[k] = coarse[k >> parts];
            cells_.give_back(before & kIndex, cells_in(before));
        }
        return cells;
    }

    [[gnu::noinline]] void forget_unused() {
        states_.forget_unused([this](auto visit) {
            for (u32 block : blocks_)
                if (has_state(block)) visit(block & kIndex);
        });
        if (!pasts_.crowded()) return;
        pasts_.forget_unused([this](auto visit) {
            for (u32 block : blocks_) {
                if (!(block & kOther)) visit(block);
                if (has_cells(block)) std::for_each_n(cells_of(block), cells_in(block), visit);
            }
            states_.each_number(visit);
        });
    }

    Pasts pasts_;
    BlockStates states_;
    CellStore cells_;
    std::vector<u32> blocks_;
    // The last change to part of a block that the operation in progress made.
    struct {
        u64 chunks = 0;
        u32 before = kNothing, after = 0;
    } changed_;
    // Of one operation: blocks side by side that were alike, and what they become.
    struct Alike {
        u32 blocks, after;
    };
    std::vector<Alike> alike_;
};

}  // namespace ptxm
