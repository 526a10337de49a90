// The loop at head_dim 512, where O of 64 rows does not fit one warpgroup's registers: each of two owns half of O's
// columns. They take the tiles of S in turn; the owner of tile j hands P_j and the row maxima to the other, and both
// multiply P_j V_j. While one exponentiates, the other has products under way.
//
// Each has a ring. With V apart from K it holds what its warpgroup reads, in that order: K of a tile of its own, its
// half of V of the tile before, its half of V of that tile. With K = V it holds its half of every tile: the owner
// reads both rings for S_j, and each warpgroup gives its own half back behind P_j V_j.
//
// Thread i of either warpgroup holds the same places of its fragments, so what they exchange goes from thread to
// thread, through one buffer: a warpgroup fills it only after it has read what the other had put there.
#pragma once

#include "clocks.cuh"
#include "consumer.cuh"

namespace fmha::sm90 {

template <class T>
struct Alternation {
    using Packed = uint32_t[T::kKeys / 16][4];

    Consumer<T>& c;
    TileStream<T::kKeys> stream;
    const bool one_load;
    Tile own{};      // the next tile of S,
    bool has_own;    // if there is one; and
    bool has_other;  // whether P of the tile before it, or of the last one, is due from the other
    bool other_sparse = false;
    typename Rows<T>::Entries valid{};
    Cursor<T> keys, values;  // one and the same where K and V come apart
    Cursor<T> value;         // V that the last product was issued of,
    bool value_sparse = false;
    bool multiplying = false;  // and whether it is still to be given back
    uint32_t received = 0;     // the parity of the next phase of what the other hands over

    __device__ __forceinline__ explicit Alternation(Consumer<T>& c)
        : c(c),
          stream(c.place.tiles(c.params)),
          one_load(c.params.flags & kFmhaSharedKv),
          keys(one_load ? 0 : c.column_group),
          values(c.column_group),
          value(values) {
        if (one_load && c.column_group != 0) {
            keys.advance(T::kGroupUnits);
        }
        has_other = c.column_group != 0 && next_of_other();
        has_own = (has_other || c.column_group == 0) && stream.next(own);
    }

    __device__ __forceinline__ bool next_of_other() {
        Tile tile;
        const bool more = stream.next(tile);
        other_sparse = more && tile.sparse();
        return more;
    }

    __device__ __forceinline__ void publish(const Packed& packed) {
        const int thread = threadIdx.x % 128;
#pragma unroll
        for (int v = 0; v < T::kProbabilityVectors; ++v) {
            ptx::store_shared(c.shared.probability(v, thread), packed[v][0], packed[v][1], packed[v][2], packed[v][3]);
        }
        ptx::store_shared(c.shared.maximum(threadIdx.x), c.state[0].max, c.state[1].max);
        __syncwarp();
        if (c.lane == 0) {
            ptx::mbarrier_arrive(c.shared.handed(c.column_group));
        }
    }

    // P of the other's tile, and by what it moves the anchors, as its owner has moved them.
    __device__ __forceinline__ void receive(float (&factor)[2]) {
        ptx::mbarrier_wait(c.shared.handed(c.column_group ^ 1), received);
        received ^= 1;
#pragma unroll
        for (int v = 0; v < T::kProbabilityVectors; ++v) {
            ptx::load_shared(c.shared.probability(v, threadIdx.x % 128), c.p[v]);
        }
        const float2 maximum = ptx::load_shared_pair(c.shared.maximum(threadIdx.x ^ 128));
        factor[0] = raise_anchor(c.state[0], maximum.x, c.scale_log2);
        factor[1] = raise_anchor(c.state[1], maximum.y, c.scale_log2);
    }

    // With K = V the tile has landed: S of it was read, here or by the other, whose P says so.
    __device__ __forceinline__ void issue_values(bool sparse) {
        values = one_load ? values : keys;
        value = values;
        value_sparse = sparse;
        multiplying = true;
        c.issue_output(values, one_load);
        keys = one_load ? keys : values;
    }

    // Once the product is done.
    __device__ __forceinline__ void release_values() {
        c.template release<T::kGroupUnits>(value, value_sparse);
        multiplying = false;
    }

    // S of the next tile of one's own, and its K back unit by unit. A unit of either ring was filled before by a tile
    // of one's own or by one whose P was received: the phase that is waited for is not the one before last.
    __device__ __forceinline__ void issue_scores() {
        valid = c.rows.valid_entries(stream, own);
        Cursor<T> key = keys;
#pragma unroll 1
        for (int unit = 0; unit < T::kUnits; ++unit) {
            const bool second = one_load && unit >= T::kGroupUnits;
            const int slot = keys.slot + (one_load ? unit + (second ? T::kRingSlots - T::kGroupUnits : 0) : 0);
            c.issue_score_unit(slot, keys.parity, unit);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            if (multiplying) {
                release_values();
            }
            if (!one_load) {
                if (unit > 0) {
                    c.template release<1>(key, own.sparse());
                }
                key = keys;
                keys.advance();
            }
        }
        ptx::wgmma_wait<0>();
        ptx::pin(c.s);
        c.pin_output();
        if (one_load) {
            keys.advance(2 * T::kGroupUnits);
        } else {
            c.template release<1>(key, own.sparse());
        }
    }

    // From S of one's own tile to its product. `Follows`: P of a tile before it is due first.
    template <bool Follows>
    __device__ __forceinline__ void step() {
        float factor[2];
        if constexpr (Follows) {
            receive(factor);
            c.rescale(factor);
            issue_values(other_sparse);
        }
        c.softmax(own, valid, factor);
        Packed packed;
        c.pack(packed);
        publish(packed);
        const bool sparse = own.sparse();
        has_other = next_of_other();
        has_own = has_other && stream.next(own);
        if constexpr (Follows) {
            ptx::wgmma_wait<0>();
            c.pin_output();
            release_values();
        }
        c.rescale(factor);
#pragma unroll
        for (int v = 0; v < T::kProbabilityVectors; ++v) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                c.p[v][i] = packed[v][i];
            }
        }
        issue_values(sparse);
        if (has_own) {
            issue_scores();
        } else {
            finish_product();
        }
    }

    __device__ __forceinline__ void finish_product() {
        ptx::wgmma_wait<0>();
        c.pin_output();
        release_values();
    }
};

template <class T>
__device__ __forceinline__ void run_alternating(Consumer<T>& c) {
    ptx::mbarrier_wait(c.shared.query_full(), 0);  // also without a tile: the copy must land before the CTA ends
    stamp<kQueryThere>(threadIdx.x == 0);
    Alternation<T> turns(c);
    if (turns.has_own) {
        turns.issue_scores();
        stamp<kFirstScores>(threadIdx.x == 0);
        if (c.column_group == 0) {
            turns.template step<false>();
        }
        while (turns.has_own) {
            turns.template step<true>();
        }
    }
    if (turns.has_other) {
        float factor[2];
        turns.receive(factor);
        c.rescale(factor);
        turns.issue_values(turns.other_sparse);
        turns.finish_product();
    }
}

}  // namespace fmha::sm90
