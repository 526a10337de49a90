#include "memory/overlap.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ptxm {
namespace {

constexpr u64 kMost = u64{256} << 20;  // bytes of global memory, beyond which there is no tail
constexpr std::size_t kBlock = 256;    // bytes that are compared at once

}  // namespace

void Overlap::begin_tail(GlobalMemory& memory) {
    forget();
    u64 total = 0;
    for (const auto& [base, a] : memory.allocations()) total += a.of_heap ? 0 : a.size;
    if (total > kMost) return;
    for (const auto& [base, a] : memory.allocations())
        if (!a.of_heap) snapshots_.push_back({base, {a.data.get(), a.data.get() + a.size}});
}

void Overlap::end_tail(GlobalMemory& memory, bool counted) {
    const std::vector<Snapshot> snapshots = std::exchange(snapshots_, {});
    if (counted) return;
    for (const Snapshot& s : snapshots) {
        const Allocation* const a = memory.find(s.base, s.bytes.size());
        if (!a || a->base != s.base) continue;
        for (std::size_t block = 0; block < s.bytes.size(); block += kBlock) {
            const std::size_t end = std::min(block + kBlock, s.bytes.size());
            if (!std::memcmp(s.bytes.data() + block, a->data.get() + block, end - block)) continue;
            for (std::size_t k = block; k < end; ++k) {
                if (s.bytes[k] == a->data[k]) continue;
                if (runs_.empty() || runs_.back().address + runs_.back().bytes != s.base + k)
                    runs_.push_back({s.base + k, before_.size(), 0});
                runs_.back().bytes += 1;
                before_.push_back(s.bytes[k]);
                after_.push_back(a->data[k]);
            }
        }
    }
}

void Overlap::put(GlobalMemory& memory, const std::vector<u8>& bytes) const {
    for (const Run& r : runs_)
        if (const Allocation* const a = memory.find(r.address, r.bytes))
            std::memcpy(a->data.get() + (r.address - a->base), bytes.data() + r.at, r.bytes);
}

void Overlap::undo(GlobalMemory& memory, std::mt19937_64& random) {
    const auto as_left = [&](const Run& r) {
        const Allocation* const a = memory.find(r.address, r.bytes);
        return a && !std::memcmp(a->data.get() + (r.address - a->base), after_.data() + r.at, r.bytes);
    };
    if (runs_.empty() || !std::ranges::all_of(runs_, as_left)) return;
    put(memory, before_);
    undone_ = true;
    due_ = random() % (u64{1} << (4 + random() % 12));
}

void Overlap::redo(GlobalMemory& memory) {
    if (undone_) put(memory, after_);
    forget();
}

void Overlap::forget() {
    snapshots_.clear();
    runs_.clear();
    before_.clear();
    after_.clear();
    undone_ = false;
}

}  // namespace ptxm
