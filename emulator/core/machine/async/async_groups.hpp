// What a warp and a warpgroup remember of their asynchronous copies (cp.async) and matrix operations (wgmma).
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "order/clocks.hpp"

namespace ptxm {

// cp.async: groups belong to a thread (PTX ISA 9.7.9.25.3). A warp's copies are one agent; a copy instruction takes one
// clock.
struct CopyGroups {
    struct Copy {
        u32 clock;
        u32 lanes;  // that have not waited for it
        bool complete;
    };
    struct Commit {
        u32 lanes;
        u32 clock;  // of the last copy that the group can hold
    };
    struct Arrival {  // of cp.async.mbarrier.arrive: waits for the copies up to `clock`
        u32 clock;
        u32 lanes;
        u32 address;
        u32 count;
    };
    bool has_agent = false;
    AgentId agent = 0;
    u32 issued = 0;
    std::deque<Copy> copies;     // in issue order, until every lane has waited for them
    std::deque<Commit> commits;  // in order
    std::vector<Arrival> arrivals;
};

// The registers of a warp that wgmma operations use (PTX ISA 9.7.15.5, 9.7.15.7.1).
struct WgmmaRegisters {
    struct Use {
        u32 clock = 0;  // of the last operation in flight that uses the register, 0 for none
        u32 shape = 0;  // of its accumulator; 0 when the register holds a fragment of A
    };
    std::vector<Use> in_flight;  // by unit
    std::vector<u32> touched;    // by unit: the number of fences before the last access by another instruction
    u32 fences = 0;
    u32 fences_at_wait = 0;  // before the last wgmma.wait_group
    u32 issued = 0;          // clock of this warp's last operation
    std::deque<u32> groups;  // clock of the last operation of each group that was not waited for
    bool met = false;        // the warpgroup has met at the operation this warp waits at
};

// Four warps that issue wgmma operations together. Operations complete in order.
struct Warpgroup {
    bool has_agent = false;
    AgentId agent = 0;
    u32 issued = 0, completed = 0;
    u32 arrived = 0;  // warps at the operation at hand, a bit each
    i32 pc = -1;
    u64 free = 0;                             // when the operations issued so far are done
    std::deque<std::function<void()>> queue;  // in the order of issue
    std::deque<i32> followed;                 // pcs of wgmma instructions that some of the four warps have yet to reach
    u64 passed = 0;                           // how many all four have executed
    std::array<u64, 4> executed{};            // how many each has
    bool diverged = false;                    // reported once: the rest is out of step
};

}  // namespace ptxm
