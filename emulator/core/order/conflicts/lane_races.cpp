#include "order/conflicts/lane_races.hpp"

#include <algorithm>
#include <bit>

#include "machine/machine.hpp"
#include "machine/names.hpp"

namespace ptxm {
namespace {

constexpr u32 kKept = 64;

// For the latest access, in place of the oldest.
LaneAccess& place_for(LaneLog& log) {
    log.latest = log.accesses.size() < kKept ? static_cast<u32>(log.accesses.size()) : (log.latest + 1) % kKept;
    if (log.accesses.size() < kKept) return log.accesses.emplace_back();
    return log.accesses[log.latest];
}

struct Pair {
    u32 mine, theirs;
};

// The first two lanes whose bytes overlap and that nothing orders; false when there are none.
bool find_pair(const WarpClocks& clocks, const LaneAccess& now, const LaneAccess& before, Pair& found) {
    for (u32 mine = 0; mine < kLanes; ++mine) {
        if (!(now.mask >> mine & 1)) continue;
        const u32 from = now.at[mine], to = from + now.size;
        u32 overlapping = 0;
        for (u32 l = 0; l < kLanes; ++l)
            overlapping |= static_cast<u32>((before.at[l] < to) & (from < before.at[l] + before.size)) << l;
        overlapping &= before.mask & ~(1u << mine);
        for (; overlapping; overlapping &= overlapping - 1) {
            const u32 theirs = static_cast<u32>(std::countr_zero(overlapping));
            if (clocks.lanes_behind(theirs, before.clock) >> mine & 1) continue;
            found = {mine, theirs};
            return true;
        }
    }
    return false;
}

std::string place(const Warp& w, u32 at, const Allocation* of) {
    if (of) return format("'%s' at byte %u", of->name.c_str(), at);
    return shared_place(*w.cta->cluster->ctas[at >> kSharedRankShift], at & kSharedOffsetMask);
}

void compare(Warp& w, const LaneAccess& now, const LaneAccess& before, const Allocation* of) {
    if (before.clock <= w.clocks.lanes_ordered || (now.strong && before.strong)) return;
    if (now.memory != before.memory) return;
    if (!now.write && !before.write) return;
    if (now.ascends && before.size == now.size && before.at == now.at) return;  // each lane meets itself alone
    Machine& m = machine_of(w);
    const i32 pc = static_cast<i32>(now.pc), other = static_cast<i32>(before.pc);
    Pair lanes;
    if (m.findings->seen("lane-race", pc, other) || !find_pair(w.clocks, now, before, lanes)) return;
    m.report(&w, "lane-race",
             format("lane %u of warp %u %s %s, which lane %u %s with nothing that orders lanes of a warp in between",
                    lanes.mine, w.index, now.write ? "writes" : "reads", place(w, now.at[lanes.mine], of).c_str(),
                    lanes.theirs, before.write ? "wrote" : "read"),
             pc, other);
}

// Whether each lane's bytes lie behind those of the lane before: no two lanes access the same.
bool ascends(const LaneAccess& a) {
    u32 behind = 0;
    for (u32 l = 1; l < kLanes; ++l) behind += a.at[l] >= a.at[l - 1] + a.size;
    return behind == kLanes - 1;
}

struct Memory {
    u64 base;
    u32 number;
};

LaneAccess access_of(const u64* at, u32 mask, u32 size, const Accessor& who, const Memory& memory) {
    LaneAccess access;
    access.memory = memory.number;
    access.clock = who.clock;
    access.pc = who.pc;
    access.mask = mask;
    access.size = size;
    access.write = who.write;
    access.strong = who.strong;
    for (u32 l = 0; l < kLanes; ++l) access.at[l] = static_cast<u32>(at[l] - memory.base);
    return access;
}

// The same bytes again in the same way, as in a loop: what is ordered after the later one is after the earlier one.
bool repeats(const LaneAccess& before, const u64* at, u32 mask, u32 size, const Accessor& who, const Memory& memory) {
    if (who.write != before.write || who.strong != before.strong || mask != before.mask || size != before.size ||
        memory.number != before.memory)
        return false;
    u32 others = 0;
    for (u32 l = 0; l < kLanes; ++l) others |= static_cast<u32>(at[l] - memory.base) ^ before.at[l];
    return !others;
}

}  // namespace

void check_lanes(Warp& w, const u64* at, u32 mask, u32 size, const Accessor& who, const Allocation* of) {
    const Machine& m = machine_of(w);
    if (!m.checks || m.profile != Profile::strict) return;
    LaneLog& log = of ? w.global_lanes : w.lanes;
    const Memory memory{of ? of->base : 0, of ? of->index + 1 : 0};
    const auto again = [&](const LaneAccess& before) { return repeats(before, at, mask, size, who, memory); };
    const auto renew = [&](LaneAccess& before) {  // the rest is as it was
        before.clock = who.clock;
        before.pc = who.pc;
    };
    if (!w.lanes.met) {
        if (!log.accesses.empty() && again(log.accesses[log.latest])) return renew(log.accesses[log.latest]);
        LaneAccess& now = place_for(log);
        now = access_of(at, mask, size, who, memory);
        now.ascends = ascends(now);
        return;
    }
    w.lanes.met = false;
    const auto same = std::ranges::find_if(log.accesses, again);
    if (same == log.accesses.end()) {
        LaneAccess now = access_of(at, mask, size, who, memory);
        now.ascends = ascends(now);
        for (const LaneAccess& before : log.accesses) compare(w, now, before, of);
        place_for(log) = now;
        return;
    }
    if (!same->ascends) {  // else each lane meets itself alone
        const LaneAccess before = *same;
        renew(*same);
        compare(w, *same, before, of);
    }
    renew(*same);
    for (const LaneAccess& before : log.accesses)
        if (&before != &*same) compare(w, *same, before, of);
}

}  // namespace ptxm
