// A warp: its lanes, registers and clocks.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "machine/async/async_groups.hpp"
#include "memory/memory.hpp"
#include "order/sync_table.hpp"

namespace ptxm {

struct Cta;

// Lanes of a warp that share a pc. A warp starts as one fragment, splits at divergent branches and joins again at the
// branch's immediate post-dominator, or where an instruction needs its lanes together.
struct Join {
    i32 pc;
    u32 expected;
    u32 arrived = 0;
};

enum class Wait : u8 {
    none,
    join,
    converge,
    mbarrier,
    barrier,
    cluster,
    tmem,
    bulk,
    registers,
    async_group,
    warpgroup
};

struct Fragment {
    i32 pc = 0;
    u32 mask = 0;
    std::vector<u32> joins;  // indices into Warp::joins, innermost last
    i32 join_pc = -1;        // of the innermost join
    Wait wait = Wait::none;
    u32 wait_mbar = 0;  // shared::cluster address
    u32 wait_parity = 0;
    u32 wait_barrier = 0;
    bool wait_relaxed = false, wait_narrow = false, wait_over = false;
    bool wait_for_clusters = false;  // for tensor memory that other clusters hold
    bool wait_timed_out = false;
    u8 refused = 0;               // times in a row that a try_wait has failed without a reason
    bool passed_barrier = false;  // released: the barrier instruction completes when it is tried again
    u32 barrier_result = 0;       // of bar.red
};

// The bulk async-groups of one thread. Group g counts as complete for happens-before at clock g + 1.
// The last wait for groups of copies: where, for all but how many of the last, and the clock of the last.
struct GroupWait {
    i32 pc = -1;
    u32 pending = 0, last = 0;
};

// The last MMA that a tcgen05.commit of its own thread covers, and the last commit of a thread that had issued none.
struct Commits {
    u32 covered = 0;
    i32 idle_pc = -1;
    u32 idle_lane = 0;
};

struct BulkLane {
    struct Group {
        u32 reads = 0, writes = 0;  // operations whose reads, or writes, are not done
    };
    AgentId reads = 0, writes = 0;
    u32 committed = 0;
    u32 used = 0;                           // groups up to the last that holds an operation
    u32 read_front = 0, written_front = 0;  // groups before these are done
    i32 last_pc = -1;                       // of the last operation
    GroupWait waited, waited_reads;
    std::vector<Group> groups;  // the last one is open when there are more than `committed`
};

// Which tcgen05.ld, by its clock, wrote a register last. `open`: one of them may not be complete.
struct LoadedRegisters {
    std::vector<u32> clocks;  // by unit
    bool open = false;
};

// What the lanes of a warp accessed lately: two of them are not ordered by being of one warp. Strict profile. Addresses
// are those of shared memory, or bytes of the allocation of global memory that `memory` numbers, from 1.
struct LaneAccess {
    u32 clock = 0;  // 0: none
    u32 pc = 0, mask = 0, size = 0;
    u32 memory = 0;
    bool write = false, strong = false;
    bool ascends = false;  // each lane's bytes lie behind those of the lane before
    std::array<u32, kLanes> at;
};

struct LaneLog {
    bool met = false;  // the access at hand overlaps one of the same warp that no lane is known to be behind
    std::vector<LaneAccess> accesses;
    u32 latest = 0;
};

// Where a load met what nothing has written.
enum class Unwritten : u8 { shared, global, local };

struct Warp {
    Warp();
    Warp(Warp&&) noexcept;
    ~Warp();

    Cta* cta = nullptr;
    const Program* program = nullptr;
    u32 index = 0;  // in the CTA
    u32 live = 0;   // lanes that have not exited
    u64 time = 0;
    std::vector<Fragment> fragments;
    u32 current = 0;  // the fragment that is running
    std::vector<Join> joins;
    std::unique_ptr<u8[]> register_file;
    u8* registers = nullptr;
    std::vector<u32> initialised;       // lanes written, a unit
    std::vector<u8> local;              // 32 x local_bytes
    std::vector<u8> local_written;      // by byte of `local`: whether it has a value; empty without checks
    std::vector<std::vector<u8>> kept;  // by lane: registers of recursive functions that have called; empty without
    WarpClocks clocks;
    WarpFences fences;
    bool spun = false;                            // the slice ended in a failed poll
    i64 priority = 0;                             // pct schedule
    bool yields = false;                          // the same: only polls, and others are to go on
    u64 unpolled = 0;                             // instructions since the last failed poll
    std::unordered_map<u32, BulkLane> bulk;       // by lane
    u32 cluster_arrived = 0, cluster_passed = 0;  // lanes: in the phase in progress; may pass their wait
    u32 cluster_ahead = 0, cluster_owed = 0;      // lanes: have arrived for the phase after it; may pass another wait
    Commits commits;                              // by tcgen05.commit
    VectorClock commit_phases;                    // that its tcgen05.commits have completed
    u32 register_limit = 0, register_calls = 0;   // setmaxnreg: 0 until the first
    CopyGroups copies;                            // cp.async
    GroupWait copies_waited;                      // and its last wait_group or wait_all
    std::unique_ptr<WgmmaRegisters> wgmma;        // once the warp has executed a wgmma instruction
    LoadedRegisters loaded;                       // by tcgen05.ld; lenient profile
    LaneLog lanes, global_lanes;
    // The load in progress brings what nothing has written: of local memory, and in the lenient profile of any; or see
    // `doubt`.
    bool unwritten = false;
    std::vector<u32> undefined;  // by unit: of the lanes without a value, those that lack it for such a load
    i32 undefined_pc = -1;       // of the last such load
    Unwritten undefined_in = Unwritten::shared;
    Doubt doubt;  // of the last such load: no rule where nothing has written what it brings

    template <class T>
    T* reg(i32 unit) {
        return reinterpret_cast<T*>(registers + static_cast<std::size_t>(unit) * kUnitBytes);
    }
    u32& pred(i32 unit) { return *reg<u32>(unit); }
    // Those for which an instruction of these lanes acts: lanes that have exited have nothing left to say.
    u32 acting(u32 mask) const { return mask | ~live; }
    Fragment& fragment() { return fragments[current]; }
    i32 pc() { return fragments[current].pc; }
    const i32* ops(const Inst& inst) const { return inst.first_operand; }
};

}  // namespace ptxm
