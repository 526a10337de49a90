// The asynchronous operations of a cluster that have not completed.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

struct AsyncOp {
    u64 time = 0;
    u64 sequence = 0;
    i64 priority = 0;       // pct schedule
    bool tensor = false;    // runs in order within its CTA's tensor core
    bool store = false;     // of a bulk group: takes effect even if nobody waits for it
    bool outlives = false;  // may complete after its CTA has exited
    u32 cta = 0;
    i32 pc = -1;  // of the instruction that started it
    u32 warp = 0;
    std::function<void()> complete;
};

// Operations have places, which stay while they are pending. What may complete: every operation but those that the
// tensor core of their CTA has not come to.
class AsyncQueue {
public:
    static constexpr u32 kNone = ~0u;

    bool empty() const { return oldest_ == kNone; }
    // `timed`: next() will be asked for.
    void push(AsyncOp op, bool timed) {
        const u32 at = take_place();
        Place& p = places_[at];
        p = {std::move(op), newest_, kNone, kNone};
        (newest_ == kNone ? oldest_ : places_[newest_].newer) = at;
        newest_ = at;
        timed_ = timed;
        if (!p.op.tensor) return become_eligible(at);
        Tensor& t = tensor_[p.op.cta];
        if (t.first == kNone) {
            t.first = at;
            become_eligible(at);
        } else {
            places_[t.last].next_tensor = at;
        }
        t.last = at;
    }
    // Of what may complete, the first in time, and among equals in issue order.
    u32 next() const { return eligible_.front().place; }
    u64 earliest() const { return eligible_.front().time; }
    // All that may complete, in issue order.
    void eligible(std::vector<u32>& places) const {
        for (u32 at = oldest_; at != kNone; at = places_[at].newer)
            if (!places_[at].op.tensor || tensor_[places_[at].op.cta].first == at) places.push_back(at);
    }
    const AsyncOp& at(u32 place) const { return places_[place].op; }
    // Removes what may complete: next() if the queue is timed.
    AsyncOp take(u32 at) {
        if (timed_) {
            std::pop_heap(eligible_.begin(), eligible_.end(), Later());
            eligible_.pop_back();
        }
        Place& p = places_[at];
        if (p.op.tensor) {
            const u32 following = p.next_tensor;
            tensor_[p.op.cta].first = following;
            if (following != kNone) become_eligible(following);
        }
        return remove(at);
    }
    // Removes what was issued first, whether it may complete or not: the end of a cluster.
    AsyncOp drain() {
        timed_ = false;
        Place& p = places_[oldest_];
        if (p.op.tensor) tensor_[p.op.cta].first = p.next_tensor;
        return remove(oldest_);
    }
    // How many have been taken or drained.
    u64 taken() const { return taken_; }
    template <class F>
    void each(F f) const {
        for (u32 at = oldest_; at != kNone; at = places_[at].newer) f(places_[at].op);
    }

private:
    static constexpr u32 kMaxCtas = 16;  // of a cluster
    struct Place {
        AsyncOp op;
        u32 older, newer, next_tensor;
    };
    struct Tensor {
        u32 first = kNone, last = kNone;
    };
    struct Eligible {
        u64 time, sequence;
        u32 place;
    };
    struct Later {
        bool operator()(const Eligible& a, const Eligible& b) const {
            return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
        }
    };

    u32 take_place() {
        if (free_.empty()) {
            places_.emplace_back();
            return static_cast<u32>(places_.size() - 1);
        }
        const u32 at = free_.back();
        free_.pop_back();
        return at;
    }
    void become_eligible(u32 at) {
        if (!timed_) return;
        eligible_.push_back({places_[at].op.time, places_[at].op.sequence, at});
        std::push_heap(eligible_.begin(), eligible_.end(), Later());
    }
    AsyncOp remove(u32 at) {
        Place& p = places_[at];
        (p.older == kNone ? oldest_ : places_[p.older].newer) = p.newer;
        (p.newer == kNone ? newest_ : places_[p.newer].older) = p.older;
        free_.push_back(at);
        taken_ += 1;
        return std::move(p.op);
    }

    std::vector<Place> places_;
    std::vector<u32> free_;
    u32 oldest_ = kNone, newest_ = kNone;
    std::array<Tensor, kMaxCtas> tensor_;
    std::vector<Eligible> eligible_;  // a heap, where timed
    bool timed_ = true;
    u64 taken_ = 0;
};

}  // namespace ptxm
