// The loop at head_dim 512, where O of 64 rows does not fit one warpgroup's registers: each of two owns half of O's
// columns. They take the tiles of S in turn; the owner of tile j hands P_j to the other, and both multiply P_j V_j.
// Neither waits for the other before its softmax: while one exponentiates, the other has products under way.
//
// Each has a ring. With V apart from K it holds what its warpgroup reads, in that order: K of a tile of its own, its
// half of V of the tile before, its half of V of that tile. With K = V it holds its half of every tile: the owner
// reads both rings for S_j, and each warpgroup gives its own half back behind P_j V_j.
//
// Each warpgroup has its own anchors, and hands them over with P. The higher one counts: where the other's is higher,
// O shrinks and so does P of one's own tile that is not multiplied yet; where it is lower, P of the other's shrinks.
// Since an anchor moves by 2^8 at least, and the second warpgroup begins with those of the first, both are rare.
//
// Thread i of either warpgroup holds the same places of its fragments, so what they exchange goes from thread to
// thread, through a buffer for each direction; the other says when it has taken what is in it.
#pragma once

#include "clocks.cuh"
#include "common/ptx/shared.cuh"
#include "consumer.cuh"

namespace fmha::sm90 {

template <class T>
struct Alternation {
    using Packed = uint32_t[T::kKeys / 16][4];

    Consumer<T>& c;
    TileStream<T> stream;
    const bool one_load;
    Tile own{};      // the next tile of S,
    bool has_own;    // if there is one; and
    bool has_other;  // whether P of the tile before it, or of the last one, is due from the other
    typename Rows<T>::Entries valid{};
    Cursor<T> keys, values;  // one and the same where K and V come apart
    Cursor<T> products[2];   // V of which the last products were issued, the other's and one's own tile
    uint32_t received = 0;   // the parity of the next phase of what the other hands over,
    uint32_t taken = 1;      // and of what it has taken

    __device__ __forceinline__ explicit Alternation(Consumer<T>& c)
        : c(c),
          stream(c.place.tiles(c.params)),
          one_load(c.params.flags & kFmhaSharedKv),
          keys(one_load ? 0 : c.column_group),
          values(c.column_group),
          products{values, values} {
        if (one_load && c.column_group != 0) {
            keys.advance();
        }
        has_other = c.column_group != 0 && next_of_other();
        has_own = (has_other || c.column_group == 0) && stream.next(own);
    }

    __device__ __forceinline__ bool next_of_other() {
        Tile tile;
        return stream.next(tile);
    }

    __device__ __forceinline__ void publish(const Packed& packed) {
        ptx::mbarrier_wait(c.shared.taken(c.column_group), taken);
        taken ^= 1;
#pragma unroll
        for (int v = 0; v < T::kProbabilityVectors; ++v) {
            ptx::store_shared_v4(c.shared.probability(v, threadIdx.x), packed[v][0], packed[v][1], packed[v][2],
                                 packed[v][3]);
        }
        if (c.lane % 4 == 0) {
            ptx::store_shared(c.shared.anchors(threadIdx.x), c.state[0].max, c.state[0].anchor, c.state[1].max,
                              c.state[1].anchor);
        }
        ptx::mbarrier_arrive(c.shared.handed(c.column_group));
    }

    // P of the other's tile, into c.p, and its maxima and anchors.
    __device__ __forceinline__ float4 receive() {
        ptx::mbarrier_wait(c.shared.handed(c.column_group ^ 1), received);
        received ^= 1;
        const float4 anchors = ptx::load_shared_vector(c.shared.anchors(threadIdx.x ^ 128));
#pragma unroll
        for (int v = 0; v < T::kProbabilityVectors; ++v) {
            ptx::load_shared(c.shared.probability(v, threadIdx.x ^ 128), c.p[v]);
        }
        ptx::mbarrier_arrive(c.shared.taken(c.column_group ^ 1));
        return anchors;
    }

    // O, one's own P, which follows `factor`'s raise, and the other's P to the same anchors. One vote, where nothing
    // moved.
    __device__ __forceinline__ void meet(float4 anchors, float (&factor)[2], Packed& packed) {
        const bool moved =
            factor[0] != 1.0f || factor[1] != 1.0f || anchors.y != c.state[0].anchor || anchors.w != c.state[1].anchor;
        if (!ptx::any_lane(moved)) {
            c.state[0].max = fmaxf(c.state[0].max, anchors.x);
            c.state[1].max = fmaxf(c.state[1].max, anchors.z);
            return;
        }
        float mine[2], theirs[2];
        meet_anchor(c.state[0], anchors.x, anchors.y, mine[0], theirs[0]);
        meet_anchor(c.state[1], anchors.z, anchors.w, mine[1], theirs[1]);
        shrink(c.p, theirs);
        shrink(packed, mine);
        factor[0] *= mine[0];
        factor[1] *= mine[1];
        c.rescale(factor, true);
    }

    static __device__ __forceinline__ void shrink(Packed& packed, const float (&factor)[2]) {
        if (ptx::any_lane(factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
            for (int v = 0; v < T::kProbabilityVectors; ++v) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    packed[v][i] = scaled_pair(packed[v][i], factor[i % 2]);
                }
            }
        }
    }

    // O += P V of the other's tile (0) or one's own (1). With K = V the tile has landed: S of it was read, here or by
    // the other, whose P says so.
    __device__ __forceinline__ void issue_values(int whose, const Packed& packed) {
        values = one_load ? values : keys;
        products[whose] = values;
        c.issue_output(values, packed, one_load);
        keys = one_load ? keys : values;
    }

    // V goes back as soon as its product is done, not behind the scores that follow: the producer waits for the slots.
    // `First` to `Last` of the two products are under way.
    template <int First, int Last>
    __device__ __forceinline__ void finish_products() {
        if constexpr (First != Last) {
            ptx::wgmma_wait<1>();
            c.template release<T::kGroupUnits>(products[First]);
        }
        ptx::wgmma_wait<0>();
        c.pin_output();
        c.template release<T::kGroupUnits>(products[Last]);
    }

    // S of the next tile of one's own, and its K back unit by unit. With K = V the other's half comes first, which was
    // given back for it before. A unit of either ring was filled before by a tile of one's own or by one whose P was
    // received: the phase that is waited for is not the one before last.
    __device__ __forceinline__ void issue_scores() {
        valid = c.rows.valid_entries(stream, own);
        Cursor<T> key = keys;
#pragma unroll 1
        for (int i = 0; i < T::kUnits; ++i) {
            const int unit = one_load ? i ^ c.column_group ^ 1 : i;
            const int slot = one_load ? keys.slot + unit * T::kRingSlots : keys.slot;
            c.issue_score_unit(slot, keys.parity, unit, i > 0);
            ptx::wgmma_commit();
            if (!one_load) {
                if (i > 0) {
                    ptx::wgmma_wait<1>();
                    c.template release<1>(key);
                }
                key = keys;
                keys.advance();
            }
        }
        ptx::wgmma_wait<0>();
        ptx::pin(c.s);
        if (one_load) {
            keys.advance(2);
        } else {
            c.template release<1>(key);
        }
    }

    // From S of one's own tile to its product. `Follows`: P of a tile before it is due first. `First`: and its anchors
    // come before one's own.
    template <bool Follows, bool First>
    __device__ __forceinline__ void step() {
        float factor[2], none[2];
        if constexpr (Follows && First) {
            const float4 anchors = receive();
            meet_anchor(c.state[0], anchors.x, anchors.y, none[0], none[0]);
            meet_anchor(c.state[1], anchors.z, anchors.w, none[1], none[1]);
        }
        const bool shrinks = c.softmax(own, valid, factor);
        Packed packed;
        c.pack(packed);
        publish(packed);
        if constexpr (Follows && First) {
            shrink(c.p, factor);
        } else if constexpr (Follows) {
            meet(receive(), factor, packed);
        } else {
            c.rescale(factor, shrinks);
        }
        if constexpr (Follows) {
            issue_values(0, c.p);
        }
        issue_values(1, packed);
        has_other = next_of_other();
        has_own = has_other && stream.next(own);
        finish_products<Follows ? 0 : 1, 1>();
        if (has_own) {
            issue_scores();
        }
    }
};

template <class T>
__device__ __forceinline__ void run_alternating(Consumer<T>& c) {
    Alternation<T> turns(c);
    if (turns.has_own) {
        turns.issue_scores();
        stamp<kFirstScores>(threadIdx.x == 0);
        if (c.column_group == 0) {
            turns.template step<false, true>();
        } else {
            turns.template step<true, true>();
        }
        while (turns.has_own) {
            turns.template step<true, false>();
        }
    }
    if (turns.has_other) {
        float factor[2] = {1.0f, 1.0f};
        uint32_t none[T::kKeys / 16][4] = {};
        turns.meet(turns.receive(), factor, none);
        turns.issue_values(0, c.p);
        turns.template finish_products<0, 0>();
    }
}

}  // namespace fmha::sm90
