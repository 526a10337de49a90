// What a head_dim decides: warpgroups, tile shapes, the shared-memory map.
#pragma once

#include <stdint.h>

#include "barriers.cuh"
#include "launch.h"
#include "policy.cuh"

namespace fmha::sm90 {

template <int HeadDim>
struct Traits {
    static constexpr FmhaSm90Launch kLaunch = fmha_sm90_launch(HeadDim);
    static constexpr int kHeadDim = HeadDim;
    static constexpr int kRows = kLaunch.rows;
    static constexpr int kKeys = kLaunch.keys;
    static constexpr int kColumnGroups = kLaunch.column_groups;
    static constexpr int kConsumers = kLaunch.row_groups * kColumnGroups;  // warpgroups
    static constexpr int kConsumerThreads = 128 * kConsumers;
    static constexpr int kThreads = fmha_sm90_threads(HeadDim);
    static constexpr int kSlots = fmha_sm90_slots(HeadDim);
    static constexpr Policy kPolicy = policy_of(HeadDim);
    static constexpr bool kWalks = kPolicy.loop == Loop::kWalking;
    static constexpr bool kOverlaps = kWalks || kPolicy.loop == Loop::kOverlapped;  // P V with the next tile's softmax
    static constexpr int kPlaces = kPolicy.asks_early ? 4 : 2;  // that are told, and may not be read yet
    static constexpr int kRegisters = fmha_sm90_registers(HeadDim, FMHA_ROWS, FMHA_KIND, kKvHeads);
    // The launch gives every thread the same; what the consumers take beyond it the producer must leave, or setmaxnreg
    // waits for ever.
    static constexpr int kLaunchRegisters = 65536 / (kThreads * kLaunch.ctas_per_sm) / 8 * 8;
    static constexpr int kProducerRegisters = kLaunchRegisters * (kConsumers + 1) - kRegisters * kConsumers;
    static_assert(kProducerRegisters >= 24 && kProducerRegisters % 8 == 0, "setmaxnreg's range");
    static_assert(kRows == 64 * kLaunch.row_groups, "a warpgroup multiplies 64 rows");
    static_assert(kColumnGroups == 1 || (kConsumers == 2 && !kOverlaps), "column groups are two, and alone");

    // S of one warpgroup: 64 rows, the keys of a tile; K and V come in units of kBoxes boxes. O: 64 rows, its group's
    // columns, by parts that one instruction multiplies: a unit's, or with column groups all of them.
    static constexpr int kBoxes = kLaunch.boxes_per_unit;
    static constexpr int kUnits = HeadDim / 64 / kBoxes;  // of a K or V tile
    static constexpr int kGroupUnits = kUnits / kColumnGroups;
    static constexpr int kParts = kColumnGroups == 2 ? 1 : kUnits;
    static constexpr int kPartUnits = kGroupUnits / kParts;
    static constexpr int kPartColumns = 64 * kBoxes * kPartUnits;

    // A ring for all consumers, or one a column group, each with a producer warp of its own.
    static constexpr int kRings = kColumnGroups;
    static constexpr int kRingSlots = kSlots / kRings;
    static_assert(kSlots % kRings == 0 && kSlots >= 2 * kUnits, "the products of two tiles are in flight");
    static_assert(kRings == 1 || (kGroupUnits == 1 && kPartUnits == 1), "a column group's half of a tile is a unit");

    // ---- Shared memory, in bytes from the aligned base. ----
    static constexpr int kBoxBytes = kKeys * 128;
    static constexpr int kQueryBoxBytes = kRows * 128;
    static constexpr int kUnitBytes = kBoxes * kBoxBytes;
    static constexpr int kSmemQuery = 0;
    static constexpr int kSmemRing = kSmemQuery + kRows * HeadDim * 2;
    // Column groups exchange P in 16-byte vectors, thread by thread, and maxima and anchors, row by row.
    static constexpr int kSmemProbability = kSmemRing + kSlots * kUnitBytes;
    static constexpr int kProbabilityVectors = kKeys / 16;
    static constexpr int kSmemAnchors = kSmemProbability + (kColumnGroups == 2 ? 256 * kProbabilityVectors * 16 : 0);
    static constexpr int kSmemBarriers = kSmemAnchors + (kColumnGroups == 2 ? 64 * 16 : 0);

    static constexpr BarrierTable kBarrierTable = barrier_table(kPolicy, kSlots, kUnits);
    template <Barrier Kind>
    static constexpr int kFirst = kBarrierTable.first(Kind);
    static constexpr int kBarriers = kFirst<Barrier::kKinds>;
    template <int Place>
    static constexpr Arrivals kArrivals = kBarrierTable.arrivals(Place);
    static constexpr int kSmemTails = kSmemBarriers + 8 * kBarriers;     // two words, of tails to clear
    static constexpr int kSmemPlaces = (kSmemTails + 8 + 15) / 16 * 16;  // of row tiles
    static constexpr int kSharedBytes = fmha_sm90_shared_bytes(HeadDim);
    static_assert(1024 + kSmemPlaces + (kWalks ? 32 * kPlaces : 0) <= kSharedBytes, "launch.h says another size");
    static_assert(kSharedBytes <= 232448 && (kSharedBytes + 1024) * kLaunch.ctas_per_sm <= 233472,
                  "more than the 227 KB a CTA, or the 228 KB an SM may have");
    static_assert(kBoxBytes % 1024 == 0, "a box must start where the swizzle pattern starts");
};

}  // namespace fmha::sm90
