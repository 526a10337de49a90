// What release operations on memory locations hand to acquire operations (PTX ISA 8.8: release and acquire patterns).
//
// A location's message is what the releases in its current release sequence published: a releasing store starts one
// anew, atomics extend it, a store that publishes nothing ends it. Keyed by the host address, for one launch.
#pragma once

#include <array>
#include <unordered_map>
#include <vector>

#include "order/clocks.hpp"

namespace ptxm {

// A warp's half-finished patterns: a fence, then a relaxed write, releases; a relaxed read, then a fence, acquires.
struct WarpFences {
    bool has_fenced = false;
    Message fenced;             // known at the last fence
    Message fenced_beyond_cta;  // and at the last one whose scope is more than the CTA
    bool narrow_since = false;  // a fence of .cta scope since the last wider one
    bool has_collected = false;
    Message collected;                          // read by relaxed operations since the last fence
    Message collected_cta;                      // of that, what comes from the own CTA: a fence of its scope is enough
    std::vector<WarpClocks::LanesMet> in_turn;  // lanes that the next acquiring fence orders, the last few of them
    struct Poll {
        i32 pc = -1;
        u64 value = 0, address = 0;
    };
    std::array<Poll, 8> polls;  // the last strong reads and what they gave: the same again is a failed poll
    u32 next_poll = 0;
};

class SyncTable {
public:
    SyncTable();
    ~SyncTable();
    struct Slot {
        Message wide;    // released at cluster scope or wider, by the CTA `releaser` or by several
        Message narrow;  // at .cta scope, within `cta`
        std::shared_ptr<const Message> fences;  // FenceOrder::before of who wrote
        u32 cta = 0, releaser = 0;
        static constexpr u32 kSeveral = ~0u;
        bool has_wide = false, has_narrow = false;
    };

    Slot* find(u64 key);
    Slot& at(u64 key);
    void forget(u64 key);
    void clear();

private:
    std::unordered_map<u64, Slot> slots_;
};

}  // namespace ptxm
