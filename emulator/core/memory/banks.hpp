// Bank conflicts of shared memory: 32 banks of a 32-bit word, each of which serves one word at a time.
//
// An instruction of more than 128 bytes goes through the banks in passes of as many lanes as 128 bytes hold: all 32
// with words, 16 with 8 bytes each, 8 with 16. Lanes of a pass that want the same word share it. A pass whose lanes
// want n different words of one bank takes n turns, which are n - 1 conflicts.
#pragma once

#include <algorithm>
#include <bit>

#include "isa/program.hpp"

namespace ptxm {

constexpr u32 kBankRow = 128;  // bytes of all banks
constexpr u32 kWord = 4;

// `at`: aligned addresses of `size` bytes a lane, a power of two; those of lanes outside `mask` may be anything.
inline u32 bank_conflicts(const u64* at, u32 mask, u32 size) {
    const u32 bytes = std::clamp(size, kWord, kBankRow), lanes = kBankRow / bytes;
    const u32 shift = static_cast<u32>(std::countr_zero(bytes));
    u32 taken = 0;  // a bit for each place of a pass and each pass
    for (u32 l = 0; l < kLanes; ++l)
        taken |= (mask >> l & 1) << ((l & ~(lanes - 1)) | (static_cast<u32>(at[l] >> shift) & (lanes - 1)));
    if (std::popcount(taken) == std::popcount(mask)) return 0;
    u32 conflicts = 0;
    for (u32 first = 0; first < kLanes; first += lanes) {
        u32 turns[kLanes] = {}, most = 1;
        for (u32 l = first; l < first + lanes; ++l) {
            if (!(mask >> l & 1)) continue;
            const u64 place = at[l] >> shift;
            bool shared = false;
            for (u32 k = first; k < l && !shared; ++k) shared = (mask >> k & 1) && at[k] >> shift == place;
            if (!shared) most = std::max(most, ++turns[place & (lanes - 1)]);
        }
        conflicts += most - 1;
    }
    return conflicts;
}

// The passes, and one more for each conflict: how long the instruction has the banks.
inline u32 bank_turns(const u64* at, u32 mask, u32 size) {
    const u32 lanes = kBankRow / std::clamp(size, kWord, kBankRow);
    u32 passes = 0;
    for (u32 first = 0; first < kLanes; first += lanes)
        passes += (mask >> first & (lanes < kLanes ? (1u << lanes) - 1 : ~0u)) != 0;
    return passes + bank_conflicts(at, mask, size);
}

}  // namespace ptxm
