// The two rows of S of which a thread holds fragments: which keys they see, and what is masked.
#pragma once

#include "common/ptx/warp.cuh"
#include "place.cuh"
#include "softmax.cuh"
#include "tiles.cuh"

namespace fmha::sm90 {

template <class T>
struct Rows {
    int query[2];
    KeyRange visible[2];
    KeyRange all;  // seen by every row of the warp

    __device__ Rows(const FmhaParams& params, const Place<T>& place, int row_group) {
        const int last = place.own_end - 1;
        query[0] = query[1] = 0;
        all = visible[0] = visible[1] = {0, place.length};
        if (windowed(params) || (kFmhaSm90Lists && params.topk > 0)) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                query[half] = query_of(params, min(place.own + index(row_group, half), last));
                visible[half] = visible_keys(params, place.length, place.offset, query[half]);
            }
            all.first = __reduce_max_sync(0xffffffffu, max(visible[0].first, visible[1].first));
            all.end = __reduce_min_sync(0xffffffffu, min(visible[0].end, visible[1].end));
        }
    }

    // This thread's row `half` in the CTA.
    static __device__ __forceinline__ int index(int row_group, int half) {
        return row_group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + 8 * half;
    }

    // Bit e % 32 of word e / 32: whether entry e of the tile is valid; the warp reads the list together. Called before
    // the scores are waited for.
    struct Entries {
        uint32_t words[(T::kKeys + 31) / 32];
    };

    __device__ __forceinline__ Entries valid_entries(const TileStream<T>& stream, const Tile& tile) const {
        Entries valid{};
        if (tile.sparse()) {
#pragma unroll
            for (int w = 0; w < (T::kKeys + 31) / 32; ++w) {
                valid.words[w] = ptx::ballot(stream.row_of(tile, 32 * w + int(threadIdx.x % 32)) >= 0);
            }
        }
        return valid;
    }

    // Scores that these rows do not see become -inf.
    __device__ __forceinline__ void mask(float (&s)[T::kKeys / 2], const Tile& tile, const Entries& valid) const {
        if (tile.sparse()) {
            mask_sparse(s, tile, valid);
        } else if (tile.begin < all.first || tile.begin + T::kKeys > all.end) {
            mask_dense(s, tile.begin);
        }
    }

private:
    // A comparison with a constant and a choice for each score and side: few tiles are masked on both.
    __device__ __forceinline__ void mask_dense(float (&s)[T::kKeys / 2], int begin) const {
        const int mine = begin + int(threadIdx.x % 4) * 2;
        if (begin < all.first) {
            const int first[2] = {visible[0].first - mine, visible[1].first - mine};
#pragma unroll
            for (int i = 0; i < T::kKeys / 2; ++i) {
                s[i] = key_of(i) >= first[i / 2 % 2] ? s[i] : -kInfinity;
            }
        }
        if (begin + T::kKeys > all.end) {
            const int end[2] = {visible[0].end - mine, visible[1].end - mine};
#pragma unroll
            for (int i = 0; i < T::kKeys / 2; ++i) {
                s[i] = key_of(i) < end[i / 2 % 2] ? s[i] : -kInfinity;
            }
        }
    }

    // Of score i of a thread, beyond its first.
    static constexpr __device__ int key_of(int i) { return i / 4 * 8 + i % 2; }

    __device__ __forceinline__ void mask_sparse(float (&s)[T::kKeys / 2], const Tile& tile,
                                                const Entries& valid) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const bool own = query[half] == tile.query;
#pragma unroll
            for (int i = 2 * half; i < T::kKeys / 2; i += 4) {
                const uint32_t bits = own ? valid.words[i / 16] >> threadIdx.x % 4 * 2 : 0;
                s[i] = bits >> i / 4 % 4 * 8 & 1 ? s[i] : -kInfinity;
                s[i + 1] = bits >> (i / 4 % 4 * 8 + 1) & 1 ? s[i + 1] : -kInfinity;
            }
        }
    }
};

}  // namespace fmha::sm90
