// The state of the barriers of a CTA and of a cluster. What instructions do to it is in ptx/barriers.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "order/history/access_history.hpp"

namespace ptxm {

// The last use of something by an agent.
struct Use {
    AgentId agent;
    u32 clock;
    u32 pc;
};

// What threads of other CTAs have released to an mbarrier, which a wait at .cta scope does not acquire. Strict profile.
struct ReleasedOutside {
    Message arriving, completed;
};

struct Mbarrier {
    u32 expected = 0, pending = 0;
    i64 tx = 0;
    u32 phase = 0;  // phases completed
    Message arriving, completed;
    bool has_agent = false;
    AgentId agent = 0;   // of bulk loads that complete here
    AgentId phases = 0;  // its clock: `phase`
    u32 in_flight = 0;   // bulk operations issued against the phase in progress
    u32 announced = 0;   // expect-tx operations of that phase
    i32 init_pc = -1;
    Access init;
    u32 init_fenced = 0;                       // clock of the initialising warp at its fence.mbarrier_init, 0: none
    u32 init_published = 0;                    // cluster-barrier phase that published it to the whole cluster, 0: none
    std::vector<Use> uses;                     // by warps: mbarrier.inval comes after all of them
    std::vector<Use> arrivals[3];              // in the phase in progress, the last completed one and the one before
    std::unique_ptr<ReleasedOutside> outside;  // once there has been such an arrival
};

void note_use(std::vector<Use>& uses, const Use& use);

struct NamedBarrier {
    u32 expected = 0, arrived = 0;  // threads, in whole warps
    Message arriving;
    std::vector<u32> lanes;  // by warp: those that have arrived
    Reduction reduction = Reduction::none;
    u32 count = 0, all = 1, any = 0;  // of the predicates of a bar.red
    void reset() {
        expected = arrived = count = any = 0;
        all = 1;
        arriving.clear();
        std::fill(lanes.begin(), lanes.end(), 0);
        reduction = Reduction::none;
    }
};

struct ClusterBarrier {
    u32 arrived = 0;  // threads
    u32 phase = 0;    // phases completed
    Message arriving, completed;
    Message early;                 // of arrivals that are a phase ahead
    VectorClock reached;           // what the threads that have arrived had done, released or not
    std::optional<AgentId> agent;  // its clock is the phase: who knows of one, knows what it published
};

}  // namespace ptxm
