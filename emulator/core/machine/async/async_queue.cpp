#include "machine/async/async_queue.hpp"

namespace ptxm {

void AsyncQueue::push(AsyncOp op, bool timed) {
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

void AsyncQueue::eligible(std::vector<u32>& places) const {
    for (u32 at = oldest_; at != kNone; at = places_[at].newer)
        if (!places_[at].op.tensor || tensor_[places_[at].op.cta].first == at) places.push_back(at);
}

AsyncOp AsyncQueue::take(u32 at) {
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

AsyncOp AsyncQueue::drain() {
    timed_ = false;
    Place& p = places_[oldest_];
    if (p.op.tensor) tensor_[p.op.cta].first = p.next_tensor;
    return remove(oldest_);
}

u32 AsyncQueue::take_place() {
    if (free_.empty()) {
        places_.emplace_back();
        return static_cast<u32>(places_.size() - 1);
    }
    const u32 at = free_.back();
    free_.pop_back();
    return at;
}

void AsyncQueue::become_eligible(u32 at) {
    if (!timed_) return;
    eligible_.push_back({places_[at].op.time, places_[at].op.sequence, at});
    std::push_heap(eligible_.begin(), eligible_.end(), Later());
}

AsyncOp AsyncQueue::remove(u32 at) {
    Place& p = places_[at];
    (p.older == kNone ? oldest_ : places_[p.older].newer) = p.newer;
    (p.newer == kNone ? newest_ : places_[p.newer].older) = p.older;
    free_.push_back(at);
    taken_ += 1;
    return std::move(p.op);
}

AsyncQueue::AsyncQueue() = default;
AsyncQueue::~AsyncQueue() = default;

}  // namespace ptxm
