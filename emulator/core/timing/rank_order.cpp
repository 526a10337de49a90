#include "timing/rank_order.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>

namespace ptxm::timing {

namespace {

// Queues whose groups are counted: what is issued, what closes a group and what waits for one stay in their order,
// although no register says so. ptxas makes no SASS of a commit of wgmma, so that no rank says so either.
enum Queue : u32 { kProducts, kCopies, kTensor, kTensorMemory, kQueues };

u32 queue_of(Pipe pipe) {
    switch (pipe) {
        case Pipe::wgmma:
        case Pipe::wgmma_commit:
        case Pipe::wgmma_wait: return kProducts;
        case Pipe::copy:
        case Pipe::async_commit:
        case Pipe::async_wait: return kCopies;
        case Pipe::mma:
        case Pipe::commit: return kTensor;
        case Pipe::tmem_ld:
        case Pipe::tmem_st:
        case Pipe::tmem_wait: return kTensorMemory;
        default: return kQueues;
    }
}

}  // namespace

WarpRecording Order::of(const WarpRecording& recording) {
    WarpRecording ordered{{}, recording.deeds, recording.threads};
    const auto& steps = recording.steps;
    ordered.steps.reserve(steps.size());
    for (std::size_t first = 0; first < steps.size();) {
        std::size_t end = first + 1;
        // A jump ends a stretch, whether it is taken or not.
        while (end < steps.size() && steps[end].pc == steps[end - 1].pc + 1 &&
               costs_[steps[end - 1].pc].pipe != Pipe::branch)
            ++end;
        for (u32 k : of_stretch(steps[first].pc, static_cast<u32>(end - first)))
            ordered.steps.push_back(steps[first + k]);
        first = end;
    }
    return ordered;
}

const std::vector<u32>& Order::of_stretch(u32 pc, u32 length) {
    const auto [at, fresh] = known_.try_emplace({pc, length});
    std::vector<u32>& order = at->second;
    if (!fresh) return order;
    std::vector<std::vector<u32>> behind(length);
    std::vector<u32> before(length, 0);
    std::unordered_map<i32, u32> written;
    std::unordered_map<i32, std::vector<u32>> read;  // since it was written
    std::array<std::optional<u32>, kQueues> latest;
    const auto depends = [&](u32 later, u32 earlier) {
        if (later == earlier) return;
        behind[earlier].push_back(later);
        before[later] += 1;
    };
    for (u32 k = 0; k < length; ++k) {
        const Cost& c = costs_[pc + k];
        const i32* o = operands_.data() + c.operand;
        const auto reads = [&](i32 unit) {
            if (unit < 0) return;
            if (const auto w = written.find(unit); w != written.end()) depends(k, w->second);
            read[unit].push_back(k);
        };
        reads(c.guard);
        for (u32 n = 0; n < c.n_src; ++n) reads(o[c.n_dst + n]);
        for (u32 n = 0; n < c.n_dst; ++n) {
            if (o[n] < 0) continue;
            if (const auto w = written.find(o[n]); w != written.end()) depends(k, w->second);
            for (u32 r : read[o[n]]) depends(k, r);
            read[o[n]].clear();
            written[o[n]] = k;
        }
        if (const u32 queue = queue_of(c.pipe); queue != kQueues) {
            if (latest[queue]) depends(k, *latest[queue]);
            latest[queue] = k;
        }
        if (c.pipe == Pipe::wgmma_wait)  // who reads what the products have written comes behind it
            for (auto& [unit, writer] : written)
                if (costs_[pc + writer].pipe == Pipe::wgmma) writer = k;
        if (k + 1 == length && c.pipe == Pipe::branch)
            for (u32 n = 0; n < k; ++n) depends(k, n);
    }
    using Entry = std::pair<i64, u32>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
    for (u32 k = 0; k < length; ++k)
        if (!before[k]) next.push({ranks_[pc + k], k});
    while (!next.empty()) {
        const u32 k = next.top().second;
        next.pop();
        order.push_back(k);
        for (u32 later : behind[k])
            if (!--before[later]) next.push({ranks_[pc + later], later});
    }
    return order;
}

}  // namespace ptxm::timing
