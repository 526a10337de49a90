// What a head_dim decides: warpgroups, tile shapes, the shared-memory map, the barriers, the operands.
#pragma once

#include <stdint.h>

#include "common/ptx/cluster.cuh"
#include "common/ptx/shared.cuh"
#include "launch.h"
#include "packed.cuh"
#include "parts.cuh"
#include "ptx/control.cuh"
#include "tiles.cuh"

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
    static constexpr bool kOverlap = fmha_sm90_overlap(HeadDim);
    static constexpr bool kKeysAhead = kOverlap;  // K of a tile comes before V of the one before
    static constexpr bool kWalks = kFmhaSm90Walks && kColumnGroups == 1 && kOverlap;  // over several row tiles
    static constexpr bool kBeginsAhead = kWalks && HeadDim <= 128;  // the next row tile before this one is stored
    static constexpr bool kByLength = kWalks && kFmhaSm90ByLength;
    static constexpr bool kAsksEarly = kByLength && kPaged;  // for the row tile behind a short one
    static constexpr int kPlaces = kAsksEarly ? 4 : 2;       // that are told, and may not be read yet
    static constexpr bool kBalances = kByLength && kFmhaSm90Balances;
    // Tails of V have a warp that clears them, so that the producer loads what is next meanwhile: with packed sequences
    // most row tiles have one.
    static constexpr bool kTailWarp = kWalks && kPaged;
    // Turns at the tensor core pay where a tile's exponentials take about as long as its products, and in long loops,
    // where row groups without them come to do the same at the same time.
    static constexpr bool kTurns = kWalks && (HeadDim <= 128 || FMHA_ROWS == 128) && kLaunch.row_groups > 1;
    static constexpr int kRegisters = fmha_sm90_registers(HeadDim, FMHA_ROWS, FMHA_KIND, kKvHeads);
    // The launch gives every thread the same; what the consumers take beyond it the producer must leave, or setmaxnreg
    // waits for ever.
    static constexpr int kLaunchRegisters = 65536 / (kThreads * kLaunch.ctas_per_sm) / 8 * 8;
    static constexpr int kProducerRegisters = kLaunchRegisters * (kConsumers + 1) - kRegisters * kConsumers;
    static_assert(kProducerRegisters >= 24 && kProducerRegisters % 8 == 0, "setmaxnreg's range");
    static_assert(kRows == 64 * kLaunch.row_groups, "a warpgroup multiplies 64 rows");
    static_assert(kColumnGroups == 1 || (kConsumers == 2 && !kOverlap), "column groups are two, and alone");

    // S of one warpgroup: 64 rows, the keys of a tile; K and V come in units of kBoxes boxes. O: 64 rows, its group's
    // columns, by parts that one instruction multiplies: a unit's, or with column groups all of them.
    static constexpr int kBoxes = kLaunch.boxes_per_unit;
    static constexpr int kUnits = HeadDim / 64 / kBoxes;  // of a K or V tile
    static constexpr bool kShares = kBoxes % 2 == 0;      // loads, with the other CTA of a cluster
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
    static constexpr int kSmemStatistics = kSmemAnchors + (kColumnGroups == 2 ? 64 * 16 : 0);
    static constexpr int kSmemBarriers = kSmemStatistics + fmha_sm90_statistics_bytes(kRows);
    // O in fp32 over the ring, for the merge; the padding spreads eight rows over all banks.
    static constexpr int kMergeRowBytes = (HeadDim + 8) * 4;
    static_assert(kRows * kMergeRowBytes <= kSlots * kUnitBytes, "O does not fit the ring");

    // ---- mbarriers, 8 bytes each. ----
    static constexpr int kQueryFull = 0;
    static constexpr int kTold = kQueryFull + 1;  // the consumers' next place is there
    static constexpr int kFull = kTold + (kWalks ? 1 : 0);
    static constexpr int kEmpty = kFull + kSlots;
    static constexpr int kTail = kEmpty + kSlots;  // one a unit; with a warp for tails those of two take turns
    static constexpr int kHanded =
        kTail + (kTailWarp ? 2 : 1) * kUnits;  // one a column group: P and the anchors are there for the other,
    static constexpr int kTaken = kHanded + (kColumnGroups == 2 ? 2 : 0);  // and the other has read them
    static constexpr int kQueryEmpty = kTaken + (kColumnGroups == 2 ? 2 : 0);
    static constexpr int kNextFull = kQueryEmpty + (kWalks ? 1 : 0);  // the next of packed row tiles is found,
    static constexpr int kNextFree = kNextFull + 1;                   // and the one behind it may be looked for
    static constexpr int kBarriers = kNextFull + (kByLength ? 2 : 0);
    static constexpr int kSmemTails = kSmemBarriers + 8 * kBarriers;     // two words, of tails to clear
    static constexpr int kSmemPlaces = (kSmemTails + 8 + 15) / 16 * 16;  // of row tiles
    static constexpr int kSharedBytes = fmha_sm90_shared_bytes(HeadDim);
    static_assert(1024 + kSmemPlaces + (kWalks ? 32 * kPlaces : 0) <= kSharedBytes, "launch.h says another size");
    static_assert(kSharedBytes <= 232448 && (kSharedBytes + 1024) * kLaunch.ctas_per_sm <= 233472,
                  "more than the 227 KB a CTA, or the 228 KB an SM may have");
    static_assert(kBoxBytes % 1024 == 0, "a box must start where the swizzle pattern starts");
};

// Shared-memory matrix descriptor, 128-byte swizzle (PTX ISA, "Matrix Descriptor Format" of wgmma): 8 rows of 128
// bytes make one pattern, the stride; `leading_bytes` leads to the next 64 elements of an MN-major operand.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading_bytes) {
    constexpr uint64_t kSwizzle128 = 1;
    constexpr uint64_t kStride = 1024 >> 4;
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading_bytes >> 4) << 16 | kStride << 32 | kSwizzle128 << 62;
}

// Addresses in the shared window, named.
template <class T>
struct SharedMap {
    uint32_t base;

    __device__ uint32_t query(int box) const { return base + T::kSmemQuery + box * T::kQueryBoxBytes; }
    __device__ uint32_t slot(int index) const { return base + T::kSmemRing + index * T::kUnitBytes; }
    __device__ uint32_t probability(int vector, int thread) const {
        return base + T::kSmemProbability + (vector * 256 + thread) * 16;
    }
    __device__ uint32_t anchors(int thread) const { return base + T::kSmemAnchors + thread / 4 * 16; }
    __device__ uint32_t statistics(int split, int row) const {
        return base + T::kSmemStatistics + (split * T::kRows + row) * 8;
    }
    __device__ uint32_t merge(int row, int column) const {
        return base + T::kSmemRing + row * T::kMergeRowBytes + column * 4;
    }

    __device__ uint32_t query_full() const { return barrier(T::kQueryFull); }
    __device__ uint32_t query_empty() const { return barrier(T::kQueryEmpty); }
    __device__ uint32_t full(int slot) const { return barrier(T::kFull + slot); }
    __device__ uint32_t empty(int slot) const { return barrier(T::kEmpty + slot); }
    __device__ uint32_t tail(int unit, int set = 0) const { return barrier(T::kTail + set * T::kUnits + unit); }
    __device__ uint32_t tail_word(int set) const { return base + T::kSmemTails + 4 * set; }
    __device__ uint32_t handed(int column_group) const { return barrier(T::kHanded + column_group); }
    __device__ uint32_t taken(int column_group) const { return barrier(T::kTaken + column_group); }
    __device__ uint32_t told() const { return barrier(T::kTold); }
    __device__ uint32_t place(int turn) const { return base + T::kSmemPlaces + 32 * (unsigned(turn) % T::kPlaces); }
    __device__ uint32_t next_full() const { return barrier(T::kNextFull); }
    __device__ uint32_t next_free() const { return barrier(T::kNextFree); }
    __device__ uint32_t barrier(int index) const { return base + T::kSmemBarriers + 8 * index; }
};

// A place in a ring: the slot, and the parity of the phase that its next filling completes.
template <class T>
struct Cursor {
    int slot;
    int end;  // of the ring
    uint32_t parity = 0;

    __device__ Cursor(int ring = 0) : slot(ring * T::kRingSlots), end(slot + T::kRingSlots) {}

    __device__ void advance(int units = 1) {
        slot += units;
        if (slot >= end) {
            slot -= T::kRingSlots;
            parity ^= 1;
        }
    }
};

// Rows from one row tile to the next: all of a CTA's or, where a box of Q is as many whole queries as fit, that box's,
// and the CTA's last rows are idle.
template <class T>
__device__ __forceinline__ int tile_rows(const FmhaParams& params) {
    if constexpr (kKvHeads) {
        return params.query_box > T::kRows / 2 ? params.query_box : T::kRows;
    } else {
        return T::kRows;
    }
}

// The row tile that a CTA is at: its own, or where CTAs walk one after another that it draws, until none is left.
// Without a window batch entries follow one another, so that CTAs that are at work read the K and V of as few entries
// as can be. Else row tiles are of several lengths: entries come by groups, in each of which the last rows of all its
// entries come first, since under a causal mask they have the most keys. Where queries are packed a PackedOrder says
// which row tiles there are; without it, as with a CTA each, some may be behind the last query.
template <class T>
struct Walk {
    int turn = 0;
    int batch;
    int row_tile;  // negative: none is left
    OwnTiles<T::kBalances> tiles;
    unsigned each = 1;     // entries of a group
    unsigned before_last;  // entries of all groups but the last one

    // By the whole warp, as is go_to. Where packed row tiles are drawn order_role finds them; others are told.
    __device__ explicit Walk(const FmhaParams& params) : before_last(params.batch - 1) {
        if (balanced<T>(params) || draws_packed(params)) {
            batch = row_tile = 0;
        } else if (draws(params)) {
            if (windowed(params)) {
                divide(params);
            }
            go_to(params, blockIdx.x);
        } else {
            batch = blockIdx.z;
            row_tile = kFmhaSm90Clusters ? blockIdx.x : row_tiles(params) - 1 - blockIdx.x;
        }
    }

    static __device__ bool draws(const FmhaParams& params) {
        return T::kWalks && !(int(gridDim.x) == row_tiles(params) && int(gridDim.z) == params.batch);
    }
    static __device__ bool draws_packed(const FmhaParams& params) {
        return T::kByLength && packed_queries(params) && draws(params) && ctas() < all(params) && !balanced<T>(params);
    }

    // The order of packed row tiles, once lengths may be read.
    __device__ PackedOrder packed_order(const FmhaParams& params) {
        if (!windowed(params)) {
            return {params.batch, params.batch};
        }
        divide(params);
        return {int(each), int(before_last)};
    }

    // Whether row tiles end with a plane's last row, so that the first one may lack rows: under a causal mask it has
    // the fewest keys. Wherever there is a count to draw by, drawn or not: all roles need the same answer, and this one
    // costs nothing. Row tiles that are no higher than those of keys are wide keep their diagonals in as few of these
    // as can be.
    static __device__ bool from_end(const FmhaParams& params) {
        return T::kWalks && T::kRows > T::kKeys && windowed(params) && params.drawn != nullptr;
    }

    // The first row of the row tile, in a plane of `rows` rows; negative where it lacks rows before row 0.
    __device__ int first_row(const FmhaParams& params, int rows) const {
        const int each = tile_rows<T>(params), lacking = from_end(params) ? ceil_div(rows, each) * each - rows : 0;
        return row_tile * each - lacking;
    }

    static __device__ int row_tiles(const FmhaParams& params) {
        return ceil_div(params.t * params.heads, tile_rows<T>(params));
    }
    static __device__ int ctas() { return gridDim.x * gridDim.z; }
    static __device__ int all(const FmhaParams& params) { return row_tiles(params) * params.batch; }

    // Entries into groups, evenly. Each CTA gets about two row tiles of a group, or as many as there are of entries
    // whose K and V the L2 holds beside what passes. Then the last group may fill more of it, since behind it are no
    // row tiles for the CTAs that are done early, and has two entries at least.
    __device__ void divide(const FmhaParams& params) {
        constexpr unsigned kCached = 16u << 20, kCachedOfLast = 24u << 20;  // bytes
        const unsigned entries = params.batch, keys = max(usual_keys(params), 1);
        const unsigned key_bytes = T::kHeadDim * (params.flags & kFmhaSharedKv ? 2 : 4);
        const unsigned wanted = 2 * ceil_div(ctas(), usual_tiles(params));
        const unsigned most = max(min(wanted, kCached / key_bytes / keys), 1u);
        const unsigned last = min(wanted, max(kCachedOfLast / key_bytes / keys, 2u));
        if (last > most && entries >= most + last) {
            before_last = entries - last;
            each = ceil_div(before_last, ceil_div(before_last, most));
        } else {
            const bool larger = last > most || entries < 2 * most;  // than `most`, where they do not divide evenly
            each = ceil_div(entries, larger ? max(entries / most, 1u) : ceil_div(entries, most));
            before_last = (ceil_div(entries, each) - 1) * each;
        }
    }

    // With balanced splits, whose planes have one row tile each.
    __device__ void go_to(const BalancedWalk<T>& balance) {
        batch = max(balance.plane, 0);
        row_tile = min(balance.plane, 0);
        tiles.take(balance.span);
    }

    // Keys and row tiles of an entry: where queries are packed the mean, else as many as one may have.
    static __device__ int usual_keys(const FmhaParams& params) {
        return draws_packed(params) && packed_keys(params) ? mean(params, params.cu_seqlens_k) : params.s_k;
    }
    static __device__ int usual_tiles(const FmhaParams& params) {
        if (!draws_packed(params)) {
            return row_tiles(params);
        }
        return max(ceil_div(mean(params, params.cu_seqlens_q) * params.heads, tile_rows<T>(params)), 1);
    }
    static __device__ int mean(const FmhaParams& params, const int32_t* ends) {
        const int entries = by_kv_heads(params, params.batch);
        return ceil_div(ends[entries], entries);
    }

    // The tile `index` in the order of all; where queries are packed from where it has come.
    __device__ void go_to(const FmhaParams& params, PackedOrder& order, int index) {
        if (!order.find(params, tile_rows<T>(params), index, batch, row_tile)) {
            row_tile = -1;
        }
    }
    __device__ void go_to(const FmhaParams& params, int index) {
        const unsigned rows = row_tiles(params);
        if (index >= all(params)) {
            row_tile = -1;
            return;
        }
        const bool in_last = unsigned(index) >= before_last * rows;
        const unsigned first = in_last ? before_last : unsigned(index) / (each * rows) * each;
        const unsigned width = in_last ? params.batch - first : min(each, before_last - first);
        const unsigned place = unsigned(index) - first * rows;
        batch = first + place % width;
        row_tile = rows - 1 - place / width;
    }
};

// Keys of the dense branch of a row tile: with packed queries none where it is behind the last one of its entry.
template <class T, class Index>
__device__ __forceinline__ int length_of(const FmhaParams& params, Index entry, int row_tile) {
    if (kPaged && row_tile * tile_rows<T>(params) >= queries_of(params, entry) * params.heads) {
        return 0;
    }
    return keys_of(params, entry);
}

// Where a CTA stands in the grid and in its cluster; where CTAs walk, a row tile, which one warp finds for all.
template <class T>
struct Place {
    int batch;    // negative: there is no row tile
    Plane plane;  // which that is
    OwnTiles<T::kBalances> own_tiles;
    int part = -1;  // with balanced splits as Span has it
    int length;     // of the dense branch
    int offset;     // query 0's position
    int width;      // row tiles that share loads
    int x;          // this one among them
    int rank;       // in the cluster
    int height;     // splits that the cluster merges
    int own;        // rows [own, own_end), none if it ends before it begins; those before row 0 are not stored
    int own_end;
    int shared;  // rows [shared, shared_end) of all that share loads
    int shared_end;
    int dense = 0;  // where CTAs walk, the dense keys [dense, dense_end) of its tiles
    int dense_end = 0;

    // Computed again where they are needed, which is at the end: no register holds them over the loop.
    __device__ int y() const { return ptx::cluster_y(); }  // this one among them
    __device__ int end(const FmhaParams& params) const {   // as own_end
        return min(own + tile_rows<T>(params), queries_of(params, plane.entry) * params.heads);
    }

    __device__ Place(const FmhaParams& params, const Walk<T>& walk, int cluster_width, int cluster_height)
        : own_tiles(walk.tiles) {
        const int row_tile = walk.row_tile, each = tile_rows<T>(params);
        batch = walk.batch;
        plane = plane_of(params, batch);
        const int entry = plane.entry, rows = queries_of(params, entry) * params.heads;
        length = length_of<T>(params, entry, row_tile);
        offset = params.query_offsets ? params.query_offsets[entry] : length - queries_of(params, entry);
        width = T::kShares ? cluster_width : 1;
        rank = !kFmhaSm90Clusters ? 0 : ptx::cluster_rank();
        x = T::kShares && kFmhaSm90Clusters ? ptx::cluster_x() : 0;
        height = cluster_height;
        own = walk.first_row(params, rows);
        own_end = min(own + each, rows);
        shared = own - x * each;
        shared_end = min(shared + width * each, rows);
        if constexpr (T::kWalks) {
            batch = walk.row_tile < 0 ? -1 : batch;
            const TileStream<T> stream(params, batch, own_tiles, length, offset, own, own_end, own, own_end, false);
            dense = stream.dense;
            dense_end = stream.dense_end;
            if constexpr (T::kBalances) {
                part = own_tiles.part;
            }
        }
    }

    // What `tell` has left. By the whole warp, of which one lane reads: the words are written anew once that lane has
    // said by an arrival that they are read, and racecheck knows no order from another lane's read over __syncwarp to
    // it.
    __device__ Place(const FmhaParams& params, const SharedMap<T>& map, int turn) : width(1), x(0), rank(0), height(1) {
        uint32_t words[8] = {};
        if (threadIdx.x % 32 == 0) {
            ptx::load_shared(map.place(turn), *reinterpret_cast<uint32_t (*)[4]>(words));
            ptx::load_shared(map.place(turn) + 16, *reinterpret_cast<uint32_t (*)[4]>(words + 4));
        }
        int* const fields[] = {&batch, &part, &length, &offset, &own, &own_end, &dense, &dense_end};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            *fields[i] = int(__shfl_sync(0xffffffffu, words[i], 0));
        }
        plane = plane_of(params, max(batch, 0));
        shared = own;
        shared_end = own_end;
    }

    // For the CTA's other warps, by one thread. Slots take turns: the next place is found before the consumers have
    // read the one before.
    __device__ void tell(const SharedMap<T>& map, int turn) const {
        ptx::store_shared_v4(map.place(turn), uint32_t(batch), uint32_t(part), uint32_t(length), uint32_t(offset));
        ptx::store_shared_v4(map.place(turn) + 16, uint32_t(own), uint32_t(own_end), uint32_t(dense),
                             uint32_t(dense_end));
    }

    // The keys that some row of the CTA sees that there is: pages of others may hold anything.
    __device__ KeyRange seen(const FmhaParams& params) const {
        if (!windowed(params)) {
            return {0, length};
        }
        return {visible_keys(params, length, offset, query_of(params, own)).first,
                visible_keys(params, length, offset, query_of(params, own_end - 1)).end};
    }

    // Behind the last key that some row of a row group sees.
    __device__ int end_seen(const FmhaParams& params, int row_group) const {
        const int first = own + 64 * row_group, last = min(first + 64, own_end) - 1;
        if (last < max(first, 0)) {
            return 0;
        }
        if (!windowed(params)) {
            return length;
        }
        return visible_keys(params, length, offset, query_of(params, last)).end;
    }

    __device__ TileStream<T> tiles(const FmhaParams& params) const {
        if constexpr (T::kWalks) {
            return {params, batch, dense, dense_end};
        } else {
            return {params, batch, own_tiles, length, offset, shared, shared_end, own, own_end, width > 1};
        }
    }
};

}  // namespace fmha::sm90
