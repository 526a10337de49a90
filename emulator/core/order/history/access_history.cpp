#include "order/history/access_history.hpp"

#include <algorithm>

namespace ptxm {

Pasts::Pasts() { reset(); }
Pasts::Pasts(Pasts&&) noexcept = default;
Pasts& Pasts::operator=(Pasts&&) noexcept = default;
Pasts::~Pasts() = default;

void Pasts::reset() {
    pasts_.assign(1, Past{});
    noted_.assign(1, 0);
    after_.assign(1, 0);
    free_.clear();
    limit_ = kFirstLimit;
    make_table();
}

void Pasts::keep(const std::vector<u8>& used, std::size_t visited) {
    free_.clear();
    for (u32 n = static_cast<u32>(pasts_.size()); n-- > 1;)
        if (!used[n]) free_.push_back(n);
    const std::size_t live = pasts_.size() - free_.size();
    // Few of them stay in the cache; but where there are many cells, looking through them should be rare.
    limit_ = std::max(2 * live, std::min(2 * limit_, std::clamp(visited, kFewest, kMost)));
    make_table(&used);
}

u32 Pasts::add(const Past& past) {
    if (free_.empty()) {
        pasts_.push_back(past);
        noted_.push_back(0);
        after_.push_back(0);
        return static_cast<u32>(pasts_.size() - 1);
    }
    const u32 number = free_.back();
    free_.pop_back();
    pasts_[number] = past;
    noted_[number] = 0;
    return number;
}

void Pasts::make_table(const std::vector<u8>* used) {
    table_.assign(std::bit_ceil(4 * limit_), kNone);
    for (u32 n = 0; n < pasts_.size(); ++n) {
        if (used && !(*used)[n]) continue;
        u64 slot = hash(pasts_[n]);
        while (table_[slot & (table_.size() - 1)] != kNone) ++slot;
        table_[slot & (table_.size() - 1)] = n;
    }
}

}  // namespace ptxm
