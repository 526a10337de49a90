#include "order/history/tensor_memory_history.hpp"

#include <algorithm>

namespace ptxm {

void TmemShadow::forget(u32 column, u32 columns) {
    cells_.resize(kLaneGroups * kColumns);
    for (u32 n = 0; n < kLaneGroups; ++n) std::fill_n(cells_.begin() + n * kColumns + column, columns, 0);
}

void TmemShadow::reset() {
    std::fill(cells_.begin(), cells_.end(), 0);
    pasts_.reset();
}

void TmemShadow::forget_unused() {
    pasts_.forget_unused([this](auto visit) { std::for_each(cells_.begin(), cells_.end(), visit); });
}

}  // namespace ptxm
