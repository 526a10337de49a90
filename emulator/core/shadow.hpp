// Shadow state of a memory: the past of each of its cells, by number.
//
// Shared and global memory: a chunk of 16 bytes is one cell until an access covers only part of it, then one a word,
// and so on down to bytes. Tensor memory: a cell is 16 lanes of a column (no tcgen05 access is finer).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "past.hpp"

namespace ptxm {

// The cells of a run. Neighbours mostly have the same past: eight are looked at together.
template <class Touch>
inline void touch_run(u32* cells, u32 n, Touch& touch) {
    constexpr std::ptrdiff_t kTogether = 8;
    for (u32* const end = cells + n; cells != end;) {
        const u32 before = *cells, after = touch(before);
        *cells++ = after;
        for (; end - cells >= kTogether; cells += kTogether) {
            u32 differences = 0;
            for (std::ptrdiff_t j = 0; j < kTogether; ++j) differences |= cells[j] ^ before;
            if (differences) break;
            for (std::ptrdiff_t j = 0; j < kTogether; ++j) cells[j] = after;
        }
        while (cells != end && *cells == before) *cells++ = after;
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
        parts_.clear();
        free_parts_.clear();
        pasts_.reset();
    }
    void forget() { reset(pages_.size() * kPageBytes); }

    // For an operation that begins.
    Pasts& pasts() {
        if (pasts_.crowded()) pasts_.forget_unused([this](auto visit) { each_number(visit); });
        return pasts_;
    }
    template <class Touch>
    void touch(u64 offset, u64 size, Touch& touch) {
        const u32 at = static_cast<u32>(offset % kPageBytes);
        if (Page* p = pages_[offset / kPageBytes].get(); p && at + size <= kPageBytes) {
            // Mostly some chunks of one page, none of them divided; or a word of one that is.
            if (p->divided == 0 && (offset | size) % kChunk == 0)
                return touch_run(p->cells.data() + at / kChunk, static_cast<u32>(size / kChunk), touch);
            const u32 chunk = p->cells[at / kChunk];
            if (chunk & kDivided && size == kWord && at % kWord == 0) {
                u32& word = parts_[chunk & ~kDivided][at % kChunk / kWord];
                if (!(word & kDivided)) {
                    word = touch(word);
                    return;
                }
            }
        }
        touch_any(offset, offset + size, touch);
    }

private:
    static constexpr u32 kChunk = 16, kWord = 4, kChunks = 1024, kPageBytes = kChunk * kChunks, kParts = 4;
    static constexpr u32 kDivided = 1u << 31;  // the rest of the cell is an index into parts_
    struct Page {
        std::array<u32, kChunks> cells{};
        u32 divided = 0;  // of its chunks
    };
    using Parts = std::array<u32, kParts>;

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

    // Not inlined: the loops over the ranges of an operation are to be short.
    template <class Touch>
    [[gnu::noinline]] void touch_any(u64 from, u64 to, Touch& touch) {
        while (from < to) {
            const u64 start = from / kPageBytes * kPageBytes, stop = std::min(to, start + kPageBytes);
            touch_page(page(from / kPageBytes), static_cast<u32>(from - start), static_cast<u32>(stop - start), touch);
            from = stop;
        }
    }

    template <class Touch>
    void touch_page(Page& page, u32 from, u32 to, Touch& touch) {
        if (page.divided == 0 && from % kChunk == 0 && to % kChunk == 0)
            return touch_run(page.cells.data() + from / kChunk, (to - from) / kChunk, touch);
        while (from < to) {
            const u32 n = from / kChunk, stop = std::min(to, (n + 1) * kChunk);
            u32& cell = page.cells[n];
            const bool was_divided = cell & kDivided;
            cell = touch_part<kChunk>(cell, from - n * kChunk, stop - n * kChunk, touch);
            page.divided += static_cast<u32>((cell & kDivided) != 0) - static_cast<u32>(was_divided);
            from = stop;
        }
    }

    // The bytes [from, to) of a cell of kSize bytes; what the cell becomes.
    template <u32 kSize, class Touch>
    u32 touch_part(u32 cell, u32 from, u32 to, Touch& touch) {
        const bool whole = to - from == kSize;
        if (whole && !(cell & kDivided)) return touch(cell);
        if constexpr (kSize == 1) {
            return cell;
        } else {
            constexpr u32 kPart = kSize / kParts;
            const u32 index = cell & kDivided ? cell & ~kDivided : divide(cell);
            for (u32 at = from; at < to; at = (at / kPart + 1) * kPart) {
                const u32 n = at / kPart;
                const u32 after =
                    touch_part<kPart>(parts_[index][n], at % kPart, std::min(to - n * kPart, kPart), touch);
                parts_[index][n] = after;
            }
            return whole ? joined(index) : index | kDivided;
        }
    }

    u32 divide(u32 cell) {
        if (free_parts_.empty()) {
            parts_.push_back({});
            free_parts_.push_back(static_cast<u32>(parts_.size() - 1));
        }
        const u32 index = free_parts_.back();
        free_parts_.pop_back();
        parts_[index].fill(cell);
        return index;
    }

    // One cell again where all parts have the same past.
    u32 joined(u32 index) {
        const Parts& p = parts_[index];
        if (p[0] & kDivided || p[0] != p[1] || p[0] != p[2] || p[0] != p[3]) return index | kDivided;
        free_parts_.push_back(index);
        return p[0];
    }

    // Parts that are free count as well: they keep a few pasts for longer.
    template <class Visit>
    void each_number(Visit visit) const {
        const auto visit_cell = [&](u32 cell) {
            if (!(cell & kDivided)) visit(cell);
        };
        for (const std::unique_ptr<Page>& page : pages_)
            if (page) std::for_each(page->cells.begin(), page->cells.end(), visit_cell);
        for (const Parts& parts : parts_) std::for_each(parts.begin(), parts.end(), visit_cell);
    }

    Pasts pasts_;
    std::vector<std::unique_ptr<Page>> pages_, spares_;
    std::vector<Parts> parts_;
    std::vector<u32> free_parts_;
};

class TmemShadow {
public:
    static constexpr u32 kLanes = 16, kLaneGroups = 8, kColumns = 512;
    // For an operation that begins.
    Pasts& pasts() {
        if (pasts_.crowded())
            pasts_.forget_unused([this](auto visit) { std::for_each(cells_.begin(), cells_.end(), visit); });
        return pasts_;
    }
    // 16 lanes, from a multiple of 16 on.
    template <class Touch>
    void touch(u32 lane, u32 column, u32 columns, Touch& touch) {
        touch_run(&cells_[lane / kLanes * kColumns + column], columns, touch);
    }
    // All of what is to be touched.
    void forget(u32 column, u32 columns) {
        cells_.resize(kLaneGroups * kColumns);
        for (u32 n = 0; n < kLaneGroups; ++n) std::fill_n(cells_.begin() + n * kColumns + column, columns, 0);
    }
    void reset() {
        std::fill(cells_.begin(), cells_.end(), 0);
        pasts_.reset();
    }

private:
    Pasts pasts_;
    std::vector<u32> cells_;  // by group of lanes, then column
};

}  // namespace ptxm
