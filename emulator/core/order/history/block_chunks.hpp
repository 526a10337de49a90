// Parts of a linear memory: as ranges, and as chunks of 16 bytes in blocks of 1024.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

// Memory that an operation accesses: from an offset in shared memory, or an address.
struct Range {
    u64 start;
    u32 bytes;
};

// What each lane of a warp accesses: `size` bytes, a power of two up to 16 and aligned to it, in [low, end) all
// together.
struct LanePieces {
    const u64 (&at)[kLanes];
    u32 size;
    u64 low, end;
};

constexpr u32 kChunkBytes = 16, kBlockBytes = 1024;

// Chunks, a bit each, in every one of some blocks side by side.
struct BlockChunks {
    u64 block;
    u64 chunks;
    u32 blocks = 1;
};

// Blocks ascend.
void add_block(std::vector<BlockChunks>& all, u64 block, u64 chunks);

// Rows that ascend, as blocks.
class RowBlocks {
public:
    void clear() {
        all_.clear();
        chunks_ = end_ = 0;
        changes_ = 0;
    }
    // False where the row is not whole chunks behind the last one's, and where blocks do not all look alike, but
    // perhaps for the first and the last.
    bool add(u64 offset, u64 bytes) {
        if (offset % kChunkBytes || bytes % kChunkBytes || offset < end_) return false;
        end_ = offset + bytes;
        for (u64 from = offset; from < end_;) {
            const u64 block = from / kBlockBytes, to = std::min(end_, (block + 1) * kBlockBytes);
            if (block != block_) flush();
            block_ = block;
            chunks_ |= (~u64{0} >> (64 - (to - from) / kChunkBytes)) << from % kBlockBytes / kChunkBytes;
            from = to;
        }
        return changes_ <= 2;
    }
    std::span<const BlockChunks> blocks() {
        flush();
        return all_;
    }

private:
    void flush() {
        if (!chunks_) return;
        changes_ += !all_.empty() && all_.back().chunks != chunks_;
        add_block(all_, block_, chunks_);
        chunks_ = 0;
    }

    std::vector<BlockChunks> all_;
    u64 block_ = 0, chunks_ = 0, end_ = 0;  // the last one, which is not among them yet
    u32 changes_ = 0;                       // from block to block
};

}  // namespace ptxm
