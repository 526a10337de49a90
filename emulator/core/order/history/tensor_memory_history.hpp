// Shadow state of tensor memory: a cell is 16 lanes of a column (no tcgen05 access is finer).
#pragma once

#include <vector>

#include "order/history/history_runs.hpp"

namespace ptxm {

class TmemShadow {
public:
    static constexpr u32 kLanes = 16, kLaneGroups = 8, kColumns = 512;
    // For an operation that begins.
    Pasts& pasts() {
        if (pasts_.crowded()) forget_unused();
        return pasts_;
    }
    // 16 lanes, from a multiple of 16 on.
    template <class Touch>
    void touch(u32 lane, u32 column, u32 columns, Touch& touch) {
        touch_run(&cells_[lane / kLanes * kColumns + column], columns, touch, touch);
    }
    // The past that all of these have, or Pasts::kNone; and to give them another.
    u32 common(u32 lane, u32 lanes, u32 column, u32 columns) const {
        const u32* cells = &cells_[lane / kLanes * kColumns + column];
        const u32 first = *cells;
        for (u32 n = 0; n < lanes; n += kLanes, cells += kColumns)
            if (*cells != first || count_alike(cells, columns) != columns) return Pasts::kNone;
        return first;
    }
    void set(u32 lane, u32 lanes, u32 column, u32 columns, u32 number) {
        for (u32 n = 0; n < lanes; n += kLanes)
            std::fill_n(&cells_[(lane + n) / kLanes * kColumns + column], columns, number);
    }
    // All of what is to be touched.
    void forget(u32 column, u32 columns);
    void reset();

private:
    void forget_unused();

    Pasts pasts_;
    std::vector<u32> cells_;  // by group of lanes, then column
};

}  // namespace ptxm
