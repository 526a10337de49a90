#include "memory/overlap.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ptxm {
namespace {

// Beyond these there is no tail: bytes of global memory, runs of bytes that it has changed, and what it has combined.
constexpr u64 kMost = u64{256} << 20;
constexpr std::size_t kMostRuns = 1 << 18, kMostCombined = 1 << 16;
constexpr std::size_t kBlock = 256;  // bytes that are compared at once

}  // namespace

void Overlap::begin_tail(GlobalMemory& memory) {
    forget();
    u64 total = 0;
    for (const auto& [base, a] : memory.allocations()) total += a.of_heap ? 0 : a.size;
    if (total > kMost) return;
    for (const auto& [base, a] : memory.allocations())
        if (!a.of_heap) snapshots_.push_back({base, {a.data.get(), a.data.get() + a.size}});
}

void Overlap::note(u64 address, u32 bytes, Again again) {
    lost_ |= combined_.size() == kMostCombined;
    if (!lost_) combined_.push_back({address, bytes, std::move(again)});
}

Overlap::Extents Overlap::extents_of(const std::vector<Combined>& all, bool looked_at) {
    Extents extents;
    for (const Combined& c : all)
        if (!c.again == looked_at) extents.push_back({c.address, c.address + c.bytes});
    std::ranges::sort(extents, {}, &Extent::begin);
    Extents apart;
    for (const Extent& e : extents)
        if (apart.empty() || apart.back().end < e.begin)
            apart.push_back(e);
        else
            apart.back().end = std::max(apart.back().end, e.end);
    return apart;
}

bool Overlap::meets(const Extents& extents, u64 begin, u64 end) {
    const auto after = std::ranges::upper_bound(extents, begin, {}, &Extent::end);
    return after != extents.end() && after->begin < end;
}

// The runs in which an allocation is not as it was. False where a run is of bytes that were combined as well, or there
// are too many.
bool Overlap::compare(const Snapshot& s, const u8* now, const Extents& combined) {
    for (std::size_t block = 0; block < s.bytes.size(); block += kBlock) {
        const std::size_t end = std::min(block + kBlock, s.bytes.size());
        if (!std::memcmp(s.bytes.data() + block, now + block, end - block)) continue;
        for (std::size_t k = block; k < end; ++k) {
            if (s.bytes[k] == now[k]) continue;
            const u64 address = s.base + k;
            if (meets(combined, address, address + 1)) return false;
            const How how = meets(looked_at_, address, address + 1) ? How::looked_at : How::written;
            const bool follows =
                !runs_.empty() && runs_.back().address + runs_.back().bytes == address && runs_.back().how == how;
            if (!follows && runs_.size() == kMostRuns) return false;
            if (!follows) runs_.push_back({address, before_.size(), 0, how});
            runs_.back().bytes += 1;
            before_.push_back(s.bytes[k]);
            after_.push_back(now[k]);
        }
    }
    return true;
}

void Overlap::end_tail(GlobalMemory& memory, bool lost) {
    std::vector<Snapshot> snapshots = std::exchange(snapshots_, {});
    std::vector<Combined> all = std::exchange(combined_, {});
    const bool too_many = std::exchange(lost_, false);
    if (lost || too_many || snapshots.empty()) return;
    looked_at_ = extents_of(all, true);
    // What was looked at somewhere is left as it is in the end, whoever combined it.
    std::erase_if(all, [&](const Combined& c) { return meets(looked_at_, c.address, c.address + c.bytes); });
    const Extents combined = extents_of(all, false);
    for (Snapshot& s : snapshots) {
        const Allocation* const a = memory.find(s.base, s.bytes.size());
        if (!a || a->base != s.base) continue;
        const auto within = [&](u64 begin, u64 end) { return begin >= s.base && end <= s.base + s.bytes.size(); };
        for (const Extent& e : combined) {
            if (!within(e.begin, e.end)) continue;
            const std::size_t at = e.begin - s.base, bytes = e.end - e.begin;
            runs_.push_back({e.begin, before_.size(), bytes, How::combined});
            before_.insert(before_.end(), s.bytes.begin() + at, s.bytes.begin() + at + bytes);
            after_.insert(after_.end(), a->data.get() + at, a->data.get() + at + bytes);
        }
        for (const Combined& c : all)
            if (within(c.address, c.address + c.bytes)) c.again(s.bytes.data() + (c.address - s.base));
        // What differs still was written. What was both written and combined cannot be done again.
        if (!compare(s, a->data.get(), combined)) return forget();
    }
    combined_ = std::move(all);
}

bool Overlap::has(GlobalMemory& memory, const Run& r, const std::vector<u8>& bytes) const {
    const Allocation* const a = memory.find(r.address, r.bytes);
    return a && !std::memcmp(a->data.get() + (r.address - a->base), bytes.data() + r.at, r.bytes);
}

void Overlap::put(GlobalMemory& memory, const Run& r, const std::vector<u8>& bytes) const {
    if (const Allocation* const a = memory.find(r.address, r.bytes))
        std::memcpy(a->data.get() + (r.address - a->base), bytes.data() + r.at, r.bytes);
}

void Overlap::undo(GlobalMemory& memory, std::mt19937_64& random) {
    if (runs_.empty() || !std::ranges::all_of(runs_, [&](const Run& r) { return has(memory, r, after_); })) return;
    for (const Run& r : runs_) put(memory, r, before_);
    undone_ = true;
    due_ = random() % (u64{1} << (4 + random() % 12));
}

void Overlap::redo(GlobalMemory& memory) {
    if (undone_) {
        for (const Run& r : runs_)
            if (r.how == How::written || (r.how == How::looked_at && has(memory, r, before_))) put(memory, r, after_);
        for (const Combined& c : combined_)
            if (const Allocation* const a = memory.find(c.address, c.bytes))
                c.again(a->data.get() + (c.address - a->base));
    }
    forget();
}

bool Overlap::looked_at(u64 address, u32 bytes) const { return meets(looked_at_, address, address + bytes); }

void Overlap::forget() {
    snapshots_.clear();
    combined_.clear();
    looked_at_.clear();
    lost_ = false;
    runs_.clear();
    before_.clear();
    after_.clear();
    undone_ = false;
}

}  // namespace ptxm
