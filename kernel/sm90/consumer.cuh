// A consumer warpgroup: 64 rows; S = Q K^T, softmax, O += P V with P as the A operand in registers.
//
// While the softmax works on tile j+1 the tensor core multiplies P_j V_j. Two column groups (head_dim 512) own half of
// O's columns each; each computes half the keys of S, and they exchange row maxima and P through shared memory.
#pragma once

#include "common/ptx/mbarrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "ptx/wgmma.cuh"
#include "softmax.cuh"
#include "traits.cuh"

namespace fmha::sm90 {

constexpr int kStartBarrier = 0;     // named barriers: the consumers and the producer warp,
constexpr int kConsumerBarrier = 1;  // the consumers,
constexpr int kTurnBarrier = 2;      // one more a row group,
constexpr int kVoteBarrier = 8;      // and one a warpgroup

template <class T>
struct Consumer {
    const FmhaParams& params;
    SharedMap<T> shared;
    const Place<T>& place;
    int group;
    int row_group;
    int column_group;
    int warp;  // of the warpgroup
    int lane;

    int row[2];  // this thread's rows, in the CTA
    int query[2];
    Visible visible[2];
    Visible all;  // seen by every row of the CTA
    RowState state[2];

    float o[T::kUnits][T::kUnitColumns / 2];
    float s[T::kScoreKeys / 2];
    uint32_t p[T::kKeys / 16][4];

    __device__ Consumer(const FmhaParams& params, SharedMap<T> shared, const Place<T>& place)
        : params(params), shared(shared), place(place) {
        // Uniform over the warp, which the compiler cannot see from threadIdx.
        group = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
        row_group = group / T::kColumnGroups;
        column_group = group % T::kColumnGroups;
        warp = threadIdx.x / 32 % 4;
        lane = threadIdx.x % 32;
        const int last = place.shared_end - 1;
        all = visible[0] = visible[1] = {0, place.length};
        row[0] = row_group * 64 + warp * 16 + lane / 4;
        row[1] = row[0] + 8;
        query[0] = query[1] = 0;
        if (windowed(params) || params.topk > 0) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                query[half] = min(place.own + row[half], last) / params.heads;
                visible[half] = visible_keys(params, place.length, place.offset, query[half]);
            }
            all.low = visible_keys(params, place.length, place.offset, max(place.own_end - 1, 0) / params.heads).low;
            all.high = visible_keys(params, place.length, place.offset, min(place.own, last) / params.heads).high;
        }
#pragma unroll
        for (int unit = 0; unit < T::kUnits; ++unit) {
#pragma unroll
            for (int i = 0; i < T::kUnitColumns / 2; ++i) {
                o[unit][i] = 0.0f;
            }
        }
    }

    // S = Q K^T, accumulated over the whole head_dim. Waits for each unit of K; commits. With `early` each unit goes
    // back as soon as the next is under way, except the last: a ring of little more than one tile cannot wait for the
    // tile.
    __device__ __forceinline__ void issue_scores(Cursor<T>& cursor, bool early, bool sparse) {
        ptx::pin(s);
        ptx::wgmma_fence();
        Cursor<T> before = cursor;
        constexpr int kUnroll = T::kUnits > 2 ? 1 : T::kUnits;
#pragma unroll kUnroll
        for (int unit = 0; unit < T::kUnits; ++unit) {
            ptx::mbarrier_wait(shared.full(cursor.slot), cursor.parity);
            const uint32_t key = shared.slot(cursor.slot) + column_group * T::kScoreKeys * 128;
#pragma unroll
            for (int position = 0; position < T::kBoxes; ++position) {
                const uint64_t a = descriptor(shared.query(T::box(unit, position)) + row_group * 64 * 128, 16);
                const uint64_t b = descriptor(key + position * T::kBoxBytes, 16);
#pragma unroll
                for (int step = 0; step < 4; ++step) {  // 16 elements, 32 bytes
                    ptx::wgmma_shared<T::kScoreKeys>(s, a + 2 * step, b + 2 * step, unit + position + step > 0);
                }
            }
            if constexpr (T::kEarlyRelease) {
                ptx::wgmma_commit();
                if (early && unit > 0) {
                    ptx::wgmma_wait<1>();
                    release<1>(before, sparse);
                }
                before = cursor;
            }
            cursor.advance();
        }
        if constexpr (!T::kEarlyRelease) {
            ptx::wgmma_commit();
        }
    }

    // O += P V, this group's columns of one unit. Waits for the unit; commits.
    template <int Unit>
    __device__ __forceinline__ void issue_output(Cursor<T>& cursor) {
        ptx::pin(o[Unit]);
        ptx::wgmma_fence();
        ptx::mbarrier_wait(shared.full(cursor.slot), cursor.parity);
        const uint32_t value = shared.slot(cursor.slot) + column_group * T::kGroupBoxes * T::kBoxBytes;
        const uint64_t b = descriptor(value, T::kBoxBytes);
#pragma unroll
        for (int step = 0; step < T::kKeys / 16; ++step) {  // 16 keys, 2048 bytes
            ptx::wgmma_registers<T::kUnitColumns>(o[Unit], p[step], b + (step * 2048 >> 4));
        }
        cursor.advance();
        ptx::wgmma_commit();
    }

    // The units of a tile's product from `Unit` on, if there is a product.
    template <int Unit>
    __device__ __forceinline__ void issue_outputs(Cursor<T>& cursor) {
        if constexpr (Unit < T::kUnits) {
            issue_output<Unit>(cursor);
            issue_outputs<Unit + 1>(cursor);
        }
    }

    // One unit in the middle of the softmax. A warp that issues more than the tensor core's short queue takes stands
    // still, so the product is dealt out over the softmax that it is to run beside.
    template <int Unit>
    __device__ __forceinline__ void interleave(Cursor<T>& cursor, bool first) {
        if constexpr (Unit < T::kUnits) {
            if (!first) {
                issue_output<Unit>(cursor);
            }
        }
    }

    __device__ __forceinline__ Cursor<T> last_unit(Cursor<T> cursor) const {
#pragma unroll
        for (int unit = 1; unit < T::kUnits; ++unit) {
            cursor.advance();
        }
        return cursor;
    }

    // Gives slots back, warp by warp, to every CTA that fills them. A gathered tile is the CTA's own, but the barrier
    // counts the same arrivals.
    template <int Units>
    __device__ __forceinline__ void release(Cursor<T> cursor, bool sparse) {
        __syncwarp();
#pragma unroll
        for (int unit = 0; unit < Units; ++unit) {
            if (place.width == 1) {
                if (lane == 0) {
                    ptx::mbarrier_arrive(shared.empty(cursor.slot));
                }
            } else if (lane < 2) {
                const int target = sparse ? place.rank : place.rank - place.x + lane;
                ptx::mbarrier_arrive_cluster(ptx::map_to_cta(shared.empty(cursor.slot), target));
            }
            cursor.advance();
        }
    }

    // Keys of S that this thread's rows do not see become -inf.
    __device__ __forceinline__ void mask_dense(const Tile& tile) {
        if (tile.begin >= all.low && tile.begin + T::kKeys <= all.high) {
            return;
        }
        const int first = tile.begin + column_group * T::kScoreKeys + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < T::kScoreKeys / 2; ++i) {
            const int key = first + i / 4 * 8 + i % 2;
            const Visible& range = visible[i / 2 % 2];
            s[i] = key >= range.low && key < range.high ? s[i] : -kInfinity;
        }
    }

    // Bit e % 32 of word e / 32: whether entry e of the tile is valid; the warp reads the list together. Called before
    // the scores are waited for.
    struct Entries {
        uint32_t words[(T::kKeys + 31) / 32];
    };

    __device__ __forceinline__ Entries valid_entries(const TileStream<T::kKeys>& stream, const Tile& tile) const {
        Entries valid{};
        if (tile.sparse) {
#pragma unroll
            for (int w = 0; w < (T::kKeys + 31) / 32; ++w) {
                valid.words[w] = __ballot_sync(0xffffffffu, stream.row_of(tile, 32 * w + lane) >= 0);
            }
        }
        return valid;
    }

    __device__ __forceinline__ void mask_sparse(const Tile& tile, const Entries& valid) {
        static_assert(T::kScoreKeys % 32 == 0 || T::kColumnGroups == 1, "a column group starts with a word");
        constexpr int kWords = T::kScoreKeys / 32;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const bool own = query[half] == tile.query;
#pragma unroll
            for (int i = 2 * half; i < T::kScoreKeys / 2; i += 4) {
                const int w = i / 16;
                const uint32_t word =
                    column_group == 0 ? valid.words[w] : valid.words[(T::kColumnGroups - 1) * kWords + w];
                const uint32_t bits = own ? word >> lane % 4 * 2 : 0;
                s[i] = bits >> i / 4 % 4 * 8 & 1 ? s[i] : -kInfinity;
                s[i + 1] = bits >> (i / 4 % 4 * 8 + 1) & 1 ? s[i + 1] : -kInfinity;
            }
        }
    }

    // S becomes P, still in fp32; `factor` is what O shrinks by. `cursor` and `first` are those of the product under
    // way.
    __device__ __forceinline__ void softmax(const Tile& tile, const Entries& valid, float (&factor)[2],
                                            Cursor<T>& cursor, bool first) {
        if (tile.sparse) {
            mask_sparse(tile, valid);
        } else {
            mask_dense(tile);
        }
        float maximum[2] = {fragment_max(s, 0), fragment_max(s, 1)};
        // Before the shuffles and the barrier: ptxas would compute the exponentials ahead of anything that comes after.
        interleave<1>(cursor, first);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            maximum[half] = row_max(fmaxf(state[half].max, maximum[half]));
        }
        if constexpr (T::kColumnGroups == 2) {
            ptx::store_shared(shared.maximum(threadIdx.x), maximum[0], maximum[1]);
            interleave<2>(cursor, first);
            ptx::named_barrier_sync(kConsumerBarrier, T::kConsumerThreads);
            const float2 other = ptx::load_shared_pair(shared.maximum(threadIdx.x ^ 128));
            maximum[0] = fmaxf(maximum[0], other.x);
            maximum[1] = fmaxf(maximum[1], other.y);
        } else {
            interleave<2>(cursor, first);
        }
        const float scale_log2 = params.scale * kLog2E;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            factor[half] = softmax_step(s, half, state[half], maximum[half], scale_log2);
        }
        // Here, and not where P is packed: the product under way is waited for in between.
        ptx::pin(s);
        interleave<3>(cursor, first);
    }

    // With two column groups: P of this group's keys, for the other. Both barriers of a tile keep both buffers safe.
    __device__ __forceinline__ void send_probabilities() {
        if constexpr (T::kColumnGroups == 2) {
#pragma unroll
            for (int v = 0; v < T::kProbabilityVectors; ++v) {
                ptx::store_shared(shared.probability(v, threadIdx.x), ptx::pack_bf16x2(s[8 * v], s[8 * v + 1]),
                                  ptx::pack_bf16x2(s[8 * v + 2], s[8 * v + 3]),
                                  ptx::pack_bf16x2(s[8 * v + 4], s[8 * v + 5]),
                                  ptx::pack_bf16x2(s[8 * v + 6], s[8 * v + 7]));
            }
            ptx::named_barrier_sync(kConsumerBarrier, T::kConsumerThreads);
        }
    }

    // P as the A operand; once the product that read the P before is done.
    __device__ __forceinline__ void take_probabilities() {
        constexpr int kSteps = T::kScoreKeys / 16;
        if constexpr (T::kColumnGroups == 2) {
            // The other group wrote what this thread needs of its keys at the same place of the fragment.
#pragma unroll
            for (int v = 0; v < kSteps; ++v) {
                const uint32_t own = shared.probability(v, threadIdx.x),
                               other = shared.probability(v, threadIdx.x ^ 128);
                ptx::load_shared(column_group == 0 ? own : other, p[v]);
                ptx::load_shared(column_group == 0 ? other : own, p[kSteps + v]);
            }
        } else {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    p[step][i] = ptx::pack_bf16x2(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
                }
            }
        }
    }

    __device__ __forceinline__ void rescale(const float (&factor)[2]) {
#pragma unroll
        for (int unit = 0; unit < T::kUnits; ++unit) {
#pragma unroll
            for (int i = 0; i < T::kUnitColumns / 2; ++i) {
                o[unit][i] *= factor[i / 2 % 2];
            }
        }
    }

    __device__ __forceinline__ void pin_output() {
#pragma unroll
        for (int unit = 0; unit < T::kUnits; ++unit) {
            ptx::pin(o[unit]);
        }
    }

    __device__ __forceinline__ void take_turn() {
        if constexpr (T::kPingPong) {
            ptx::named_barrier_sync(kTurnBarrier + row_group, 256);
        }
    }

    __device__ __forceinline__ void give_turn() {
        if constexpr (T::kPingPong) {
            ptx::named_barrier_arrive(kTurnBarrier + (row_group + 1) % T::kLaunch.row_groups, 256);
        }
    }

    // O, un-normalised, and `state` over all tiles of this CTA. Round j computes S_j and P_j beside P_{j-1} V_{j-1};
    // the first round is peeled only where long loops gain by it: a short launch loads its code into a cold cache.
    __device__ __forceinline__ void run() {
        TileStream<T::kKeys> stream = place.tiles(params);
        Tile tile{}, before{};
        ptx::mbarrier_wait(shared.query_full(), 0);  // also without a tile: the copy must land before the CTA ends
        if (!stream.next(tile)) {
            return;
        }
        const bool one_load = params.flags & kFmhaSharedKv;
        const bool last_group = row_group == T::kLaunch.row_groups - 1;
        Cursor<T> keys, values;
        if (last_group) {
            give_turn();
        }
        const auto round = [&](bool first) {
            const Tile current = tile;
            const Entries valid = valid_entries(stream, current);
            const Cursor<T> key = keys;
            take_turn();
            issue_scores(keys, !one_load, current.sparse);
            values = one_load ? values : keys;
            const Cursor<T> value = values;
            if (!first) {
                issue_output<0>(values);
            } else {
                ptx::wgmma_commit();  // an empty group
            }
            const bool more = stream.next(tile);
            if (more || !last_group) {
                give_turn();
            }
            ptx::wgmma_wait<1>();
            ptx::pin(s);
            if (!one_load) {
                release<T::kEarlyRelease ? 1 : T::kUnits>(T::kEarlyRelease ? last_unit(key) : key, current.sparse);
            }
            float factor[2];
            softmax(current, valid, factor, values, first);
            keys = one_load || first ? keys : values;
            send_probabilities();
            // The branch stands before the wait, and each side waits in words of its own, so that ptxas, which moves a
            // wait up to the head of its block, cannot move it above the softmax. The warpgroup votes, not the warp: all its
            // warps have to execute the same wait.
            if (ptx::named_barrier_all(kVoteBarrier + group, 128, factor[0] == 1.0f && factor[1] == 1.0f)) {
                ptx::wgmma_wait<0>();
                pin_output();
            } else {
                ptx::wgmma_wait_all();
                pin_output();
                rescale(factor);
            }
            if (!first) {
                release<T::kUnits>(value, before.sparse);
            }
            take_probabilities();
            before = current;
            return more;
        };
        if constexpr (T::kPeeled) {
            for (bool more = round(true); more;) {
                more = round(false);
            }
        } else {
            bool first = true;
            while (round(first)) {
                first = false;
            }
        }
        values = one_load ? values : keys;
        const Cursor<T> last = values;
        issue_outputs<0>(values);
        ptx::wgmma_wait<0>();
        pin_output();
        // A CTA that shares loads may have tiles of its own still to gather into these slots.
        if (place.width > 1) {
            release<T::kUnits>(last, before.sparse);
        }
    }
};

}  // namespace fmha::sm90
