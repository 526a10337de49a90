// Shadow state of a memory: the past of each of its cells, by number.
//
// Shared and global memory: a chunk of 16 bytes is one cell until an access covers only part of it, then one a word,
// and so on down to bytes. Tensor memory: a cell is 16 lanes of a column (no tcgen05 access is finer).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "past.hpp"

namespace ptxm {

// Replaces n cells that are all `before` by `after`; false when they are not, and then they stay. Written out: GCC
// compares them one by one.
inline bool replace8(u32* cells, u32 before, u32 after) {
#ifdef __AVX2__
    const auto at = reinterpret_cast<__m256i*>(cells);
    const __m256i other = _mm256_xor_si256(_mm256_loadu_si256(at), _mm256_set1_epi32(static_cast<i32>(before)));
    if (!_mm256_testz_si256(other, other)) return false;
    _mm256_storeu_si256(at, _mm256_set1_epi32(static_cast<i32>(after)));
#else
    u32 other = 0;
    for (u32 j = 0; j < 8; ++j) other |= cells[j] ^ before;
    if (other) return false;
    std::fill_n(cells, 8, after);
#endif
    return true;
}
inline bool replace16(u32* cells, u32 before, u32 after) {
#ifdef __AVX512F__
    if (_mm512_cmpneq_epi32_mask(_mm512_loadu_si512(cells), _mm512_set1_epi32(static_cast<i32>(before)))) return false;
    _mm512_storeu_si512(cells, _mm512_set1_epi32(static_cast<i32>(after)));
    return true;
#else
    static_cast<void>(cells), static_cast<void>(before), static_cast<void>(after);
    return false;
#endif
}

// The cells of a run. Neighbours mostly have the same past: several are looked at together, and `touch` only sees those
// whose past is not the one that `last` saw last.
template <class Last, class Touch>
[[gnu::always_inline]] inline void touch_run(u32* cells, u32 n, const Last& last, Touch&& touch) {
    u32* const end = cells + n;
    if (n && last.before() == Pasts::kNone) {  // the first of its operation
        *cells = touch(*cells);
        ++cells;
    }
    while (end - cells >= 16 && replace16(cells, last.before(), last.after())) cells += 16;
    while (end - cells >= 8) {
        if (!replace8(cells, last.before(), last.after()) && !last.replace_met(cells))
            for (u32 j = 0; j < 8; ++j) cells[j] = cells[j] == last.before() ? last.after() : touch(cells[j]);
        cells += 8;
        while (end - cells >= 16 && replace16(cells, last.before(), last.after())) cells += 16;
    }
    for (; cells != end; ++cells) *cells = *cells == last.before() ? last.after() : touch(*cells);
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
            // Mostly some chunks of one page; or a word of one that is divided.
            if ((offset | size) % kChunk == 0) return touch_chunks(p->data() + at / kChunk, size / kChunk, touch);
            u32& chunk = (*p)[at / kChunk];
            if (chunk & kDivided && size == kWord && at % kWord == 0) {
                u32& word = parts_[chunk & ~kDivided][at % kChunk / kWord];
                if (!(word & kDivided)) {
                    word = touch(word);
                    return;
                }
            }
            if (at % kChunk + size <= kChunk) {
                chunk = touch_inside(chunk, at % kChunk, at % kChunk + static_cast<u32>(size), touch);
                return;
            }
        }
        touch_any(offset, offset + size, touch);
    }

    // `size` bytes of each lane, a power of two up to a chunk and aligned to it, `offset` further on. False, and no
    // cell has another past, where something finer has been accessed and when `refused` turns true.
    template <class Touch>
    bool touch_lanes(const u64 (&lanes)[kLanes], u32 size, u64 offset, Touch& touch, const bool& refused) {
        if (size < kChunk)
            for (u64 lane : lanes) divide_for(lane + offset, size);
        u32* cells[2 * kLanes];
        u32 n = 0;
        for (u64 lane : lanes) {
            const u64 at = lane + offset;
            cells[n++] = cell_at(at, size);
            if (size == 2) cells[n++] = cell_at(at + 1, size);
            if (size == 2 * kWord) cells[n++] = cell_at(at + kWord, size);
        }
        u32 before[2 * kLanes] = {}, others = 0;
        for (u32 k = 0; k < n; ++k) before[k] = *cells[k];
        for (u32 k = 0; k < n; ++k) others |= before[k] ^ before[0];
        if (!others && !(before[0] & kDivided)) {
            const u32 after = touch(before[0]);
            if (refused) return false;
            for (u32 k = 0; k < n; ++k) *cells[k] = after;
            return true;
        }
        u32 after[2 * kLanes] = {};
        for (u32 k = 0; k < n; ++k) {
            if (before[k] & kDivided) return false;
            after[k] = touch(before[k]);
            if (refused) return false;
        }
        for (u32 k = 0; k < n; ++k) *cells[k] = after[k];
        return true;
    }

    // Ranges of one operation, `offset` further on; `at` is the one at hand.
    template <class R, class Touch>
    void touch_each(std::span<const R> ranges, u64 offset, const R*& at, Touch& touch) {
        for (const R *r = ranges.data(), *const end = r + ranges.size(); r != end; ++r) {
            if (r->bytes == 2 * kChunk) r = touch_pairs(r, end, offset, at, touch);
            if (r == end) return;
            at = r;
            const u64 start = r->start + offset;
            Page* const page = pages_[start / kPageBytes].get();
            // A row of a tensor copy.
            if (r->bytes == 8 * kChunk && page && start % kChunk == 0 && start % kPageBytes <= kPageBytes - r->bytes &&
                replace8(page->data() + start % kPageBytes / kChunk, touch.before(), touch.after()))
                continue;
            if (r->bytes == kChunk && start % kChunk == 0 && page) {  // of a lane each
                u32& cell = (*page)[start % kPageBytes / kChunk];
                cell = cell == touch.before() ? touch.after() : touch_chunk(cell, touch);
            } else {
                this->touch(start, r->bytes, touch);
            }
        }
    }

private:
    static constexpr u32 kChunk = 16, kWord = 4, kChunks = 1024, kPageBytes = kChunk * kChunks, kParts = 4;
    static constexpr u32 kDivided = 1u << 31;  // the rest of the cell is an index into parts_
    using Page = std::array<u32, kChunks>;
    using Parts = std::array<u32, kParts>;

    Page& page(u64 n) {
        if (!pages_[n]) {
            if (spares_.empty()) {
                pages_[n] = std::make_unique<Page>();
            } else {
                pages_[n] = std::move(spares_.back());
                spares_.pop_back();
                pages_[n]->fill(0);
            }
        }
        return *pages_[n];
    }

    // A tensor core mostly reads a pair of chunks of each row. Stops at the first range that is none, or that lies in
    // another page.
    template <class R, class Touch>
    const R* touch_pairs(const R* r, const R* end, u64 offset, const R*& at, Touch& touch) {
        constexpr u32 kPair = 2 * kChunk;
        constexpr u64 kBoth = u64{1} << 32 | 1;
        const u64 n = (r->start + offset) / kPageBytes, first = n * kPageBytes - offset;
        Page* const page = pages_[n].get();
        u64 before = kBoth * touch.before(), after = kBoth * touch.after();
        for (; page && r != end; ++r) {
            const u64 from = r->start - first;  // wraps before the page
            if (from > kPageBytes - kPair || (r->bytes ^ kPair) | from % kChunk) break;
            u32* const cells = page->data() + from / kChunk;
            u64 pair;
            std::memcpy(&pair, cells, sizeof pair);
            if (pair == before) {
                std::memcpy(cells, &after, sizeof after);
                continue;
            }
            at = r;
            for (u32 c = 0; c < 2; ++c) cells[c] = touch_chunk(cells[c], touch);
            before = kBoth * touch.before();
            after = kBoth * touch.after();
        }
        return r;
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
    [[gnu::always_inline]] void touch_chunks(u32* cells, u64 n, Touch& touch) {
        touch_run(cells, static_cast<u32>(n), touch, [&](u32 cell) { return touch_chunk(cell, touch); });
    }

    // Not inlined, for the same reason.
    template <class Touch>
    [[gnu::noinline]] u32 touch_inside(u32 cell, u32 from, u32 to, Touch& touch) {
        return touch_part<kChunk>(cell, from, to, touch);
    }
    template <class Touch>
    [[gnu::noinline]] u32 touch_chunk(u32 cell, Touch& touch) {
        return cell & kDivided ? touch_part<kChunk>(cell, 0, kChunk, touch) : touch(cell);
    }

    template <class Touch>
    void touch_page(Page& page, u32 from, u32 to, Touch& touch) {
        while (from < to) {
            const u32 n = from / kChunk, stop = std::min(to, (n + 1) * kChunk);
            if (const u32 whole = from % kChunk ? 0 : (to - from) / kChunk) {
                touch_chunks(&page[n], whole, touch);
                from += whole * kChunk;
                continue;
            }
            page[n] = touch_part<kChunk>(page[n], from - n * kChunk, stop - n * kChunk, touch);
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

    u32& chunk_at(u64 at) { return page(at / kPageBytes)[at % kPageBytes / kChunk]; }

    // Makes cells as fine as an access of part of a chunk.
    void divide_for(u64 at, u32 size) {
        u32& chunk = chunk_at(at);
        if (!(chunk & kDivided)) chunk = divide(chunk) | kDivided;
        const u32 words = chunk & ~kDivided, n = at % kChunk / kWord;
        if (size >= kWord || parts_[words][n] & kDivided) return;
        const u32 bytes = divide(parts_[words][n]);  // which may move the words
        parts_[words][n] = bytes | kDivided;
    }

    // The cell of a chunk, or of a word or byte that divide_for has made.
    u32* cell_at(u64 at, u32 size) {
        u32& chunk = chunk_at(at);
        if (size == kChunk) return &chunk;
        u32& word = parts_[chunk & ~kDivided][at % kChunk / kWord];
        return size >= kWord ? &word : &parts_[word & ~kDivided][at % kWord];
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
            if (page) std::for_each(page->begin(), page->end(), visit_cell);
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
        touch_run(&cells_[lane / kLanes * kColumns + column], columns, touch, touch);
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
