#include "order/clocks.hpp"

namespace ptxm {

// Parts of `a` anew: what is known is the same between two of `ends` and the parts' own.
template <class LanesAt>
void VectorClock::rebuild(AgentId a, std::vector<u32> ends, LanesAt lanes_at) {
    for (const Part& p : parts_)
        if (p.agent == a) ends.insert(ends.end(), {p.from, p.to});
    std::sort(ends.begin(), ends.end());
    std::vector<Part> made;
    for (std::size_t k = 1; k < ends.size(); ++k) {
        if (ends[k] == ends[k - 1]) continue;
        const u32 lanes = lanes_at(ends[k]);
        if (lanes == kAllLanes) continue;
        if (!made.empty() && made.back().to == ends[k - 1] && made.back().lanes == lanes)
            made.back().to = ends[k];
        else
            made.push_back({a, ends[k - 1], ends[k], lanes});
    }
    std::erase_if(parts_, [a](const Part& p) { return p.agent == a; });
    parts_.insert(parts_.end(), made.begin(), made.end());
}

void VectorClock::restrict_to(const Part& to) {
    rebuild(to.agent, {to.from, to.to}, [&](u32 clock) {
        return known_lanes(to.agent, clock) & (clock > to.from && clock <= to.to ? to.lanes : kAllLanes);
    });
}

void VectorClock::join_parts(const VectorClock& other) {
    std::vector<AgentId> agents;
    const std::vector<Part>* const both[] = {&parts_, &other.parts_};
    for (const std::vector<Part>* parts : both)
        for (const Part& p : *parts)
            if (std::find(agents.begin(), agents.end(), p.agent) == agents.end()) agents.push_back(p.agent);
    for (const AgentId a : agents) {
        std::vector<u32> ends{0, get(a), other.get(a)};
        for (const Part& p : other.parts_)
            if (p.agent == a) ends.insert(ends.end(), {p.from, p.to});
        rebuild(a, std::move(ends), [&](u32 clock) { return known_lanes(a, clock) | other.known_lanes(a, clock); });
    }
}

void VectorClock::grow(std::size_t size) {
    constexpr std::size_t kRoom = 32;
    size = (size + kGroup - 1) / kGroup * kGroup;
    if (size > clocks_.capacity()) clocks_.reserve(size + kRoom);
    clocks_.resize(size, 0);
}

void ForeignClocks::join(u32 cluster, const VectorClock& generic, const VectorClock& async) {
    const View* known = find(cluster);
    if (known && known->generic.covers(generic) && known->async.covers(async)) return;
    View& v = own(cluster);
    v.generic.join(generic);
    v.async.join(async);
}

void ForeignClocks::join(const ForeignClocks& other) {
    if (views_ == other.views_) return;
    if (!views_) {
        views_ = other.views_;
        return;
    }
    for (const View& v : other.views()) join(v.cluster, v.generic, v.async);
}

void ForeignClocks::fence_proxy_async() {
    for (std::size_t i = 0; i < views().size(); ++i) {
        const View& v = views()[i];
        if (!v.async.covers(v.generic)) own(v.cluster).async.join(views()[i].generic);
    }
}

const std::vector<ForeignClocks::View>& ForeignClocks::views() const {
    static const std::vector<View> none;
    return views_ ? *views_ : none;
}

const ForeignClocks::View* ForeignClocks::find_in_views(u32 cluster) const {
    for (const View& v : *views_)
        if (v.cluster == cluster) return &v;
    return nullptr;
}

ForeignClocks::View& ForeignClocks::own(u32 cluster) {
    if (!views_)
        views_ = std::make_shared<std::vector<View>>();
    else if (views_.use_count() > 1)
        views_ = std::make_shared<std::vector<View>>(*views_);
    for (View& v : *views_)
        if (v.cluster == cluster) return v;
    views_->push_back(View{cluster, {}, {}});
    return views_->back();
}

Message::Message(const Message&) = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(const Message&) = default;
Message& Message::operator=(Message&&) noexcept = default;
Message::~Message() = default;

void Message::join(const Message& m) {
    fences.join(m.fences);
    if (m.cluster == kNoCluster) return;
    if (m.beyond) join_shared(beyond, m.beyond);
    if (cluster == kNoCluster) cluster = m.cluster;
    foreign.join(m.foreign);
    if (cluster != m.cluster) {
        foreign.join(m.cluster, m.generic, m.async_global);
        return;
    }
    generic.join(m.generic);
    async.join(m.async);
    tc.join(m.tc);
    tc_unfenced.join(m.tc_unfenced);
    async_global.join(m.async_global);
    shared_only.join(m.shared_only);
}

void Message::restrict_to_shared() {
    shared_only.join(generic);
    generic.clear();
    async_global.clear();
    foreign.clear();
}

void Message::clear() {
    fences = {};
    beyond.reset();
    cluster = kNoCluster;
    foreign.clear();
    generic.clear();
    async.clear();
    tc.clear();
    tc_unfenced.clear();
    async_global.clear();
    shared_only.clear();
}

void join_shared(std::shared_ptr<const Message>& mine, const std::shared_ptr<const Message>& theirs) {
    if (!theirs || mine == theirs) return;
    if (!mine) {
        mine = theirs;
        return;
    }
    Message both = *mine;
    both.join(*theirs);
    mine = std::make_shared<const Message>(std::move(both));
}

void join_shared(std::shared_ptr<const VectorClock>& mine, const std::shared_ptr<const VectorClock>& theirs) {
    if (!theirs || mine == theirs) return;
    if (!mine) {
        mine = theirs;
        return;
    }
    if (mine->covers(*theirs)) return;
    auto both = std::make_shared<VectorClock>(*mine);
    both->join(*theirs);
    mine = std::move(both);
}

void FenceOrder::join(const FenceOrder& other) {
    join_shared(before, other.before);
    join_shared(observed, other.observed);
}

void WarpClocks::begin_access(u32 lanes) {
    if (!accessed.empty() && accessed.back().clock == epoch()) tick();
    constexpr std::size_t kKept = 4096;
    if (accessed.size() == kKept) accessed.erase(accessed.begin(), accessed.begin() + kKept / 2);
    accessed.push_back({epoch(), lanes});
}

u32 WarpClocks::lanes_at(u32 clock) const {
    const auto at =
        std::lower_bound(accessed.begin(), accessed.end(), clock, [](const Accessed& a, u32 c) { return a.clock < c; });
    return at != accessed.end() && at->clock == clock ? at->lanes : 0;
}

void WarpClocks::order_lanes() {
    lanes_ordered = epoch();
    lanes_met.clear();
    lane_views.clear();
    tick();
}

void WarpClocks::order_lanes(u32 lanes) {
    share_views(lanes);
    keep({epoch(), lanes});
    tick();
}

void WarpClocks::order_in_turn(u32 lanes, u32 released) {
    const LanesMet met{released, lanes, true};
    for (std::size_t n = 0, views = lane_views.size(); n < views; ++n) {
        if (!(lane_views[n].lanes & lanes)) continue;
        const LaneView view = lane_views[n];
        learn(view.known, view.foreign, met.behind(view.lanes));
    }
    keep(met);
}

void WarpClocks::keep(const LanesMet& met) {
    constexpr std::size_t kKept = 64;
    if (lanes_met.size() == kKept) {
        lanes_ordered = std::max(lanes_ordered, lanes_met.front().clock);
        lanes_met.erase(lanes_met.begin());
    }
    lanes_met.push_back(met);
}

void WarpClocks::restrict_to(VectorClock& known, u32 lanes) const {
    if (!by_lane || lanes == kAllLanes) return;
    u32 to = known.get(self);
    // Epochs without an access of others are left whole: of those, all that the lanes did is theirs.
    const auto leave = [&](u32 from) {
        u32 begin = from, end = 0;
        for (const Accessed& a : accessed) {
            if (a.clock <= from || a.clock > to) continue;
            if (a.lanes & ~lanes) {
                end = a.clock;
                continue;
            }
            if (end) known.restrict_to({self, begin, end, lanes});
            begin = a.clock;
            end = 0;
        }
        if (end) known.restrict_to({self, begin, end, lanes});
        to = std::min(to, from);
    };
    for (auto met = lanes_met.rbegin(); met != lanes_met.rend(); ++met) {
        leave(met->clock);
        if (met->lanes & lanes) lanes |= met->before(lanes);
    }
    leave(lanes_ordered);
}

void WarpClocks::restrict_to(Message& m, u32 lanes) const {
    for (VectorClock* known : {&m.generic, &m.async, &m.async_global, &m.shared_only}) restrict_to(*known, lanes);
}

void WarpClocks::share_views(u32 lanes) {
    LaneView all{lanes, {}, {}};
    for (const LaneView& v : lane_views) {
        if (!(v.lanes & lanes)) continue;
        all.known.join(v.known);
        all.foreign.join(v.foreign);
    }
    if (!lane_views.empty()) lane_views.push_back(std::move(all));
}

void WarpClocks::learn(const VectorClock& known, const ForeignClocks& foreign_known, u32 lanes) {
    if (!by_lane || (lanes == kAllLanes && lane_views.empty())) return;
    if (lanes == kAllLanes) {
        common.join(known);
        common_foreign.join(foreign_known);
        return;
    }
    if (lane_views.empty()) {
        common = generic;
        common_foreign = foreign;
    }
    for (LaneView& v : lane_views) {
        if (v.lanes != lanes) continue;
        v.known.join(known);
        v.foreign.join(foreign_known);
        return;
    }
    lane_views.push_back({lanes, known, foreign_known});
}

bool WarpClocks::lanes_know(u32 from, AgentId a, u32 clock, u32 lanes) const {
    const auto has = [&](const ForeignClocks& known) {
        const ForeignClocks::View* const view = known.find(from);
        return view && view->generic.get(a) >= clock;
    };
    if (lane_views.empty() || has(common_foreign)) return true;
    u32 told = 0;
    for (const LaneView& v : lane_views)
        if (has(v.foreign)) told |= v.lanes;
    return told == 0 || !(lanes & ~told);
}

bool WarpClocks::lanes_know(AgentId a, u32 clock, u32 lanes) const {
    if (lane_views.empty() || common.get(a) >= clock) return true;
    u32 told = 0;
    for (const LaneView& v : lane_views)
        if (v.known.get(a) >= clock) told |= v.lanes;
    return told == 0 || !(lanes & ~told);
}

void WarpClocks::acquire_shared(const Message& m) {
    lanes_ordered = std::max(lanes_ordered, lanes_released);
    if (m.cluster != cluster) return;
    shared_only.join(m.generic);
    shared_only.join(m.shared_only);
    async.join(m.async);
    acquire_tc(m);
}

void WarpClocks::acquire(u32 from, const VectorClock& known, const VectorClock& known_async) {
    if (from != cluster) {
        foreign.join(from, known, known_async);
        return;
    }
    generic.join(known);
    async_global.join(known_async);
}

void WarpClocks::fence_proxy_async(bool shared, bool global, u32 lanes) {
    VectorClock known = generic;
    restrict_to(known, lanes);
    if (shared) {
        async.join(known);
        async.join(shared_only);
    }
    if (!global) {
        tick();
        return;
    }
    async_global.join(known);
    foreign.fence_proxy_async();
    tick();
}

void WarpClocks::fence_sequential() {
    if (fences.observed) {
        const std::shared_ptr<const Message> observed = std::move(fences.observed);
        fences.observed.reset();
        acquire(*observed);
    }
    Message here = release();
    here.fences = {};
    join_shared(fences.before, std::make_shared<const Message>(std::move(here)));
}

void WarpClocks::learn_launches(const std::vector<u32>& launches) {
    VectorClock complete;
    // The highest first, usually the last: it grows once.
    for (auto launch = launches.rbegin(); launch != launches.rend(); ++launch)
        complete.raise(static_cast<AgentId>(*launch), 1);
    foreign.join(kLaunches, complete, {});
    tick();
}

void WarpClocks::release_tc(Message& m) const {
    m.tc.join(published);
    m.tc_unfenced.join(tc);
    m.tc_unfenced.join(acquired_unfenced);
    m.cluster = cluster;
}

void WarpClocks::leave_out(const Message& m) {
    if (m.cluster != cluster) return;
    join_shared(beyond, std::make_shared<const VectorClock>(m.generic));
    join_shared(beyond, m.beyond);
}

void WarpClocks::acquire_tc(const Message& m) {
    if (m.cluster != cluster) return;
    acquired.join(m.tc);
    acquired_unfenced.join(m.tc_unfenced);
}

Message WarpClocks::generic_view() const {
    Message m;
    m.generic = generic;
    m.cluster = cluster;
    m.foreign = foreign;
    return m;
}

Message WarpClocks::release(u32 lanes) {
    Message m;
    release(m, lanes);
    return m;
}

void WarpClocks::release(Message& m, u32 lanes) {
    m.generic = generic;
    m.async = async;
    m.tc = published;
    m.tc_unfenced = tc;
    m.tc_unfenced.join(acquired_unfenced);
    m.async_global = async_global;
    m.cluster = cluster;
    m.foreign = foreign;
    m.shared_only = shared_only;
    m.fences = fences;
    m.beyond = beyond;
    restrict_to(m, lanes);
    lanes_released = epoch();
    tick();
}

void WarpClocks::release_to(Message& m, u32 lanes) {
    if ((by_lane && lanes != kAllLanes) || (m.cluster != cluster && m.cluster != kNoCluster)) {
        m.join(release(lanes));
        return;
    }
    m.cluster = cluster;
    m.foreign.join(foreign);
    m.generic.join(generic);
    m.async.join(async);
    m.tc.join(published);
    m.tc_unfenced.join(tc);
    m.tc_unfenced.join(acquired_unfenced);
    m.async_global.join(async_global);
    m.shared_only.join(shared_only);
    m.fences.join(fences);
    if (beyond) join_shared(m.beyond, beyond);
    lanes_released = epoch();
    tick();
}

void WarpClocks::learn_by_lane(const Message& m, u32 lanes) {
    if (m.cluster == cluster) return learn(m.generic, m.foreign, lanes);
    ForeignClocks others = m.foreign;
    if (m.cluster != kNoCluster) others.join(m.cluster, m.generic, m.async_global);
    learn({}, others, lanes);
}

void WarpClocks::acquire(const Message& m, u32 lanes) {
    lanes_ordered = std::max(lanes_ordered, lanes_released);
    fences.join(m.fences);
    if (by_lane && (lanes != kAllLanes || !lane_views.empty())) learn_by_lane(m, lanes);
    for (const ForeignClocks::View& v : m.foreign.views()) acquire(v.cluster, v.generic, v.async);
    if (m.cluster != cluster) {
        if (m.cluster != kNoCluster) acquire(m.cluster, m.generic, m.async_global);
        return;
    }
    if (m.beyond) join_shared(beyond, m.beyond);
    generic.join(m.generic);
    async.join(m.async);
    async_global.join(m.async_global);
    acquired.join(m.tc);
    acquired_unfenced.join(m.tc_unfenced);
    shared_only.join(m.shared_only);
}

}  // namespace ptxm
