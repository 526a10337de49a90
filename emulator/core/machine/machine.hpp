// The machine: clusters of CTAs, their warps, and the agents that work beside them.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>

#include "machine/async_queue.hpp"
#include "machine/warp.hpp"
#include "memory/live_mbarriers.hpp"
#include "memory/tensor_memory.hpp"
#include "order/sync_table.hpp"

namespace ptxm {

struct Cluster;
struct Machine;

// The last use of something by an agent.
struct Use {
    AgentId agent;
    u32 clock;
    u32 pc;
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
    i32 init_pc = -1;
    Access init;
    u32 init_fenced = 0;           // clock of the initialising warp at its fence.mbarrier_init, 0: none
    u32 init_published = 0;        // cluster-barrier phase that published it to the whole cluster, 0: none
    std::vector<Use> uses;         // by warps: mbarrier.inval comes after all of them
    std::vector<Use> arrivals[3];  // in the phase in progress, the last completed one and the one before
};

inline void note_use(std::vector<Use>& uses, const Use& use) {
    for (Use& u : uses) {
        if (u.agent != use.agent) continue;
        if (use.clock >= u.clock) u = use;
        return;
    }
    uses.push_back(use);
}

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

// A warp's last acquiring fence of the tensormap proxy on one map, and what the warp knew then.
struct MapFence {
    AgentId agent;
    u32 clock;
    Message known;
};

struct Cta {
    Cluster* cluster = nullptr;
    u32 rank = 0;    // in the cluster
    u32 linear = 0;  // in the grid
    std::array<u32, 3> id{};
    std::vector<u8> shared;  // indexed by shared offset; the first kSharedStart bytes are never valid
    std::unique_ptr<LinearShadow> shared_shadow;
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
    Findings findings;

    void note_progress() {
        progress = polled_since = instructions;
        failed_polls = 0;
    }
    AgentId new_agent(AgentInfo info) {
        if (agents.size() > std::numeric_limits<AgentId>::max())
            throw Fault("internal", "more than 65536 agents in a cluster: mbarriers initialised over and over");
        agents.push_back(info);
        return static_cast<AgentId>(agents.size() - 1);
    }
};

// Memory that an operation accesses: from an offset in shared memory, or an address.
struct Range {
    u64 start;
    u32 bytes;
};

enum class Schedule : u8 { realistic, early, late, random };
enum class Profile : u8 { strict, lenient };
// Of tcgen05.mma: in the order that is fastest on the host, or as a B200 makes them.
enum class MmaSums : u8 { fast, silicon };

struct Launch {
    std::array<u32, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
    u32 dynamic_shared = 0;
    std::vector<u8> params;
    u64 workspace = 0;  // of a cooperative launch: what its CTAs meet at; 0 of any other
};

// The clusters of a grid that have not started, in launch order.
class GridCursor {
public:
    explicit GridCursor(const Launch& launch) : launch_(&launch) {}
    // The first CTA of the next cluster. False when there is none left.
    bool take(std::array<u32, 3>& first);

private:
    const Launch* launch_;
    std::array<u32, 3> next_{};
    bool exhausted_ = false;
};

struct Stats {
    u64 warp_instructions = 0, mma = 0, bulk_loads = 0, bulk_load_bytes = 0, bulk_stores = 0, async_ops = 0,
        barrier_waits = 0;
    u32 threads = 1;                          // of the host, that ran it
    double seconds = 0, product_seconds = 0;  // of these, in the multiplications of tcgen05.mma and wgmma
};

// Adds the time of its life to a sum, by the clock on the wall.
class Stopwatch {
public:
    explicit Stopwatch(double& seconds) : seconds_(seconds) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
    double& seconds_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Machine {
    Machine() = default;
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    // One that runs clusters of `main`'s launch beside others, over the same memory.
    Machine(const Machine& main, AccessLog* log);

    GlobalView global;
    SyncTable sync;
    std::unordered_map<u64, std::vector<MapFence>> map_fences;  // by the map's address; of the launch in progress
    Findings* findings = nullptr;                               // of the cluster that is running
    Findings launch_findings;                                   // once the launch has ended
    Stats stats;
    u32 threads = 1;  // of the host that may run clusters of one launch
    Schedule schedule = Schedule::realistic;
    Profile profile = Profile::strict;
    MmaSums mma_sums = MmaSums::fast;
    bool checks = true;
    bool watched = false;  // instructions leave a mark when they are executed
    std::vector<u8>
        executed;  // by pc, in the launch in progress or the last one: 1 once a lane has; empty unless watched
    u64 seed = 0;
    u64 max_instructions = 4'000'000'000ull;
    std::mt19937_64 random{0};
    const Program* program = nullptr;
    const Launch* launch = nullptr;
    u32 multiprocessors = 148;
    GridCursor* cursor = nullptr;  // valid while a grid runs; null where clusters run side by side
    Warp* running = nullptr;       // valid while a cluster runs
    std::vector<Range> ranges;     // scratch of one instruction
    RowBlocks rows;                // the same
    Message released;              // the same
    std::vector<u8> box;           // scratch of one bulk tensor copy

    // Runs one grid to its end. Hazards and faults become findings; nothing is thrown for what a kernel does.
    void run(const Program& program, const Launch& launch);

    // A number for a cluster that is about to start. Numbers tell accesses to global memory apart and are 16 bits wide;
    // when they are used up, what clusters that are gone did is forgotten.
    u16 next_number(const std::vector<std::unique_ptr<Cluster>>& resident = {});
    // Takes what a cluster that will not run again has to tell, and its memory.
    void retire(Cluster& cluster);
    // Takes what a machine beside this one has done in the same launch.
    void absorb(Machine& other);
    void report(const Warp* warp, std::string rule, std::string message, i32 pc, i32 other_pc = -1,
                Severity severity = Severity::error);
    // Of what no warp does: the end of an asynchronous operation.
    void report(const Cta& cta, std::string rule, std::string message, i32 pc, i32 other_pc);
    // For rules that released kernels break: an error under the strict profile, nothing under the lenient one.
    void report_strict(const Warp* warp, std::string rule, std::string message, i32 pc, i32 other_pc = -1) {
        if (profile == Profile::strict) report(warp, std::move(rule), std::move(message), pc, other_pc);
    }

private:
    void begin();
    void tell(Finding f);
    void collect_findings();

    u16 number_ = 0;
    std::vector<std::pair<u64, Findings>> told_;  // by the ordinals of clusters
};

inline Machine& machine_of(Warp& w) { return *w.cta->cluster->machine; }

// machine/schedule.cpp
void start_async(Warp& w, bool tensor, u64 latency, std::function<void()> complete);
// For operations of several stages: all fields of `op` but the sequence number are set.
void enqueue_async(Cluster& cluster, AsyncOp op);
// done: its warps have exited. polling: they wait for something that only another cluster can do. failed: deadlock.
// yielded: the budget is used up.
enum class Progress : u8 { done, polling, failed, yielded };
Progress run_cluster(Cluster& cluster, u64 budget);

// machine/cluster_start.cpp
std::unique_ptr<Cluster> make_cluster(Machine& m, const std::array<u32, 3>& first, u16 number);

// machine/grid.cpp
// The clusters of a launch that the device holds at a time.
u32 resident_limit(u32 multiprocessors, const Program& program, const Launch& launch);
void run_grid(Machine& m);

// machine/threads.cpp: runs the grid's clusters on several threads of the host. False when there is nothing to gain, or
// when it has turned out that their order matters: then nothing has happened.
bool run_side_by_side(Machine& m);

// ptx/wgmma/wgmma.cpp: an instruction that is not a wgmma uses its registers.
void use_wgmma_registers(Warp& w, const Inst& i);

// ptx/tcgen05/load_store.cpp: an instruction uses registers that a tcgen05.ld may have written.
void use_loaded_registers(Warp& w, const Inst& i);

// machine/deadlock.cpp
void report_deadlock(std::span<const std::unique_ptr<Cluster>> resident, const char* rule);

// ptx/tcgen05/allocation.cpp
// Columns of which some have never been allocated are a fault. What has been given back still holds its values until
// another CTA gets it, and kernels have been released that rely on that: a hazard.
void require_allocated(Warp& w, const Cta& cta, u32 column, u32 count, const char* what);

// ptx/control/control.cpp
bool converge(Warp& w, u32 required);
bool release_joins(Cluster& cluster);
void exit_lanes(Warp& w, u32 mask);
void reach_join(Warp& w);

// ptx/barriers/named_barrier.cpp
void leave_named_barriers(Warp& w, u32 exited);

// ptx/barriers/cluster_barrier.cpp
void leave_cluster_barrier(Warp& w, u32 exited);
void note_outside_access(Cta& target, AgentId agent, u32 clock, u32 pc);
void check_cta_exit(Cta& cta);

// ptx/copies/bulk_group.cpp: an operation of lane `lane`'s open bulk group. `read` runs when its sources have been
// read, `write` when its results are visible.
BulkLane& bulk_lane(Warp& w, u32 lane);
void start_bulk_store(Warp& w, u32 lane, u64 latency, std::function<void()> read, std::function<void()> write);

// order/conflicts.cpp: conflict checks. `proxy_async` tells which proxy is accessing. The ranges are those of one
// operation, in one CTA's shared memory or in one allocation. Ranges in shared memory, `offset` further on: they lie in
// [low, end).
struct SharedRanges {
    std::span<const Range> ranges;
    u64 offset, low, end;
    std::span<const BlockChunks> blocks = {};  // the same, where they are whole chunks and somebody has sorted them
};
void touch_shared(Cta& target, Warp& w, const SharedRanges& r, const Accessor& who, bool proxy_async);
void touch_shared(Cta& target, Warp& w, std::span<const Range> ranges, const Accessor& who, bool proxy_async);
inline void touch_shared(Cta& target, Warp& w, u32 offset, u32 size, const Accessor& who, bool proxy_async) {
    const Range range{offset, size};
    touch_shared(target, w, SharedRanges{{&range, 1}, 0, offset, u64{offset} + size}, who, proxy_async);
}
void touch_global(Allocation& a, Warp& w, std::span<const Range> ranges, const Accessor& who, bool proxy_async);
inline void touch_global(Allocation& a, Warp& w, u64 address, u32 size, const Accessor& who, bool proxy_async) {
    const Range range{address, size};
    touch_global(a, w, {&range, 1}, who, proxy_async);
}
// The same checks, through the generic proxy, of what mostly lies alike and has nothing to report. False, and nothing
// has happened, otherwise: then ranges tell.
bool touch_shared_lanes(Warp& w, const LanePieces& pieces, const Accessor& who);
bool touch_global_lanes(Allocation& a, Warp& w, const LanePieces& pieces, const Accessor& who);
// False where there is something to report: then nothing has been, and the ranges are to be touched again. Of loads
// through the generic proxy, which may come twice.
bool touch_global_quietly(Allocation& a, Warp& w, std::span<const Range> ranges, const Accessor& who);
// The same of what a bulk copy reads, where accesses are not noted; but where it is false, nothing has happened.
bool touch_global_blocks(Allocation& a, Warp& w, std::span<const BlockChunks> blocks, const Accessor& who);
void touch_tmem(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& who,
                const char* what);
// Of what `writer` also reads, before. False, and nothing has happened, where there is something to report or not all
// has one past: then the reads and the writes are to be touched.
bool update_tmem_quietly(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& writer);

// machine/names.cpp: what findings call things
std::string name_of(const Cta& cta);                   // in the grid, and in its cluster
std::string shared_place(const Cta& cta, u32 offset);  // "shared 0x400 of CTA 2"
std::string shared_extent(const Cta& cta);             // what shared memory it has, and of what kind
std::string describe_agent(const Cluster& cluster, AgentId agent);

// order/lane_races.cpp: an instruction's accesses to shared memory, lane by lane, after touch_shared: against those of
// other lanes of this warp.
void note_lanes(Warp& w, const u64* at, u32 mask, u32 size, const Accessor& who);
inline void check_lanes(Warp& w, const u64* at, u32 mask, u32 size, const Accessor& who) {
    const Machine& m = machine_of(w);
    if (m.checks && m.profile == Profile::strict) note_lanes(w, at, mask, size, who);
}

// ptx/barriers/mbarrier.cpp
Mbarrier& mbarrier_at(Warp& w, u32 address, const char* what);
// An asynchronous operation that will perform complete-tx on this mbarrier; its agent and the clock of its accesses.
struct TxSource {
    Cta* cta;
    u32 offset;
    AgentId agent;
    u32 phase;
    u32 clock() const { return phase + 1; }
};
TxSource begin_tx(Warp& w, u32 address, const char* what);
void end_tx(const TxSource& source, u32 bytes, i32 pc);
void mbarrier_arrive(Warp* w, Cta& cta, u32 offset, Mbarrier& bar, u32 count, const Message* message);
void mbarrier_complete_tx(Cta& cta, u32 offset, Mbarrier& bar, u32 bytes, u32 issued_phase, i32 pc);
void check_mbarrier_visible(Warp& w, Mbarrier& bar, bool proxy_async);

// ptx/memory/load_store.cpp
struct SharedRef {
    Cta* cta;
    u32 offset;
};
SharedRef resolve_shared(Warp& w, u32 address, u32 size, const char* what);
Allocation& resolve_global(Warp& w, u64 address, u64 size, const char* what);
u8* resolve_param(Warp& w, u64 offset, u64 size);

}  // namespace ptxm
