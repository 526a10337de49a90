// Happens-before: vector clocks over agents, and the messages that carry them through barriers.
//
// An agent is anything whose accesses are ordered among themselves: a warp (generic proxy), a warp's tcgen05.ld or
// tcgen05.st stream, the tensor-core stream of one issuing warp, one mbarrier's bulk copies, one thread's bulk groups.
// An access carries (agent, clock). A warp holds three views; each answers "what is ordered before my next access of
// this kind": `generic` for plain accesses, `async` for operations of the async proxy (an earlier generic write counts
// only after a proxy fence), `tc` for tcgen05 operations on tensor memory (an edge counts only between
// fence::before_thread_sync and fence::after_thread_sync). docs/understand/order.md derives the rules.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

using AgentId = u16;

// bulk_store writes what a thread's bulk-group operations store, bulk_store_read reads what they store from. `phase`
// accesses nothing: its clock counts the completed phases of one mbarrier, and a warp's view of it is how many the warp
// knows to be complete.
enum class AgentKind : u8 {
    warp,
    tmem_ld,
    tmem_st,
    tensor,
    bulk_load,
    bulk_store,
    bulk_store_read,
    cp_async,
    warpgroup,
    phase,
    cluster_barrier
};

struct AgentInfo {
    AgentKind kind;
    u16 cta;     // rank in the cluster
    u16 warp;    // issuing warp; for bulk_load the mbarrier's owner has none and this is 0
    u32 detail;  // bulk_load: offset of the mbarrier; bulk_store and bulk_store_read: lane; warpgroup: its first warp
};

inline bool is_bulk_store(AgentKind kind) {
    return kind == AgentKind::bulk_store || kind == AgentKind::bulk_store_read;
}

// Non-bulk cp.async works through the generic proxy (PTX ISA 9.7.9.25.2: only the bulk forms are in the async proxy).
inline bool is_generic(AgentKind kind) { return kind == AgentKind::warp || kind == AgentKind::cp_async; }

constexpr u32 kAllLanes = ~0u;

class VectorClock {
public:
    u32 get(AgentId a) const { return a < clocks_.size() ? clocks_[a] : 0; }
    void raise(AgentId a, u32 clock) {
        if (a >= clocks_.size()) grow(a + 1u);
        clocks_[a] = std::max(clocks_[a], clock);
    }
    // Where only some lanes of a warp have released or fenced, what is known of it is theirs: of what the agent did at
    // clocks in (from, to], that of these lanes.
    struct Part {
        AgentId agent;
        u32 from, to, lanes;
    };
    bool has_parts() const { return !parts_.empty(); }
    // Whether what these lanes of an agent did at this clock is known. No lanes: any.
    bool knows(AgentId a, u32 clock, u32 lanes) const { return !(lanes & ~known_lanes(a, clock)); }
    // Of what `a` did at clocks in (from, to], only that of these lanes is known after all.
    void restrict_to(const Part& to);
    void join(const VectorClock& other) {
        if (!parts_.empty() || !other.parts_.empty()) join_parts(other);
        if (other.clocks_.size() > clocks_.size()) grow(other.clocks_.size());
        const u32* o = other.clocks_.data();
        u32* c = clocks_.data();
        for (std::size_t i = 0, n = other.clocks_.size(); i < n; i += kGroup) {
            u32 later[kGroup];  // before any is stored: for all GCC knows, the two are one memory
            for (std::size_t k = 0; k < kGroup; ++k) later[k] = std::max(c[i + k], o[i + k]);
            for (std::size_t k = 0; k < kGroup; ++k) c[i + k] = later[k];
        }
    }
    // Whether joining `other` would change nothing.
    bool covers(const VectorClock& other) const {
        if (!parts_.empty()) return false;
        for (std::size_t i = 0; i < other.clocks_.size(); ++i)
            if (other.clocks_[i] > (i < clocks_.size() ? clocks_[i] : 0)) return false;
        return true;
    }
    void clear() {
        std::fill(clocks_.begin(), clocks_.end(), 0);
        parts_.clear();
    }

private:
    u32 known_lanes(AgentId a, u32 clock) const {
        if (clock > get(a)) return 0;
        for (const Part& p : parts_)
            if (p.agent == a && clock > p.from && clock <= p.to) return p.lanes;
        return kAllLanes;
    }
    template <class LanesAt>
    void rebuild(AgentId a, std::vector<u32> ends, LanesAt lanes_at);
    // Before the clocks are joined: what either knows is known.
    void join_parts(const VectorClock& other);
    // Agents come one by one: with room for some more.
    void grow(std::size_t size);

    // There are always a multiple of so many, the last ones 0, so that a join, which each barrier has seven of for
    // every warp, has no end that is not a whole vector.
    static constexpr std::size_t kGroup = 16;
    std::vector<u32> clocks_;
    std::vector<Part> parts_;  // mostly none
};

// Agents are numbered within their cluster. What is known of other clusters, which only global memory can tell, is kept
// apart; it is empty in most kernels. Every release hands it on, so copies share it until one of them learns more.
constexpr u32 kNoCluster = ~0u;
// As if they were a cluster: the launches before this one, an agent each, that are known to be complete.
constexpr u32 kLaunches = kNoCluster - 1;

class ForeignClocks {
public:
    struct View {
        u32 cluster;
        VectorClock generic, async;
    };
    const View* find(u32 cluster) const { return views_ ? find_in_views(cluster) : nullptr; }
    void join(u32 cluster, const VectorClock& generic, const VectorClock& async);
    void join(const ForeignClocks& other);
    void fence_proxy_async();
    void clear() { views_.reset(); }
    const std::vector<View>& views() const;

private:
    const View* find_in_views(u32 cluster) const;
    // The view of a cluster, in a vector that nobody else holds.
    View& own(u32 cluster);

    std::shared_ptr<std::vector<View>> views_;
};

struct Message;

// The Fence-SC order (PTX ISA 8.9.3) as far as it can be known. Every two fence.sc of which each one's scope includes
// the other's thread are ordered, and the earlier synchronizes with the later (8.9.4), barriers and atomics between
// them or not. Which is the earlier shows where a strong read observes a strong write: were the fence behind the read
// the earlier one, causality order would lead from the read to the write that it has observed, which 8.10.6 excludes.
//
//     CTA 0, warp 1    CTA 0, warp 0            CTA 1, warp 0              CTA 1, warp 1
//     st [x]                                    atom.relaxed [n] sees 1
//     fence.sc         fence.sc                 bar.sync                   bar.sync
//     bar.sync         bar.sync                                            fence.sc
//                      atom.relaxed [n], 1                                 ld [x]
//
// The fence of CTA 0's warp 1 precedes the atomic of warp 0 in causality order, by the barrier; CTA 1's atomic observes
// it and precedes the fence of CTA 1's warp 1. So the first fence is before the last, and the load after the store. A
// fence.acq_rel would not do: warp 0's own release pattern begins at its fence, which the store does not precede.
struct FenceOrder {
    std::shared_ptr<const Message> before;    // released by the fence.sc that precede this point in causality order
    std::shared_ptr<const Message> observed;  // the same of the strong writes that reads before this point observed
    void join(const FenceOrder& other);
};

// What a release hands to an acquire. `tc` is what fence::before_thread_sync published; `tc_unfenced` what it would
// have. The clocks are those of `cluster`.
struct Message {
    VectorClock generic, async, tc, tc_unfenced, async_global;
    u32 cluster = kNoCluster;
    ForeignClocks foreign;
    VectorClock shared_only;  // known of shared memory, by a fence restricted to it, and not of global memory
    FenceOrder fences;
    std::shared_ptr<const VectorClock> beyond;  // what would be known, were scopes wider; mostly null

    // These are in clocks.cpp, for to copy and to destroy nine clocks is much code in every file that does it.
    Message() = default;
    Message(const Message&);
    Message(Message&&) noexcept;
    Message& operator=(const Message&);
    Message& operator=(Message&&) noexcept;
    ~Message();
    void join(const Message& m);
    // Of a release whose fence orders shared memory alone.
    void restrict_to_shared();
    void clear();
};

void join_shared(std::shared_ptr<const Message>& mine, const std::shared_ptr<const Message>& theirs);
void join_shared(std::shared_ptr<const VectorClock>& mine, const std::shared_ptr<const VectorClock>& theirs);

// The clocks of one warp.
struct WarpClocks {
    AgentId self = 0, ld = 0, st = 0, tensor = 0;
    u32 cluster = 0;             // the number of this warp's cluster in the launch
    VectorClock generic, async;  // async: of shared memory
    VectorClock async_global;    // the same of global memory, which a fence may leave out
    ForeignClocks foreign;
    VectorClock tc;                           // effective for my next tcgen05 operation
    VectorClock published;                    // covered by fence::before_thread_sync
    VectorClock acquired, acquired_unfenced;  // received, effective only after fence::after_thread_sync
    VectorClock fenced;                       // `generic` at the last fence::after_thread_sync: what an MMA may rely on
    VectorClock shared_only;                  // beyond `generic`, as in a message; mostly empty
    FenceOrder fences;
    std::shared_ptr<const VectorClock> beyond;  // as in a message
    u32 ld_issued = 0, st_issued = 0, mma_issued = 0;
    // Of the warp's own epochs: those up to its last release, and those whose accesses all lanes are known to be
    // behind.
    u32 lanes_released = 0, lanes_ordered = 0;
    // Some lanes have met, by a bar.warp.sync of theirs: each knows what the others had done up to this epoch. Or in
    // turn, by an atomic operation at one place: each knows it of the lanes before it alone. Those since
    // `lanes_ordered`, the last few of them.
    struct LanesMet {
        u32 clock, lanes;
        bool in_turn = false;
        // Of the lanes that met, those that know what any of these did, and those of which any of these knows.
        u32 behind(u32 some) const { return in_turn ? lanes & (~0u << std::countr_zero(some & lanes)) : lanes; }
        u32 before(u32 some) const { return in_turn ? lanes & (~0u >> std::countl_zero(some & lanes)) : lanes; }
    };
    std::vector<LanesMet> lanes_met;
    // Strict profile: what a part of the warp fences, releases and acquires is its own, until bar.warp.sync.
    bool by_lane = false;
    struct Accessed {
        u32 clock, lanes;
    };
    std::vector<Accessed> accessed;  // which lanes loaded and stored at an epoch, of the last epochs
    struct LaneView {
        u32 lanes;
        VectorClock known;
        ForeignClocks foreign;
    };
    std::vector<LaneView> lane_views;     // what only some lanes have acquired; `generic` and `foreign` have it too
    VectorClock common;                   // where there are such: of `generic`, what all lanes know
    ForeignClocks common_foreign;         // and of `foreign`
    std::array<u32, 32> mma_issued_by{};  // by lane: the last of its tensor-core operations

    void begin(AgentId self_id, AgentId ld_id, AgentId st_id, AgentId tensor_id) {
        self = self_id;
        ld = ld_id;
        st = st_id;
        tensor = tensor_id;
        generic.raise(self, 1);
    }
    u32 epoch() const { return generic.get(self); }
    // Of what an agent did to shared memory.
    u32 known_shared(AgentId a) const { return std::max(generic.get(a), shared_only.get(a)); }
    void add_shared_to(VectorClock& known) const {
        known.join(generic);
        known.join(shared_only);
    }
    void tick() { generic.raise(self, epoch() + 1); }
    void order_lanes();
    void order_lanes(u32 lanes);
    // These have performed an atomic operation at one place, the lowest first, and acquire what each had released.
    void order_in_turn(u32 lanes, u32 released);
    // The lanes that are behind what this one did at this epoch: it met some, and they met others.
    u32 lanes_behind(u32 lane, u32 clock) const {
        u32 behind = 1u << lane;
        for (const LanesMet& met : lanes_met)
            if (met.clock >= clock && (met.lanes & behind)) behind |= met.behind(behind);
        return behind;
    }
    // Before a load or store. An epoch has the accesses of the same lanes.
    void note_access(u32 lanes) {
        if (!by_lane) return;
        if (!accessed.empty() && accessed.back().clock == epoch() && accessed.back().lanes == lanes) return;
        begin_access(lanes);
    }
    // The first access of these lanes at an epoch.
    void begin_access(u32 lanes);
    // Those that accessed at an epoch; 0 where that is not known any longer.
    u32 lanes_at(u32 clock) const;
    // Of the warp's own accesses, leaves in `known` those that come before what these lanes do now.
    void restrict_to(VectorClock& known, u32 lanes) const;
    void restrict_to(Message& m, u32 lanes) const;
    void keep(const LanesMet& met);
    // What any of these lanes has acquired they all know.
    void share_views(u32 lanes);
    void learn_by_lane(const Message& m, u32 lanes);
    // Before `generic` and `foreign` join it.
    void learn(const VectorClock& known, const ForeignClocks& foreign_known, u32 lanes);
    // Whether what `generic` has of an agent has come to these lanes; and `foreign` of one of another cluster.
    bool lanes_know(AgentId a, u32 clock, u32 lanes) const;
    bool lanes_know(u32 from, AgentId a, u32 clock, u32 lanes) const;
    u32 issue_mma(u32 lane) {
        mma_issued_by[lane] = ++mma_issued;
        return mma_issued;
    }

    // What is ordered before the next generic access, as a message that nobody has released.
    Message generic_view() const;
    // By these lanes.
    Message release(u32 lanes = kAllLanes);
    // Into a message that keeps its memory.
    void release(Message& m, u32 lanes = kAllLanes);
    // The same, added to a message of this cluster.
    void release_to(Message& m, u32 lanes = kAllLanes);
    // What a relaxed arrival hands on: the order of tcgen05 operations needs execution to be ordered, not memory (PTX
    // ISA 9.7.16.6.3).
    void release_tc(Message& m) const;
    void acquire_tc(const Message& m);
    // Of an arrival or a wait whose scope leaves the other thread out: what it does not hand on.
    void leave_out(const Message& m);
    void acquire(const Message& m, u32 lanes = kAllLanes);
    // By a fence that orders shared memory alone.
    void acquire_shared(const Message& m);
    // From another cluster, or by way of one: only global memory is reached.
    void acquire(u32 from, const VectorClock& known, const VectorClock& known_async);
    void fence_proxy_async(bool shared, bool global, u32 lanes);
    // A fence.sc of more than the CTA: it comes after those that it must, and those that must come after it.
    void fence_sequential();
    // Launches before this one that are complete, by number from 1 (PTX ISA 9.7.13.16, griddepcontrol.wait).
    void learn_launches(const std::vector<u32>& launches);
    bool knows_launch(u32 launch) const {
        const ForeignClocks::View* const view = foreign.find(kLaunches);
        return view && view->generic.get(static_cast<AgentId>(launch));
    }
    void fence_before() { published.join(tc); }
    void fence_after() {
        tc.join(acquired);
        fenced.join(generic);
        fenced.join(shared_only);
    }
    // Who knows of a load or store through `generic` knows that it was issued, who does through `tc` that it is
    // complete.
    u32 issue_ld() {
        generic.raise(ld, ++ld_issued);
        return ld_issued;
    }
    u32 issue_st() {
        generic.raise(st, ++st_issued);
        return st_issued;
    }
    void wait_ld() { tc.raise(ld, ld_issued); }
    void wait_st() { tc.raise(st, st_issued); }
};

}  // namespace ptxm
