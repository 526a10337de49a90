// The machine: clusters of CTAs, their warps, and the agents that work beside them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>

#include "memory.hpp"
#include "sync_table.hpp"

namespace ptxm {

struct Cta;
struct Cluster;
struct Machine;

// Lanes of a warp that share a pc. A warp starts as one fragment, splits at divergent branches and joins again at the
// branch's immediate post-dominator, or where an instruction needs its lanes together.
struct Join {
    i32 pc;
    u32 expected;
    u32 arrived = 0;
};

enum class Wait : u8 { none, join, converge, mbarrier, barrier, cluster };

struct Fragment {
    i32 pc = 0;
    u32 mask = 0;
    std::vector<u32> joins;  // indices into Warp::joins, innermost last
    i32 join_pc = -1;        // of the innermost join
    Wait wait = Wait::none;
    u32 wait_mbar = 0;  // shared::cluster address
    u32 wait_parity = 0;
    u32 wait_barrier = 0;
    bool wait_relaxed = false, wait_over = false;
    bool passed_barrier = false;  // released: the barrier instruction completes when it is tried again
};

struct Warp {
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
    std::vector<u32> initialised;  // lanes written, a unit
    std::vector<u8> local;         // 32 x local_bytes
    WarpClocks clocks;
    bool spun = false;  // the slice ended in a failed poll
    WarpFences fences;
    struct LaneBulk {
        u32 issued = 0;
        u32 open = 0;
        std::vector<u32> groups;
    };
    std::unordered_map<u32, LaneBulk> bulk;  // by lane

    template <class T>
    T* reg(i32 unit) {
        return reinterpret_cast<T*>(registers + static_cast<std::size_t>(unit) * kUnitBytes);
    }
    u32& pred(i32 unit) { return *reg<u32>(unit); }
    Fragment& fragment() { return fragments[current]; }
    i32 pc() { return fragments[current].pc; }
    const i32* ops(const Inst& inst) const { return program->operands.data() + inst.operands; }
};

struct Mbarrier {
    u32 expected = 0, pending = 0;
    i64 tx = 0;
    u32 phase = 0;  // phases completed
    Message arriving, completed;
    bool has_agent = false;
    AgentId agent = 0;  // of bulk loads that complete here
    u32 in_flight = 0;  // bulk operations issued against the phase in progress
    i32 init_pc = -1;
    Access init;
};

struct NamedBarrier {
    u32 expected = 0, arrived = 0;
    Message arriving, completed;
};

struct Tmem {
    static constexpr u32 kLanesTotal = 128, kColumns = 512, kGranule = 32;
    std::vector<u32> words = std::vector<u32>(kLanesTotal * kColumns, 0);
    std::array<i32, kColumns / kGranule> owner{};  // pc of the alloc + 1, 0 when free
    std::array<u16, kColumns / kGranule> block{};  // first granule of the allocation
    TmemShadow shadow;
    bool relinquished = false;
    u32* row(u32 lane) { return words.data() + lane * kColumns; }
    bool allocated(u32 column, u32 count) const;
};

struct AsyncOp {
    u64 time = 0;
    u64 sequence = 0;
    bool tensor = false;  // runs in order within its CTA's tensor core
    u32 cta = 0;
    i32 pc = -1;  // of the instruction that started it
    u32 warp = 0;
    std::function<void()> complete;
};

struct Cta {
    Cluster* cluster = nullptr;
    u32 rank = 0;    // in the cluster
    u32 linear = 0;  // in the grid
    std::array<u32, 3> id{};
    std::vector<u8> shared;  // indexed by shared offset; the first kSharedStart bytes are never valid
    std::unique_ptr<LinearShadow> shared_shadow;
    std::unordered_map<u32, Mbarrier> mbarriers;
    std::array<NamedBarrier, 16> barriers;
    Tmem tmem;
    std::vector<Warp> warps;
    u64 tensor_free = 0;  // when the tensor core finishes what it has
    u32 shared_address(u32 offset) const { return rank << kSharedRankShift | offset; }
};

struct Cluster {
    Machine* machine = nullptr;
    std::vector<std::unique_ptr<Cta>> ctas;
    std::vector<AgentInfo> agents;
    std::vector<AsyncOp> pending;
    std::unordered_map<u64, AgentId> bulk_agents;
    u32 live_warps = 0;
    u64 now = 0;
    SyncTable sync;    // of locations in shared memory
    u64 progress = 0;  // instruction count at the last event that was not polling
    AgentId new_agent(AgentInfo info) {
        agents.push_back(info);
        return static_cast<AgentId>(agents.size() - 1);
    }
};

enum class Schedule : u8 { realistic, early, late, random };
enum class Profile : u8 { strict, lenient };

struct Launch {
    std::array<u32, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
    u32 dynamic_shared = 0;
    std::vector<u8> params;
};

struct Stats {
    u64 warp_instructions = 0, mma = 0, bulk_loads = 0, bulk_load_bytes = 0, bulk_stores = 0, async_ops = 0,
        barrier_waits = 0;
    double seconds = 0;
};

struct Machine {
    Machine() = default;
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    GlobalMemory global;
    SyncTable sync;
    Findings findings;
    Stats stats;
    Schedule schedule = Schedule::realistic;
    Profile profile = Profile::strict;
    bool checks = true;
    u64 seed = 0;
    u64 max_instructions = 4'000'000'000ull;
    std::mt19937_64 random{0};
    const Program* program = nullptr;
    const Launch* launch = nullptr;
    u64 sequence = 0;
    Warp* running = nullptr;  // valid while a cluster runs

    // Runs one grid to its end. Hazards and faults become findings; nothing is thrown for what a kernel does.
    void run(const Program& program, const Launch& launch);

    void report(const Warp* warp, std::string rule, std::string message, i32 pc, i32 other_pc = -1,
                Severity severity = Severity::error);
    // For rules that released kernels break: an error under the strict profile, nothing under the lenient one.
    void report_strict(const Warp* warp, std::string rule, std::string message, i32 pc, i32 other_pc = -1) {
        if (profile == Profile::strict) report(warp, std::move(rule), std::move(message), pc, other_pc);
    }
};

inline Machine& machine_of(Warp& w) { return *w.cta->cluster->machine; }

// schedule.cpp
void start_async(Warp& w, bool tensor, u64 latency, std::function<void()> complete);
// Runs a cluster until its warps have exited, or as far as it gets. False: stuck on something outside the cluster.
bool run_cluster(Cluster& cluster);

// deadlock.cpp
void report_deadlock(Cluster& cluster, const char* rule);

// control.cpp
bool converge(Warp& w, u32 required);
bool release_joins(Cluster& cluster);
void exit_lanes(Warp& w, u32 mask);
void reach_join(Warp& w);

// hazards.cpp: conflict checks. `proxy_async` tells which proxy is accessing.
void touch_shared(Cta& target, Warp& w, u32 offset, u32 size, const Accessor& who, bool proxy_async);
void touch_global(Allocation& a, Warp& w, u64 address, u32 size, const Accessor& who, bool proxy_async);
void touch_tmem(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& who,
                const char* what);
std::string describe_agent(const Cluster& cluster, AgentId agent);

// mbarrier.cpp
Mbarrier& mbarrier_at(Warp& w, u32 address, const char* what);
void mbarrier_arrive(Warp* w, Cta& cta, u32 offset, Mbarrier& bar, u32 count, const Message* message);
void mbarrier_complete_tx(Cta& cta, u32 offset, Mbarrier& bar, u32 bytes, u32 issued_phase, i32 pc);
void check_mbarrier_visible(Warp& w, Mbarrier& bar, bool proxy_async);

// memory_ops.cpp
struct SharedRef {
    Cta* cta;
    u32 offset;
};
SharedRef resolve_shared(Warp& w, u32 address, u32 size, const char* what);
Allocation& resolve_global(Warp& w, u64 address, u64 size, const char* what);
u8* resolve_param(Warp& w, u64 offset, u64 size);

}  // namespace ptxm
