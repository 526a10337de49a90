// Runs and sets of a memory's cells, each the number of a past: what one operation makes of them, many at a time.
#pragma once

#include <algorithm>
#include <bit>

#include "order/history/access_history.hpp"

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

// How many of n cells, from the first on, are the same.
inline u32 count_alike(const u32* cells, u32 n) {
    u32 k = 1;
#ifdef __AVX512F__
    const __m512i first = _mm512_set1_epi32(static_cast<i32>(*cells));
    for (k = 0; k + 16 <= n; k += 16)
        if (const __mmask16 other = _mm512_cmpneq_epi32_mask(_mm512_loadu_si512(cells + k), first))
            return k + static_cast<u32>(std::countr_zero(static_cast<u32>(other)));
#endif
    while (k < n && cells[k] == *cells) ++k;
    return k;
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

// Up to 64 cells, side by side; a bit each for those that are meant.
struct CellSet {
    u32* cells;
    u64 members;
};

// Touches every past among them; no cell gets another yet.
template <class Touch>
void meet(const CellSet& set, Touch& touch) {
#ifdef __AVX512F__
    for (u32 n = 0; n < 64; n += 16) {
        const auto members = static_cast<__mmask16>(set.members >> n);
        if (!members) continue;
        const __m512i cells = _mm512_loadu_si512(set.cells + n);
        const __m512i before = _mm512_set1_epi32(static_cast<i32>(touch.before()));
        __mmask16 others = _mm512_mask_cmpneq_epi32_mask(members, cells, before);
        while (others && (others = static_cast<__mmask16>(others & ~touch.pasts().noted(others, cells))))
            touch(set.cells[n + static_cast<u32>(std::countr_zero(static_cast<u32>(others)))]);
    }
#else
    for (u64 rest = set.members; rest; rest &= rest - 1) touch(set.cells[std::countr_zero(rest)]);
#endif
}

// Gives each the past that follows its own, all of which this operation has met.
template <class Touch>
void replace(const CellSet& set, const Touch& touch) {
#ifdef __AVX512F__
    const __m512i before = _mm512_set1_epi32(static_cast<i32>(touch.before()));
    const __m512i after = _mm512_set1_epi32(static_cast<i32>(touch.after()));
    for (u32 n = 0; n < 64; n += 16) {
        const auto members = static_cast<__mmask16>(set.members >> n);
        if (!members) continue;
        const __m512i cells = _mm512_loadu_si512(set.cells + n);
        const bool alike = !_mm512_mask_cmpneq_epi32_mask(members, cells, before);
        _mm512_mask_storeu_epi32(set.cells + n, members, alike ? after : touch.pasts().after(members, cells));
    }
#else
    for (u64 rest = set.members; rest; rest &= rest - 1) {
        u32& cell = set.cells[std::countr_zero(rest)];
        cell = touch.pasts().after(cell);
    }
#endif
}

}  // namespace ptxm
