// The timing model: what was recorded, on resources that are servers with queues.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "timing/constants.hpp"
#include "timing/recording.hpp"

namespace ptxm::timing {

// What a warp waits for, and what an operation beside the warps is.
// clang-format off
#define PTXM_CAUSES(X)                                                                                      \
    X(issue) X(fma) X(alu) X(mufu) X(convert) X(shuffle) X(shared) X(memory) X(tma) X(tensor) X(tmem)       \
    X(mbarrier) X(barrier) X(cluster) X(code) X(branch)
// clang-format on
enum class Cause : u8 {
#define PTXM_CAUSE(name) name,
    PTXM_CAUSES(PTXM_CAUSE)
#undef PTXM_CAUSE
        count
};
constexpr u32 kCauses = static_cast<u32>(Cause::count);

// What the SMs of a launch share, as one of them sees it.
struct Share {
    double sms = 1;      // that are at work
    double from_l2 = 1;  // the part of what is read that L2 delivers: what SMs near one another read comes to them once
    double from_hbm = 1;  // the part of what is read that L2 does not have
    double waits = 1;     // the part that is on its way from memory when it is asked for, whoever asked first
    double to_hbm = 0;    // the part of what is written that memory gets while the launch lasts
};

struct Wait {  // of a warp, or of an operation beside the warps: from its issue to its end
    u32 cta, warp, pc;
    double from, to;
    Cause cause;
    i64 by;     // what ended it: an operation, or ~(a warp); kNobody
    u32 place;  // offset of the mbarrier, number of the barrier, bytes of a copy, rows and columns of a matrix
};
constexpr i64 kNobody = i64{1} << 60;

struct WarpTime {
    u32 cta, warp;
    double start, end;
    std::array<double, kCauses> waited{};
    u64 instructions = 0;
};

struct Result {
    double cycles = 0;
    double before = 0;  // what comes before the first warp waits for the grid before this one; 0 where none does
    u64 forced = 0;     // waits that nothing in the recording ends: the model is not to be trusted then
    std::vector<WarpTime> warps;
    std::vector<double> cta_ends;
    std::array<double, kCauses> busy{};  // of the servers, of all SMs
    u32 sms = 1;
    std::vector<Wait> waits, operations;  // if traced
    std::vector<i64> issuers;             // of operations: the warp
};

// Replays `clusters`, each one CTA on one SM together, or each CTA of a larger cluster on an SM of its own. `ranks`: by
// pc, the order in which a warp executes what it did (rank_order.hpp); none: the PTX's.
Result replay(const Program& program, const std::vector<const ClusterRecording*>& clusters, const Times& times,
              const Share& share, bool traced, const std::vector<i64>& ranks);

}  // namespace ptxm::timing
