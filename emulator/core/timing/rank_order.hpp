// Warps in another order than the PTX's: what a warp executed, straight on, as the ranks of its instructions have it.
#pragma once

#include <map>
#include <vector>

#include "timing/costs.hpp"
#include "timing/recording.hpp"

namespace ptxm::timing {

class Order {
public:
    // A rank a pc; below 0: wherever its operands are there. `costs` by pc and `operands` must outlive this.
    Order(const std::vector<i64>& ranks, const std::vector<Cost>& costs, const std::vector<i32>& operands)
        : ranks_(ranks), costs_(costs), operands_(operands) {}

    // The steps of a warp, each stretch between two jumps by rank, but none before what it depends on.
    WarpRecording of(const WarpRecording& recording);

private:
    const std::vector<u32>& of_stretch(u32 pc, u32 length);

    const std::vector<i64>& ranks_;
    const std::vector<Cost>& costs_;
    const std::vector<i32>& operands_;
    std::map<std::pair<u32, u32>, std::vector<u32>> known_;  // by first pc and length: which comes when
};

}  // namespace ptxm::timing
