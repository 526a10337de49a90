// Whose turn it is: a heap of warps by their times, and of one time by their numbers.
#pragma once

#include <utility>
#include <vector>

#include "isa/program.hpp"

namespace ptxm::timing {

class Turns {
public:
    using Entry = std::pair<double, u32>;

    bool empty() const { return heap_.empty(); }
    const Entry& top() const { return heap_.front(); }

    void push(Entry e) {
        size_t at = heap_.size();
        heap_.push_back(e);
        for (; at && e < heap_[(at - 1) / 2]; at = (at - 1) / 2) heap_[at] = heap_[(at - 1) / 2];
        heap_[at] = e;
    }

    Entry pop() {
        const Entry first = heap_.front(), last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) sink(last);
        return first;
    }

    // The first, in whose place `e` waits from now on.
    Entry exchange(Entry e) {
        const Entry first = heap_.front();
        sink(e);
        return first;
    }

private:
    void sink(Entry e) {
        const size_t n = heap_.size();
        size_t at = 0;
        for (size_t child = 1; child < n; child = 2 * at + 1) {
            if (child + 1 < n && heap_[child + 1] < heap_[child]) ++child;
            if (!(heap_[child] < e)) break;
            heap_[at] = heap_[child];
            at = child;
        }
        heap_[at] = e;
    }

    std::vector<Entry> heap_;
};

}  // namespace ptxm::timing
