// Clusters of CTAs: what their warps share, and what works beside them.
#pragma once

#include <limits>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "findings/finding.hpp"
#include "machine/async/async_queue.hpp"
#include "machine/cluster/barriers.hpp"
#include "machine/warp/warp.hpp"
#include "memory/live_mbarriers.hpp"
#include "memory/tensor_memory.hpp"
#include "order/sync_table.hpp"

namespace ptxm {

struct Cluster;
struct Machine;

struct Cta {
    Cta();
    ~Cta();

    Cluster* cluster = nullptr;
    u32 rank = 0;            // in the cluster
    u32 linear = 0;          // in the grid
    bool triggered = false;  // griddepcontrol.launch_dependents
    std::array<u32, 3> id{};
    std::vector<u8> shared;  // indexed by shared offset; the first kSharedStart bytes are never valid
    std::unique_ptr<LinearShadow> shared_shadow;
    // Lenient: by byte of `shared`, 0 where the last store has left what has no value; empty where none ever has.
    std::vector<u8> shared_valued;
    std::unordered_map<u32, Mbarrier> mbarriers;
    LiveMbarriers live_mbarriers;
    std::array<NamedBarrier, 16> barriers;
    Tmem tmem;
    std::vector<Warp> warps;
    u64 tensor_free = 0;  // when the tensor core finishes what it has
    u32 live_warps = 0;
    std::vector<u32> invalidated;  // lenient: mbarriers that peers may still arrive on
    std::vector<Use> outside;      // of its shared memory, by others: it must not exit before they are done
    VectorClock exit_ordered;      // what a relaxed cluster barrier has ordered before this CTA's exit
    Message relaxed_arriving, relaxed_completed;   // lenient: what its own relaxed arrivals at that barrier bring
    u32 free_registers = 0;                        // setmaxnreg's pool
    std::vector<std::vector<i32>> register_calls;  // pcs of the setmaxnregs executed, by warpgroup
    std::vector<Warpgroup> warpgroups;             // once a wgmma instruction has been executed
    u32 draws = 0;                                 // from the machine's counter
    u32 reserved = 0;  // bytes at the start of `shared` that belong to the system, and that the program has asked for
    u32 shared_address(u32 offset) const { return rank << kSharedRankShift | offset; }
};

// A wait that has run out of time: the warp's instruction, and the cluster's progress then.
struct TimedOut {
    const Warp* warp;
    i32 pc;
    u64 progress;
};

struct Cluster {
    Cluster();
    ~Cluster();

    Machine* machine = nullptr;
    u64 ordinal = 0;  // in the grid
    u16 number = 0;   // tells the agents of resident clusters apart, in global memory
    ClusterBarrier barrier;
    bool invalidated = false;     // some CTA's `invalidated` has an entry
    bool cancel_refused = false;  // a clusterlaunchcontrol.try_cancel has failed
    std::vector<std::unique_ptr<Cta>> ctas;
    std::vector<AgentInfo> agents;
    AsyncQueue pending;
    std::unordered_map<u64, AgentId> bulk_agents;
    u32 live_warps = 0;
    u64 now = 0;
    SyncTable sync;                   // of locations in shared memory
    u64 instructions = 0;             // executed by its warps
    u64 stalled = 0;                  // of these, waits for bulk groups that go on
    u64 progress = 0;                 // of these, at the last event that was not polling
    u64 polled_since = 0;             // the same, or the last time that others got their turn
    u64 failed_polls = 0;             // slices in a row that ended in one, since then
    std::vector<TimedOut> timed_out;  // since the last progress
    u64 sequence = 0;                 // of asynchronous operations
    std::mt19937_64 random{};         // what the random schedule draws within the cluster
    i64 priority = 0;                 // pct schedule
    bool yields = false;              // the same: only polls, and others are to go on
    bool demoted = false;             // the same: has lost its priority
    bool woken = false;               // somebody may go on who could not
    Findings findings;

    void note_progress() {
        progress = polled_since = instructions;
        failed_polls = 0;
        woken = true;
    }
    AgentId new_agent(AgentInfo info);
};

inline const AgentInfo& info(const Cluster& c, AgentId a) { return c.agents[a]; }

}  // namespace ptxm
