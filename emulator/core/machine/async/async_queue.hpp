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

    AsyncQueue();
    ~AsyncQueue();
    bool empty() const { return oldest_ == kNone; }
    // `timed`: next() will be asked for.
    void push(AsyncOp op, bool timed);
    // Of what may complete, the first in time, and among equals in issue order.
    u32 next() const { return eligible_.front().place; }
    u64 earliest() const { return eligible_.front().time; }
    // All that may complete, in issue order.
    void eligible(std::vector<u32>& places) const;
    const AsyncOp& at(u32 place) const { return places_[place].op; }
    // Removes what may complete: next() if the queue is timed.
    AsyncOp take(u32 at);
    // Removes what was issued first, whether it may complete or not: the end of a cluster.
    AsyncOp drain();
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

    u32 take_place();
    void become_eligible(u32 at);
    AsyncOp remove(u32 at);

    std::vector<Place> places_;
    std::vector<u32> free_;
    u32 oldest_ = kNone, newest_ = kNone;
    std::array<Tensor, kMaxCtas> tensor_;
    std::vector<Eligible> eligible_;  // a heap, where timed
    bool timed_ = true;
    u64 taken_ = 0;
};

}  // namespace ptxm
