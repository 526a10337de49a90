#include "order/history/block_chunks.hpp"

namespace ptxm {

void add_block(std::vector<BlockChunks>& all, u64 block, u64 chunks) {
    if (!all.empty() && all.back().block + all.back().blocks == block && all.back().chunks == chunks)
        all.back().blocks += 1;
    else
        all.push_back({block, chunks});
}

}  // namespace ptxm
