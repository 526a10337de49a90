// Which bytes of an allocation hold what somebody has written: the host, or a launch that is over.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>

#include "findings/finding.hpp"

namespace ptxm {

class WrittenBytes {
public:
    explicit WrittenBytes(u64 size = 0) : size_(size) {}
    void add(u64 begin, u64 end);
    bool complete() const { return complete_; }
    // Calls f(begin, end) for the parts of [begin, end) that are not among them.
    template <class F>
    void each_gap(u64 begin, u64 end, F f) const {
        auto next = ranges_.upper_bound(begin);
        if (next != ranges_.begin()) begin = std::max(begin, std::prev(next)->second);
        for (; begin < end; ++next) {
            const u64 gap = next == ranges_.end() ? end : std::min(end, next->first);
            if (gap > begin) f(begin, gap);
            if (next == ranges_.end()) return;
            begin = std::max(begin, next->second);
        }
    }

private:
    std::map<u64, u64> ranges_;  // end by begin: disjoint, and no two touch
    u64 size_;
    bool complete_ = false;
};

}  // namespace ptxm
