// The 16-byte chunks of shared memory that an operation reads, a bit each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "order/history/block_chunks.hpp"

namespace ptxm {

class ChunkSet {
public:
    static constexpr u32 kBytes = 16, kChunks = (1u << 18) / kBytes, kWord = 64, kWords = kChunks / kWord;
    void add(u32 chunk) {
        words_[chunk / kWord] |= u64{1} << chunk % kWord;
        low_ = std::min(low_, chunk / kWord);
        high_ = std::max(high_, chunk / kWord);
    }
    // The runs of adjacent chunks, in `out`.
    std::span<const Range> runs(std::vector<Range>& out) const {
        out.clear();
        for (u32 n = low_; n <= high_; ++n) {
            u64 word = words_[n];
            for (u32 at = n * kWord; word;) {
                const u32 skip = static_cast<u32>(std::countr_zero(word));
                word >>= skip;
                at += skip;
                const u32 ones = static_cast<u32>(std::countr_one(word));
                if (!out.empty() && u64{at} * kBytes == out.back().start + out.back().bytes)
                    out.back().bytes += ones * kBytes;
                else
                    out.push_back({u64{at} * kBytes, ones * kBytes});
                at += ones;
                word = ones < kWord ? word >> ones : 0;
            }
        }
        return out;
    }
    // The same, block by block.
    void blocks(std::vector<BlockChunks>& out) const {
        static_assert(kBytes * kWord == kBlockBytes);
        out.clear();
        for (u32 n = low_; n <= high_; ++n)
            if (words_[n]) add_block(out, n, words_[n]);
    }

private:
    std::array<u64, kWords> words_{};
    u32 low_ = kWords, high_ = 0;
};

}  // namespace ptxm
