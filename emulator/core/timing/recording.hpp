// What a launch leaves for the timing model: for each warp the instructions it executed, in order, and what an
// instruction did that its text does not tell. docs/understand/timing.md has the reasons.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "isa/program.hpp"

namespace ptxm::timing {

enum class Did : u8 {
    shared_access,    // a: turns of the banks
    remote_access,    // a: bytes, of shared memory of another CTA of the cluster
    global_read,      // a: bytes, in sectors of 32; b: 1 if the cluster has read all of their lines before
    global_write,     // a: bytes
    mbarrier_init,    // rank, a: offset; b: count
    mbarrier_expect,  // rank, a: offset; b: bytes
    mbarrier_arrive,  // rank, a: offset; b: count
    mbarrier_wait,    // rank, a: offset; b: phases that have to be complete
    copy_in,          // rank, a: offset of the mbarrier; b: bytes; c: requests to L2
    copy_also,        // as copy_in, of a multicast's bytes that went to another CTA before
    copy_out,         // b: bytes; c: requests to L2
    commit,           // rank, a: offset of the mbarrier that the tensor core arrives on
    matrix,   // a: m << 16 | n; b: bytes of operands in shared memory; rank: 1 if A is in tensor memory, 2: of a pair
    barrier,  // a: number; b: threads, 0 for all; rank: 1 if it only arrives
    cluster_arrive,  // b: threads
    cluster_wait,    // b: phases that have to be complete
    copy_async,      // b: bytes, of cp.async
    response,        // rank, a: offset of the mbarrier; b: bytes, of a try_cancel's
    copy_arrive,     // rank, a: offset of the mbarrier that the copies so far arrive on; b: count
};

struct Deed {
    Did what;
    u8 rank = 0;
    u8 to = 0;          // of a copy: the CTA that gets the bytes
    bool more = false;  // the next one is of the same instruction
    u32 a = 0, b = 0, c = 0;

    bool operator==(const Deed&) const = default;
};

struct Step {
    u32 pc;
    u32 deed;  // index of the first, plus one; 0: none

    bool operator==(const Step&) const = default;
};

struct WarpRecording {
    std::vector<Step> steps;
    std::vector<Deed> deeds;
    u32 threads = 0;

    bool operator==(const WarpRecording&) const = default;
};

struct Piece {  // of an allocation
    u64 base;
    u64 bytes;
};

struct ClusterRecording {
    u64 ordinal = 0;
    u32 tensor_columns = 0;  // of tensor memory, that its first CTA allocates
    bool claims = false;     // it asks for other clusters' work
    std::vector<std::vector<WarpRecording>> ctas;
    std::unordered_map<u64, Piece> pieces;  // what was read at once, by its address or by the place of its box
    std::unordered_map<u64, u64> read;      // bytes asked for, by the address of the allocation
    std::unordered_map<u64, u64> written;
    std::unordered_set<u64> lines;  // that plain loads have read, by their addresses
};

// What one of the clusters that run beside those that are recorded reads first.
struct Glimpse {
    std::map<u64, std::pair<u32, u64>> first;  // by the allocation: the lowest rank that reads it, and its first piece
};

}  // namespace ptxm::timing
