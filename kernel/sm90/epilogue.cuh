// From the fragments of O to memory, into the result or a partial result.
#pragma once

#include "combine.cuh"
#include "consumer.cuh"

namespace fmha::sm90 {

// Completes the maxima and the row sums, over the threads of a row and over the column groups, which each summed their
// own tiles, and takes these from the anchors to the maxima; `correction` is what O is still to be multiplied by.
template <class T>
__device__ __forceinline__ void finish_sums(Consumer<T>& c, float (&correction)[2]) {
    float sum[2] = {row_sum(c.state[0].sum), row_sum(c.state[1].sum)};
    if constexpr (T::kOverlaps) {
        float maximum[2] = {c.state[0].max, c.state[1].max};
        row_max(maximum);
        c.state[0].max = maximum[0];
        c.state[1].max = maximum[1];
    }
    if constexpr (T::kColumnGroups == 2) {
        ptx::named_barrier_sync(kConsumerBarrier, T::kConsumerThreads);  // the last anchors were read
        if (c.lane % 4 == 0) {
            ptx::store_shared(c.shared.anchors(threadIdx.x), sum[0], sum[1]);
        }
        ptx::named_barrier_sync(kConsumerBarrier, T::kConsumerThreads);
        const float2 other = ptx::load_shared_pair(c.shared.anchors(threadIdx.x ^ 128));
        sum[0] += other.x;
        sum[1] += other.y;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        correction[half] = anchor_to_max(c.state[half], c.scale_log2);
        c.state[half].sum = sum[half] * correction[half];
    }
}

template <class T>
__device__ __forceinline__ float natural_max(const Consumer<T>& consumer, int half) {
    return consumer.state[half].max * consumer.params.scale;
}

// The first of the columns that the next two tell apart by constants.
template <class T>
__device__ __forceinline__ int first_of_vectors(const Consumer<T>& consumer) {
    return consumer.column_group * (T::kHeadDim / T::kColumnGroups) + consumer.lane % 4 / 2 * 4 + consumer.lane % 2 * 8;
}

template <class T>
__device__ __forceinline__ int first_of_blocks(const Consumer<T>& consumer) {
    return consumer.column_group * (T::kHeadDim / T::kColumnGroups) + consumer.lane % 4 * 8;
}

// Calls store(column, v) for each four neighbouring elements of row `half` that this thread has once the even and the
// odd threads of a row have exchanged halves: 64 bytes of fp32 a row and store, not 32. By the whole warp.
template <class T, class Store>
__device__ __forceinline__ void for_each_vector(const Consumer<T>& consumer, int half, Store store) {
    const bool odd = consumer.lane % 2;
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
#pragma unroll
        for (int i = 0; i < T::kPartColumns / 2; i += 8) {
            const float* const near = &consumer.o[part][i + 2 * half];
            const float* const far = near + 4;
            const float x = __shfl_xor_sync(0xffffffffu, odd ? near[0] : far[0], 1);
            const float y = __shfl_xor_sync(0xffffffffu, odd ? near[1] : far[1], 1);
            store(part * T::kPartColumns + i * 2,
                  odd ? make_float4(x, y, far[0], far[1]) : make_float4(near[0], near[1], x, y));
        }
    }
}

// Of two words the one that the thread `distance` away has use for, given for the one that is of use here.
__device__ __forceinline__ void exchange(uint32_t& low, uint32_t& high, bool upper, int distance) {
    const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
    (upper ? low : high) = received;
}

// Calls store(column, v) for each eight neighbouring elements of row `half`, times `scale` and by `pack` two to a word,
// that this thread has once the four threads of a row have dealt out four blocks: 64 bytes a row and store. By the
// whole warp.
template <class T, class Pack, class Store>
__device__ __forceinline__ void for_each_block(const Consumer<T>& consumer, int half, float scale, Pack pack,
                                               Store store) {
    const int quarter = consumer.lane % 4;
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
#pragma unroll
        for (int i = 0; i < T::kPartColumns / 2; i += 16) {
            uint32_t block[4];
#pragma unroll
            for (int b = 0; b < 4; ++b) {
                const float* const pair = &consumer.o[part][i + 4 * b + 2 * half];
                block[b] = pack(pair[0] * scale, pair[1] * scale);
            }
            exchange(block[0], block[1], quarter & 1, 1);
            exchange(block[2], block[3], quarter & 1, 1);
            exchange(block[0], block[2], quarter & 2, 2);
            exchange(block[1], block[3], quarter & 2, 2);
            store(part * T::kPartColumns + i * 2, make_uint4(block[0], block[1], block[2], block[3]));
        }
    }
}

// The largest magnitude in row `half` of this column group.
template <class T>
__device__ __forceinline__ float row_magnitude(const Consumer<T>& consumer, int half) {
    float most = 0.0f;
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
#pragma unroll
        for (int i = 0; i < T::kPartColumns / 2; i += 4) {
            const float* const pair = &consumer.o[part][i + 2 * half];
            most = fmaxf(most, fmaxf(fabsf(pair[0]), fabsf(pair[1])));
        }
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    return fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
}

// Where the rows of a row tile go: into the result or, with splits, a partial one.
template <class T>
struct Target {
    int own;  // rows [own, end) of the plane
    int end;
    bool partial;
    Plane plane;
    int64_t before;  // the plane's first row there; of a result by K/V heads its first query

    __device__ Target() {}
    __device__ Target(const FmhaParams& params, const Place<T>& place)
        : own(place.own),
          end(T::kWalks ? place.own_end : place.end(params)),
          partial(params.splits > 1),
          plane(plane_of(params, place.batch)) {
        int64_t number = int64_t(blockIdx.y) * params.batch + place.batch;
        if (balanced<T>(params)) {
            number = place.part;
            partial = place.part >= 0;
        }
        before = (partial ? number : place.batch) * int64_t(params.t) * params.heads;
        if (kKvHeads && !partial) {
            before = first_query(params, plane);
        }
    }

    __device__ int64_t row(const FmhaParams& params, int index) const {
        return !kKvHeads || partial ? before + index : stored_row(params, plane, before, index);
    }
};

// Row `half`, whose number among those of `o` is `row`, times `scale`, in two bytes an element by `pack`, or in fp32.
template <class T, class Pack>
__device__ __forceinline__ void store_packed(const Consumer<T>& consumer, int half, bool there, void* o, int64_t row,
                                             float scale, Pack pack) {
    uint4* const destination = static_cast<uint4*>(o) + (row * T::kHeadDim + first_of_blocks(consumer)) / 8;
    for_each_block(consumer, half, scale, pack,
                   [=](int column, uint4 v) { ptx::store_global_if(there, destination + column / 8, v); });
}

template <class T>
__device__ __forceinline__ void store_unpacked(const Consumer<T>& consumer, int half, bool there, void* o, int64_t row,
                                               float scale) {
    float* const destination = static_cast<float*>(o) + row * T::kHeadDim + first_of_vectors(consumer);
    for_each_vector(consumer, half, [=](int column, float4 v) {
        v = scaled(v, scale);
        ptx::store_global_if(
            there, reinterpret_cast<uint4*>(destination + column),
            make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)));
    });
}

// With splits this split's part, straight from the registers.
template <class T>
__device__ __forceinline__ void store_part(const Consumer<T>& consumer, const float (&correction)[2],
                                           const Target<T>& target) {
    const FmhaParams& params = consumer.params;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int own = target.own + Rows<T>::index(consumer.row_group, half);
        const bool there = own >= 0 && own < target.end, first = there && consumer.lane % 4 == 0;
        const int64_t row = target.row(params, own);
        if (first && consumer.column_group == 0) {
            params.partial_max[row] = natural_max(consumer, half);
            params.partial_sum[row] = consumer.state[half].sum;
        }
        if (params.flags & kFmhaPartialF16) {
            const PowerOfTwo unit(row_magnitude(consumer, half) * correction[half]);
            if (first) {
                partial_scales<T::kHeadDim>(params)[row * T::kColumnGroups + consumer.column_group] = unit.value;
            }
            store_packed(consumer, half, there, params.partial_o, row, correction[half] * unit.reciprocal,
                         ptx::pack_f16x2);
        } else {
            store_unpacked(consumer, half, there, params.partial_o, row, correction[half]);
        }
    }
}

// The whole result. Both rows are looked at before either is stored: where row tiles are short a consumer stores for a
// fifth of its time.
template <class T>
__device__ __forceinline__ void store_result(const Consumer<T>& consumer, const float (&correction)[2],
                                             const Target<T>& target) {
    const FmhaParams& params = consumer.params;
    const float maximum[2] = {natural_max(consumer, 0), natural_max(consumer, 1)};
    int64_t row[2];
    bool there[2];
    float scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int own = target.own + Rows<T>::index(consumer.row_group, half);
        const int head = params.sink ? query_head(params, target.plane, max(own, 0)) : 0;
        there[half] = own >= 0 && own < target.end;
        row[half] = target.row(params, own);
        scale[half] = correction[half] * output_factor(params, head, maximum[half], consumer.state[half].sum);
    }
    // Of the four threads of two rows one has the first one's statistics, another the second one's.
    const bool second = consumer.lane % 2;
    if (consumer.lane % 4 < 2 && (second ? there[1] : there[0]) && consumer.column_group == 0) {
        store_statistics(params, second ? row[1] : row[0], second ? maximum[1] : maximum[0],
                         second ? consumer.state[1].sum : consumer.state[0].sum);
    }
    if (params.flags & kFmhaOutputBf16) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            store_packed(consumer, half, there[half], params.o, row[half], scale[half], ptx::pack_bf16x2);
        }
    } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            store_unpacked(consumer, half, there[half], params.o, row[half], scale[half]);
        }
    }
}

}  // namespace fmha::sm90
