// Arrays of cells, by number: of 64, or of a power of two times as many. They stay where they are.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

class CellStore {
public:
    // As they were left by whoever had them last.
    u32 take(u32 cells) {
        std::vector<u32>& free = free_[class_of(cells)];
        if (!free.empty()) {
            const u32 at = free.back();
            free.pop_back();
            return at;
        }
        const u32 units = cells / kUnit;
        if (used_ % kSegmentUnits + units > kSegmentUnits) used_ = (used_ / kSegmentUnits + 1) * kSegmentUnits;
        const u32 at = used_;
        used_ += units;
        if (at / kSegmentUnits == segments_.size()) segments_.push_back(std::make_unique_for_overwrite<Segment>());
        return at;
    }
    void give_back(u32 at, u32 cells) { free_[class_of(cells)].push_back(at); }
    u32* operator[](u32 at) { return segments_[at / kSegmentUnits]->cells + at % kSegmentUnits * kUnit; }
    const u32* operator[](u32 at) const { return segments_[at / kSegmentUnits]->cells + at % kSegmentUnits * kUnit; }
    void clear() {
        used_ = 0;
        for (std::vector<u32>& free : free_) free.clear();
    }

private:
    static constexpr u32 kUnit = 64, kClasses = 5, kSegmentUnits = 64;
    struct alignas(64) Segment {
        u32 cells[kSegmentUnits * kUnit];
    };
    static u32 class_of(u32 cells) { return static_cast<u32>(std::countr_zero(cells / kUnit)); }

    std::vector<std::unique_ptr<Segment>> segments_;
    u32 used_ = 0;  // units
    std::array<std::vector<u32>, kClasses> free_;
};

}  // namespace ptxm
