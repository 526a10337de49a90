// The barriers of a CTA: one table of its mbarriers, one of the named ones.
#pragma once

#include <stdint.h>

#include "policy.cuh"

namespace fmha::sm90 {

// mbarriers, in this order; docs/understand/hopper.md says who waits for each, and what it orders.
enum class Barrier {
    kQueryFull,   // Q is there
    kTold,        // the consumers' next place is there
    kFull,        // one a slot of the ring: K or V is there,
    kEmpty,       // and was read
    kTail,        // one a unit; with a warp for tails those of two take turns
    kHanded,      // one a column group: P and the anchors are there for the other,
    kTaken,       // and the other has read them
    kQueryEmpty,  // Q was read
    kNextFull,    // the next of packed row tiles is found,
    kNextFree,    // and the one behind it may be looked for
    kKinds,
};

enum class Arrivals {
    kOne,        // a thread's, and where a copy lands its bytes
    kReaders,    // each consumer warp's that reads a ring
    kWarpgroup,  // each thread's of a warpgroup
};

struct BarrierRow {
    int count;
    Arrivals arrivals;
};

struct BarrierTable {
    BarrierRow rows[int(Barrier::kKinds)];

    // The place of a kind's first barrier, 8 bytes each; of kKinds, how many there are.
    constexpr int first(Barrier kind) const {
        int place = 0;
        for (int i = 0; i < int(kind); ++i) {
            place += rows[i].count;
        }
        return place;
    }

    constexpr Arrivals arrivals(int place) const {
        int kind = 0;
        while (place >= rows[kind].count) {
            place -= rows[kind].count;
            ++kind;
        }
        return rows[kind].arrivals;
    }
};

constexpr BarrierTable barrier_table(Policy policy, int slots, int units) {
    const int walks = policy.loop == Loop::kWalking, by_length = policy.row_tiles == RowTiles::kByLength;
    const int exchange = policy.loop == Loop::kAlternating ? 2 : 0;
    return {{
        {1, Arrivals::kOne},                                   // query_full
        {walks, Arrivals::kOne},                               // told
        {slots, Arrivals::kOne},                               // full
        {slots, Arrivals::kReaders},                           // empty
        {(policy.tail_warp ? 2 : 1) * units, Arrivals::kOne},  // tail
        {exchange, Arrivals::kWarpgroup},                      // handed
        {exchange, Arrivals::kWarpgroup},                      // taken
        {walks, Arrivals::kReaders},                           // query_empty
        {by_length, Arrivals::kOne},                           // next_full
        {by_length, Arrivals::kOne},                           // next_free
    }};
}

// Named barriers, of the CTA's threads.
constexpr int kStartBarrier = 0;     // the consumers and the two warps that initialise mbarriers,
constexpr int kConsumerBarrier = 1;  // the consumers alone,
constexpr int kRingBarrier = 2;      // those two warps,
constexpr int kTurnBarrier = 3;      // one a row group: its turn at the tensor core has come;
constexpr int kOrderBarrier = 6;     // order_role and the producer

}  // namespace fmha::sm90
