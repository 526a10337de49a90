// Address spaces. Generic addresses are split into windows; global allocations have guard gaps between them so that an
// access past an end never lands in a neighbour.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "finding.hpp"
#include "shadow.hpp"

namespace ptxm {

constexpr u64 kGlobalBase = 0x0000'0100'0000'0000ull;
constexpr u64 kSharedWindow = 0x0000'0200'0000'0000ull;
constexpr u64 kLocalWindow = 0x0000'0300'0000'0000ull;
constexpr u64 kParamWindow = 0x0000'0400'0000'0000ull;
constexpr u64 kWindowMask = 0xFFFF'FF00'0000'0000ull;
constexpr u64 kAllocationGap = 4096;

// A shared::cluster address is rank << 24 | offset, which is how the peer bit of a CTA pair is flipped by public
// kernels. Offsets start at 1024: the first kilobyte of a CTA's shared memory belongs to the system on sm_90 and later.
constexpr u32 kSharedRankShift = 24, kSharedOffsetMask = (1u << kSharedRankShift) - 1, kSharedStart = 1024;

struct Allocation {
    u64 base = 0, size = 0;
    std::string name;
    std::unique_ptr<u8[]> data;
    std::unique_ptr<LinearShadow> shadow;  // of the launch in progress; made on first use
};

class GlobalMemory {
public:
    u64 allocate(u64 size, std::string name);
    void release(u64 address);
    // The allocation that holds all of [address, address + size), or null.
    Allocation* find(u64 address, u64 size);
    // What lies nearest to an address that no allocation holds, for a message.
    std::string describe(u64 address) const;
    void begin_launch();

private:
    std::map<u64, Allocation> allocations_;
    Allocation* last_ = nullptr;
    u64 next_ = kGlobalBase + kAllocationGap;
};

}  // namespace ptxm
