#include "memory/access_log.hpp"

#include <algorithm>

#include "machine/cluster/cluster.hpp"

namespace ptxm {

void Undo::save(const Allocation& a) {
    std::atomic<bool>& saved = saved_[a.index];
    if (saved.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (saved.load(std::memory_order_relaxed)) return;
    Copy copy{a.data.get(), std::make_unique_for_overwrite<u8[]>(a.size), a.size};
    std::memcpy(copy.bytes.get(), a.data.get(), a.size);
    copies_.push_back(std::move(copy));
    saved.store(true, std::memory_order_release);
}

void Undo::restore() {
    for (const Copy& c : copies_) std::memcpy(c.to, c.bytes.get(), c.size);
}

void Ranges::join() {
    std::sort(list_.begin(), list_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::size_t n = 0;
    for (const Range& r : list_) {
        if (n && r.begin <= list_[n - 1].end)
            list_[n - 1].end = std::max(list_[n - 1].end, r.end);
        else
            list_[n++] = r;
    }
    list_.resize(n);
    limit_ = std::max(kFirstLimit, 2 * n);
}

void AccessLog::assign(u64 cluster) {
    const auto move = [&](Ranges& from, std::vector<Touched>& to) {
        for (const Ranges::Range& r : from.joined()) to.push_back({r.begin, r.end, cluster});
        from.clear();
    };
    move(read_, reads_);
    move(written_, writes_);
}

bool independent(const std::vector<const AccessLog*>& logs) {
    std::vector<AccessLog::Touched> writes;
    for (const AccessLog* log : logs) writes.insert(writes.end(), log->writes().begin(), log->writes().end());
    std::sort(writes.begin(), writes.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    // The ranges of one cluster are disjoint, so two that overlap are of different clusters.
    for (std::size_t n = 1; n < writes.size(); ++n)
        if (writes[n].begin < writes[n - 1].end) return false;
    for (const AccessLog* log : logs) {
        for (const AccessLog::Touched& r : log->reads()) {
            auto w = std::upper_bound(writes.begin(), writes.end(), r.begin,
                                      [](u64 at, const AccessLog::Touched& t) { return at < t.end; });
            for (; w != writes.end() && w->begin < r.end; ++w)
                if (w->cluster != r.cluster) return false;
        }
    }
    return true;
}

}  // namespace ptxm
