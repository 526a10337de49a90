// The tensor memory of a CTA.
#pragma once

#include <array>
#include <vector>

#include "shadow.hpp"

namespace ptxm {

// The last MMA that touched a column, for the order of MMAs among themselves.
struct MmaMark {
    u32 clock = 0, pc = 0, signature = 0;
    AgentId agent = 0;
};

// One CTA's half of a collective tcgen05 allocation, waiting for its peer.
struct PairCall {
    bool waiting = false, dealloc = false;
    u32 warp = 0, columns = 0, address = 0;  // address: of the result in shared memory, or in tensor memory
    i32 pc = -1;
};

struct Tmem {
    static constexpr u32 kLanesTotal = 128, kColumns = 512, kGranule = 32;
    static constexpr u32 kMarks = 2 * kColumns;  // lower and upper 16 of every 32 lanes
    // Rows start in different cache sets: a column of 32 lanes fits the cache. No row shares a cache line with another.
    static constexpr u32 kLineWords = 16, kPitch = kColumns + kLineWords;
    struct alignas(4 * kLineWords) Line {
        u32 words[kLineWords];
    };
    std::vector<Line> lines;                       // empty before the first allocation, as the marks are
    std::array<i32, kColumns / kGranule> owner{};  // pc of the alloc + 1, 0 when free
    std::array<u16, kColumns / kGranule> block{};  // first granule of the allocation
    u32 used = 0;                                  // granules that have been allocated, a bit each
    TmemShadow shadow;
    bool relinquished = false;
    u8 cta_group = 0;      // of the CTA's tcgen05 instructions; 0 before the first
    u32 last_columns = 0;  // of the last allocation
    PairCall pair_call;
    std::vector<MmaMark> mma_writes, mma_reads;
    u32* row(u32 lane) { return reinterpret_cast<u32*>(lines.data()) + lane * kPitch; }
    void prepare();  // for the first allocation
    void reset();
    bool allocated(u32 column, u32 count) const;
};

}  // namespace ptxm
