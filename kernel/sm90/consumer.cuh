// A consumer warpgroup's 64 rows: its accumulators, its products S = Q K^T and O += P V with P as the A operand in
// registers, its softmax. rounds.cuh has the order in which they run.
#pragma once

#include "clocks.cuh"
#include "common/ptx/mbarrier.cuh"
#include "place.cuh"
#include "ptx/control.cuh"
#include "ptx/wgmma.cuh"
#include "rows.cuh"
#include "softmax.cuh"

namespace fmha::sm90 {

template <class T>
struct Consumer {
    const FmhaParams& params;
    SharedMap<T> shared;
    const Place<T>& place;
    int group;
    int row_group;
    int column_group;
    int lane;
    Rows<T> rows;
    RowState state[2];
    float room[2] = {-kInfinity, -kInfinity};  // of raise_own_anchors
    const float scale_log2;

    float o[T::kParts][T::kPartColumns / 2];
    float s[T::kKeys / 2];
    uint32_t p[T::kKeys / 16][4];

    // `group` is uniform over the warp, which the compiler cannot see from threadIdx.
    __device__ Consumer(const FmhaParams& params, SharedMap<T> shared, const Place<T>& place, int group)
        : params(params),
          shared(shared),
          place(place),
          group(group),
          row_group(group / T::kColumnGroups),
          column_group(group % T::kColumnGroups),
          lane(threadIdx.x % 32),
          rows(params, place, row_group),
          scale_log2(params.scale * kLog2E) {
        clear_output();
    }

    __device__ __forceinline__ void clear_output() {
#pragma unroll
        for (int part = 0; part < T::kParts; ++part) {
#pragma unroll
            for (int i = 0; i < T::kPartColumns / 2; ++i) {
                o[part][i] = 0.0f;
            }
        }
    }

    // The rows of `place` from now on.
    __device__ __forceinline__ void begin(const Rows<T>& these) {
        rows = these;
        state[0] = state[1] = {};
        room[0] = room[1] = -kInfinity;
        clear_output();
    }

    // A ring's slot that the compiler cannot see to be the same in every lane.
    static __device__ __forceinline__ uint32_t uniform(uint32_t address) {
        return T::kUnits == 1 ? address : ptx::uniform(address);
    }

    // One unit's share of S = Q K^T, added to that of other units if it `follows` them. Waits for the unit; does not
    // commit. Each unit is fenced behind its wait: else ptxas adds fences of its own, and where it must add one in a
    // branch it makes every product of the kernel wait for the one before (C7520).
    __device__ __forceinline__ void issue_score_unit(int slot, uint32_t parity, int unit, bool follows) {
        ptx::mbarrier_wait(shared.full(slot), parity);
        ptx::pin(s);
        ptx::wgmma_fence();
        const uint64_t query = descriptor(uniform(shared.query(unit * T::kBoxes) + row_group * 64 * 128), 16);
        const uint64_t key = descriptor(uniform(shared.slot(slot)), 16);
#pragma unroll
        for (int position = 0; position < T::kBoxes; ++position) {
            const uint64_t a = query + (position * T::kQueryBoxBytes >> 4), b = key + (position * T::kBoxBytes >> 4);
#pragma unroll
            for (int step = 0; step < 4; ++step) {  // 16 elements, 32 bytes
                ptx::wgmma_shared<T::kKeys>(s, a + 2 * step, b + 2 * step, follows || position + step > 0);
            }
        }
    }

    // S = Q K^T; commits.
    __device__ __forceinline__ void issue_scores(Cursor<T>& cursor) {
#pragma unroll
        for (int unit = 0; unit < T::kUnits; ++unit) {
            issue_score_unit(cursor.slot, cursor.parity, unit, unit > 0);
            cursor.advance();
        }
        ptx::wgmma_commit();
    }

    // O += P V, this group's columns, part by part. Waits for each unit, unless `landed`; commits.
    template <int Part = 0>
    __device__ __forceinline__ void issue_output(Cursor<T>& cursor, const uint32_t (&p)[T::kKeys / 16][4],
                                                 bool landed = false) {
        if (!landed) {
#pragma unroll
            for (int unit = 0; unit < T::kPartUnits; ++unit) {
                ptx::mbarrier_wait(shared.full(cursor.slot + unit), cursor.parity);
            }
        }
        ptx::pin(o[Part]);
        ptx::wgmma_fence();
        const uint64_t b = descriptor(uniform(shared.slot(cursor.slot)), T::kBoxBytes);
#pragma unroll
        for (int step = 0; step < T::kKeys / 16; ++step) {  // 16 keys, 2048 bytes
            ptx::wgmma_registers<T::kPartColumns>(o[Part], p[step], b + (step * 2048 >> 4));
        }
        cursor.advance(T::kPartUnits);
        if constexpr (Part + 1 < T::kParts) {
            issue_output<Part + 1>(cursor, p, landed);
        } else {
            ptx::wgmma_commit();
        }
    }

    // Gives slots back, warp by warp.
    template <int Units>
    __device__ __forceinline__ void release(Cursor<T> cursor) {
        __syncwarp();
#pragma unroll
        for (int unit = 0; unit < Units; ++unit) {
            if (lane == 0) {
                ptx::mbarrier_arrive(shared.empty(cursor.slot));
            }
            cursor.advance();
        }
    }

    // Gives back the units of a K or V tile that this row group does not read. Not before they are there: an arrival
    // ahead of it would count for what was in the slots before.
    __device__ __forceinline__ void pass_over(Cursor<T>& cursor) {
        const Cursor<T> first = cursor;
#pragma unroll
        for (int unit = 0; unit < T::kUnits; ++unit) {
            ptx::mbarrier_wait(shared.full(cursor.slot), cursor.parity);
            cursor.advance();
        }
        release<T::kUnits>(first);
    }

    // Row groups take turns at the tensor core: while one exponentiates, another multiplies. Without turns both come to
    // do the same at the same time.
    __device__ __forceinline__ void wait_for_turn() const {
        if constexpr (T::kPolicy.turns) {
            ptx::named_barrier_sync(kTurnBarrier + row_group, 256);
        }
    }

    __device__ __forceinline__ void pass_turn() const {
        if constexpr (T::kPolicy.turns) {
            const int next = row_group + 1 == T::kLaunch.row_groups ? 0 : row_group + 1;
            ptx::named_barrier_arrive(kTurnBarrier + next, 256);
        }
    }

    // Q is read: that of the next row tile may come.
    __device__ __forceinline__ void release_query() {
        if constexpr (T::kWalks) {
            __syncwarp();
            if (lane == 0) {
                ptx::mbarrier_arrive(shared.query_empty());
            }
        }
    }

    // The maxima of S; whether O shrinks, by `factor`: any row's of the warp or, where loops are short, so that most
    // tiles move an anchor and a row's threads always meet, of this thread.
    template <bool First = false>
    __device__ __forceinline__ bool find_maxima(const Tile& tile, const typename Rows<T>::Entries& valid,
                                                float (&factor)[2]) {
        rows.mask(s, tile, valid);
        float tile_max[2] = {fragment_max(s, 0), fragment_max(s, 1)};
        if constexpr (T::kOverlaps) {
            return raise_own_anchors<First>(state, room, tile_max, scale_log2, factor);
        } else {
            row_max(tile_max);
            raise_anchors(state, tile_max, scale_log2, factor);
            return factor[0] != 1.0f || factor[1] != 1.0f;
        }
    }

    // S becomes P, still in fp32.
    __device__ __forceinline__ void exponentiate_scores() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exponentiate(s, half, state[half], scale_log2);
        }
    }

    template <bool First = false>
    __device__ __forceinline__ bool softmax(const Tile& tile, const typename Rows<T>::Entries& valid,
                                            float (&factor)[2]) {
        const bool shrinks = find_maxima<First>(tile, valid, factor);
        exponentiate_scores();
        return shrinks;
    }

    // P as the A operand; into `p` once the product that read the P before is done.
    __device__ __forceinline__ void pack(uint32_t (&p)[T::kKeys / 16][4]) const {
#pragma unroll
        for (int step = 0; step < T::kKeys / 16; ++step) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                p[step][i] = ptx::pack_bf16x2(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
            }
        }
    }

    // The warp decides for itself: nothing in here has to be run by the whole warpgroup. `shrinks` is what find_maxima
    // told.
    __device__ __forceinline__ void rescale(const float (&factor)[2], bool shrinks) {
        if (T::kOverlaps ? !shrinks : !ptx::any_lane(shrinks)) {
            return;
        }
#pragma unroll
        for (int part = 0; part < T::kParts; ++part) {
#pragma unroll
            for (int i = 0; i < T::kPartColumns / 2; ++i) {
                o[part][i] *= factor[i / 2 % 2];
            }
        }
    }

    __device__ __forceinline__ void pin_output() {
#pragma unroll
        for (int part = 0; part < T::kParts; ++part) {
            ptx::pin(o[part]);
        }
    }
};

}  // namespace fmha::sm90
