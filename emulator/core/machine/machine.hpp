// The machine: what it runs, under which rules, on which memory, and what it has found.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "findings/finding.hpp"
#include "machine/cluster/cluster.hpp"
#include "machine/schedule/search.hpp"
#include "machine/stats.hpp"
#include "memory/memory.hpp"
#include "memory/overlap.hpp"
#include "order/history/block_chunks.hpp"
#include "order/sync_table.hpp"

namespace ptxm {

class GridCursor;
class GridTree;
class Recorder;

// A warp's last acquiring fence of the tensormap proxy on one map, and what the warp knew then.
struct MapFence {
    AgentId agent;
    u32 clock;
    Message known;
};

enum class Schedule : u8 { realistic, early, late, random, spurious, pct };
// Whether the order of warps and of what works beside them is drawn from the seed.
inline bool draws(Schedule s) { return s == Schedule::random || s == Schedule::pct; }
enum class Profile : u8 { strict, lenient };
// Of tcgen05.mma: in the order that is fastest on the host, or as a B200 makes them.
enum class MmaSums : u8 { fast, silicon };

struct Launch {
    std::array<u32, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
    u32 dynamic_shared = 0;
    std::vector<u8> params;
    u64 workspace = 0;          // of a cooperative launch: what its CTAs meet at; 0 of any other
    bool programmatic = false;  // may begin before the launch before it is complete
    u32 first_plane = 0;        // CTAs of a lower z are left out
    bool overlaps = false;      // others of other streams may be beside it
    u32 number = 0;             // of all launches: what `beside` of others names
    std::vector<u32>
        beside{};          // launches before it that nothing orders before it, ascending: they are of other streams
    u32 after = 0;         // of a programmatic launch, the one before it in its stream; 0: the latest of all
    std::string name{};    // for reports of launches to come
    std::string stream{};  // the same: what its stream is called, "" where there is one
};

// A host's access to global memory that works in the order of a stream: of a copy, a fill, or what frees memory.
struct HostAccess {
    u64 address, size;
    bool write;
    const char* verb;  // "writes", "reads", "frees"
};

// A cluster's place in the grid, from that of its first CTA.
inline u64 ordinal_of(const Launch& launch, const std::array<u32, 3>& first) {
    return (u64{first[2]} * launch.grid[1] + first[1]) * launch.grid[0] + first[0];
}

struct Machine {
    Machine();
    ~Machine();
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
    std::vector<u64> recorded;   // clusters of a launch, by their ordinals, that leave a recording for the timing model
    std::vector<u64> glimpsed;   // clusters of which the recorder notes what they read first, of each allocation
    bool only_recorded = false;  // the others are left out, and those that are glimpsed end once that is known
    u64 counter = 0;             // from which CTAs draw: while others are left out each gets what it would in turns
    std::shared_ptr<Recorder> recorder;  // of the launch in progress or the last one; null where nothing is recorded
    u64 seed = 0;
    u64 max_instructions = 4'000'000'000ull;
    std::mt19937_64 random{0};
    Search search;                               // of the pct schedule
    std::unique_ptr<Interleaving> interleaving;  // of a launch under it
    const Program* program = nullptr;
    const Launch* launch = nullptr;
    u32 multiprocessors = 148;
    u32 tensor_columns = 0;        // that the CTAs of the grid hold, of 512 a multiprocessor
    GridCursor* cursor = nullptr;  // valid while a grid runs; null where clusters run side by side
    Warp* running = nullptr;       // valid while a cluster runs
    bool failed = false;           // a fault or a deadlock has ended the launch
    Overlap overlap;               // with the launch before this one
    std::vector<Range> ranges;     // scratch of one instruction
    RowBlocks rows;                // the same
    Message released;              // the same
    std::vector<u8> box;           // scratch of one bulk tensor copy

    // Runs one grid to its end. Hazards and faults become findings; nothing is thrown for what a kernel does.
    void run(const Program& program, const Launch& launch);
    // The grids that it has launched, and those that they have: the kernel of the one that comes next, by its address,
    // which runs when `run_next` has its program. 0: all are complete, or a fault has ended the launch.
    u64 next_grid();
    void run_next(const Program& program);
    std::unique_ptr<GridTree> tree;  // of the launch in progress

    // Of a launch before this one that may be running still, by a cluster of it: its number, from 1. 0 for this one.
    u32 launch_of(u32 cluster) const {
        const auto at = std::ranges::lower_bound(in_flight_, cluster, {}, &InFlight::last);
        return at == in_flight_.end() ? 0 : static_cast<u32>(at - in_flight_.begin()) + 1;
    }
    bool follows_others() const { return !in_flight_.empty(); }
    // The number of a launch that launch_of has given, if it may run beside this one, in another stream; else 0.
    u32 beside(u32 launch) const {
        const u32 number = in_flight_[launch - 1].number;
        return is_beside(number) ? number : 0;
    }
    // What a launch is called that launch_of has given.
    const std::string& name_of_launch(u32 launch) const { return in_flight_[launch - 1].name; }
    // The launch that this one waits for, as launch_of counts; 0: none that may be running still.
    u32 primary() const { return primary_; }
    // The same with its stream, for one that is beside this.
    std::string in_its_stream(u32 launch) const {
        const InFlight& l = in_flight_[launch - 1];
        return l.name + (l.stream.empty() ? ", of another stream," : " in " + l.stream);
    }
    // A copy or the like, which is told apart as a launch is. Its findings are the launch's that has ended.
    void work_for_host(const Launch& work, const std::vector<HostAccess>& accesses);
    // Launches that are complete before this one begins.
    const std::vector<u32>& complete_at_start() const { return at_start_; }
    // A CTA lets dependent launches begin, or waits for those that this one depends on. True: others have their turn
    // first, and the warp comes back.
    bool trigger(Warp& w);
    // Whether CTAs that let dependent launches begin stand still until all of the grid have.
    bool holds_triggered = false;
    const std::vector<u32>& wait_for_launches();
    void trigger_as(const Machine& other) { how_.triggered |= other.how_.triggered; }
    bool triggered() const { return how_.triggered; }

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
    void report(const Cta& cta, std::string rule, std::string message, i32 pc, i32 other_pc, Note note = {});
    void report(const Warp& w, Verdict told, i32 pc, i32 other_pc, Severity severity = Severity::error);
    // Of a conflict with a launch that launch_of has given, whose program is another.
    struct Beside {
        i32 pc, other_pc;
        u32 launch;
    };
    void report_beside(const Warp& w, std::string rule, std::string message, const Beside& where,
                       Severity severity = Severity::error);
    // For rules that released kernels break: an error under the strict profile, nothing under the lenient one.
    void report_strict(const Warp* warp, std::string rule, std::string message, i32 pc, i32 other_pc = -1) {
        if (profile == Profile::strict) report(warp, std::move(rule), std::move(message), pc, other_pc);
    }

private:
    void begin(bool of_host = false);
    void begin_beside();
    void begin_below();
    void begin_overlap();
    void hold_against_launches(const HostAccess& access, const Accessor& who);
    // Whether the grid that runs is one that a kernel has launched.
    bool runs_below() const;
    void forget_launches();
    void run_one();
    void tell(Finding f);
    void collect_findings();

    // Whether all CTAs of a launch let dependent launches begin; `late`: one of them when it knew that what it depends
    // on is complete.
    struct Triggered {
        bool triggered = false, late = false;
    };
    // Launches that are not known to be complete, in order: the number of each one's last cluster, and the launches
    // that have completed when it begins and when it has.
    struct InFlight {
        u16 last;
        u32 number;
        std::string name, stream;
        std::vector<u32> at_start, complete;  // of one that has triggered; nobody asks of another
        Triggered how{};
        bool of_host = false;
        std::vector<u32> below{};   // of the last grid of a launch: those of its grids that came before
        std::vector<u32> beside{};  // numbers of launches before it that nothing orders before it; as at_start
    };
    bool is_beside(u32 number) const { return std::ranges::binary_search(launch->beside, number); }
    // The launch that a programmatic one may begin before the end of, among those in flight.
    u32 find_primary() const;

    std::vector<InFlight> in_flight_;
    // Indices of in_flight_, from 1: complete when this launch begins, and when it waits or has ended.
    std::vector<u32> at_start_, complete_;
    std::vector<u32> below_;  // grids of this launch that came before the one that is running
    Triggered how_;
    bool dependent_ = false, waited_ = false;
    bool host_works_ = false;  // this is no launch, but work of the host
    u32 primary_ = 0;          // of in_flight_, from 1
    u32 launched_ = 0;         // the number of this launch
    std::string launched_name_, launched_stream_;
    std::vector<u32> launched_beside_;
    Launch host_work_;

    u16 number_ = 0;
    u32 next_grid_ = 0;                           // of the tree
    std::vector<std::pair<u64, Findings>> told_;  // by the ordinals of clusters
};

inline Machine& machine_of(Warp& w) { return *w.cta->cluster->machine; }

// An instruction of a warp, in an interleaving.
inline u64 name_in_order(const Warp& w, i32 pc) {
    return (w.cta->cluster->ordinal << 20 | u64{w.cta->rank} << 12 | w.index) << 24 ^ static_cast<u64>(pc);
}

}  // namespace ptxm
