#include "memory/written_bytes.hpp"

namespace ptxm {

void WrittenBytes::add(u64 begin, u64 end) {
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
        --next;
        begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
        end = std::max(end, next->second);
        next = ranges_.erase(next);
    }
    ranges_.emplace_hint(next, begin, end);
    complete_ = begin == 0 && end >= size_;
}

}  // namespace ptxm
