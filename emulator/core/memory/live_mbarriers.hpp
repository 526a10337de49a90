// Where the mbarriers of a CTA lie, for the accesses that must not touch them.
#pragma once

#include <algorithm>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

class LiveMbarriers {
public:
    static constexpr u32 kBytes = 8;
    void add(u32 offset) { offsets_.insert(std::lower_bound(offsets_.begin(), offsets_.end(), offset), offset); }
    void remove(u32 offset) {
        const auto it = std::lower_bound(offsets_.begin(), offsets_.end(), offset);
        if (it != offsets_.end() && *it == offset) offsets_.erase(it);
    }
    // The first that lies in [start, end), in part at least; null for none.
    const u32* find(u64 start, u64 end) const {
        if (offsets_.empty() || start >= u64{offsets_.back()} + kBytes || end <= offsets_.front()) return nullptr;
        const u32 from = start < kBytes ? 0 : static_cast<u32>(start - kBytes + 1);
        const auto it = std::lower_bound(offsets_.begin(), offsets_.end(), from);
        return it != offsets_.end() && *it < end ? &*it : nullptr;
    }

private:
    std::vector<u32> offsets_;  // ascending
};

}  // namespace ptxm
