// The loop at head_dim 512, where O of 64 rows does not fit one warpgroup's registers: each of two owns half of O's
// columns. They take the tiles of S in turn; the owner of tile j hands P_j and the row maxima to the other, and both
// multiply P_j V_j. While one exponentiates, the other has products under way.
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
    typename Rows<T>::Entries valid{};
    Cursor<T> keys, values;    // one and the same where K and V come apart
    Cursor<T> key, value;      // the last unit of K, the last tile of V that products were issued of
    uint32_t received = 0;     // the parity of the next phase of what the other hands over
    bool multiplying = false;  // that product's slots are not given back yet

    __device__ __forceinline__ explicit Alternation(Consumer<T>& c)
        : c(c), stream(c.place.tiles(c.params)), one_load(c.params.flags & kFmhaSharedKv) {
        has_other = c.column_group != 0 && next_of_other();
        has_own = (has_other || c.column_group == 0) && stream.next(own);
    }

    __device__ __forceinline__ bool next_of_other() {
        Tile tile;
        if (!stream.next(tile)) {
            return false;
        }
        pass_keys();
        return true;
    }

    // K of a tile whose S is the other's. A wait for a phase must know that the one before it is over, so a unit goes
    // to both warpgroups, and back from both.
    __device__ __forceinline__ void pass_keys() {
#pragma unroll 1
        for (int unit = 0; unit < T::kUnits; ++unit) {
            if (!one_load) {
                ptx::mbarrier_wait(c.shared.full(keys.slot), keys.parity);
                c.template release<1>(keys, false);
            }
            keys.advance();
        }
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

    __device__ __forceinline__ void issue_values() {
        values = one_load ? values : keys;
        value = values;
        multiplying = true;
        c.issue_output(values);
        keys = one_load ? keys : values;
    }

    // Once the product is done.
    __device__ __forceinline__ void release_values() {
        c.template release<T::kUnits>(value, false);
        multiplying = false;
    }

    // S of the next tile of one's own. K goes back unit by unit, and V before it as soon as its product is done: the
    // ring is little more than two tiles.
    __device__ __forceinline__ void issue_scores() {
        valid = c.rows.valid_entries(stream, own);
        key = keys;
        c.issue_score_unit(keys, 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (multiplying) {
            release_values();
        }
#pragma unroll 1
        for (int unit = 1; unit < T::kUnits; ++unit) {
            const Cursor<T> before = key;
            key = keys;
            c.issue_score_unit(keys, unit);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            if (!one_load) {
                c.template release<1>(before, false);
            }
        }
        ptx::wgmma_wait<0>();
        ptx::pin(c.s);
        c.pin_output();
        if (!one_load) {
            c.template release<1>(key, false);
        }
    }

    // From S of one's own tile to its product. `Follows`: P of a tile before it is due first.
    template <bool Follows>
    __device__ __forceinline__ void step() {
        float factor[2];
        if constexpr (Follows) {
            receive(factor);
            c.rescale(factor);
            issue_values();
        }
        c.softmax(own, valid, factor);
        Packed packed;
        c.pack(packed);
        publish(packed);
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
        issue_values();
        if (has_own) {
            issue_scores();
        } else {
            ptx::wgmma_wait<0>();
            c.pin_output();
        }
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
        if (turns.multiplying) {
            turns.release_values();
        }
        c.rescale(factor);
        turns.issue_values();
        ptx::wgmma_wait<0>();
        c.pin_output();
    }
}

}  // namespace fmha::sm90
