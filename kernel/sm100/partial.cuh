// The parts that splits leave of a row: O in fp32 or, where the result is bf16, in f16, every `Group` columns over a
// power of two of their own (kFmhaPartialF16).
#pragma once

#include <stdint.h>

#include "common/partial.cuh"
#include "common/ptx/math.cuh"
#include "common/row_output.cuh"
#include "fmha_params.h"
#include "portions.cuh"
#include "ptx/packed.cuh"

namespace fmha {

// What they lie over, by part and group: behind the elements of all of them.
template <int HeadDim>
__device__ __forceinline__ float* partial_units(const FmhaParams& params) {
    const int64_t parts = parts_of(params) * params.t * params.heads;
    return params.partial_o + parts * (HeadDim / 2);
}

// The largest magnitude, in four chains; a NaN is left out.
template <int Elements>
__device__ __forceinline__ float magnitude_of(const float (&values)[Elements]) {
    float chain[4] = {};
#pragma unroll
    for (int i = 0; i < Elements; i += 2) {
        chain[i / 2 % 4] = ptx::max3_abs(chain[i / 2 % 4], values[i], values[i + 1]);
    }
    return fmaxf(ptx::max3_abs(chain[0], chain[1], chain[2]), chain[3]);
}

// Where a row's part `index` is stored.
template <int HeadDim, int Group>
struct PartOutput {
    bool f16;
    float* o;  // in either format
    float* units;

    __device__ __forceinline__ PartOutput(const FmhaParams& params, int64_t index)
        : f16(params.flags & kFmhaPartialF16),
          o(params.partial_o + index * (f16 ? HeadDim / 2 : HeadDim)),
          units(partial_units<HeadDim>(params) + index * (HeadDim / Group)) {}

    // `factor` times `values`, as columns [first, first + Group). f16 lies over the power of two of the values as they
    // are: what they are multiplied by is exact, and the factor goes to the unit.
    __device__ __forceinline__ void store(int first, const float (&values)[Group], float factor) const {
        if (!f16) {
            float scaled[Group];
#pragma unroll
            for (int i = 0; i < Group; ++i) {
                scaled[i] = values[i] * factor;
            }
            store_floats(o + first, scaled);
            return;
        }
        const PowerOfTwo unit(magnitude_of(values));
        units[first / Group] = unit.value * factor;
        const uint64_t reciprocal = ptx::pack_f32x2(unit.reciprocal);
        float2 scaled[Group / 2];
#pragma unroll
        for (int i = 0; i < Group / 2; ++i) {
            scaled[i] =
                ptx::unpack_f32x2(ptx::mul_f32x2(ptx::pack_f32x2(values[2 * i], values[2 * i + 1]), reciprocal));
        }
        uint32_t packed[Group / 2];
#pragma unroll
        for (int i = 0; i < Group / 2; ++i) {
            packed[i] = ptx::pack_f16x2(scaled[i].x, scaled[i].y);
        }
        uint4* const destination = reinterpret_cast<uint4*>(o + first / 2);
#pragma unroll
        for (int i = 0; i < Group / 8; ++i) {
            destination[i] = make_uint4(packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
    }
};

constexpr int kLaneElements = 8;  // of a part, that a thread of a combine kernel loads: 16 bytes of f16

// Where columns [first, first + kLaneElements) of the parts of rows lie, of rows of HeadDim columns. Computed here,
// which may be beside the forward kernel, and not at the loads.
template <bool F16, int HeadDim, int Group>
struct PartInput {
    static constexpr int kVectors = F16 ? 1 : 2;  // of a part
    static constexpr int kRowVectors = HeadDim * kVectors / kLaneElements;
    static constexpr int kRowUnits = HeadDim / Group;

    const uint4* o;
    const float* units;

    __device__ __forceinline__ PartInput(const FmhaParams& params, int first)
        : o(reinterpret_cast<const uint4*>(params.partial_o) + first * kVectors / kLaneElements),
          units(F16 ? partial_units<HeadDim>(params) + first / Group : nullptr) {
        asm volatile("" : "+l"(o), "+l"(units));
    }
};

// A thread's columns of O of a part, as they lie in memory, and what f16 lies over.
template <bool F16>
struct Part {
    static constexpr int kVectors = F16 ? 1 : 2;

    uint4 o[kVectors];
    float unit;

    // Of part `index`: 32 bits hold the number of rows of all parts that any memory has room for.
    template <class Input>
    __device__ __forceinline__ void load(const Input& from, uint32_t index) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            o[i] = from.o[uint64_t(index) * Input::kRowVectors + i];
        }
        unit = F16 ? from.units[uint64_t(index) * Input::kRowUnits] : 1.0f;
    }

    // sums += weight times this part's.
    __device__ __forceinline__ void add_to(float (&sums)[kLaneElements], float weight) const {
        const float counts = weight * unit;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            const uint32_t words[4] = {o[i].x, o[i].y, o[i].z, o[i].w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if constexpr (F16) {
                    const float2 pair = ptx::unpack_f16x2(words[k]);
                    sums[2 * k] = fmaf(pair.x, counts, sums[2 * k]);
                    sums[2 * k + 1] = fmaf(pair.y, counts, sums[2 * k + 1]);
                } else {
                    sums[4 * i + k] = fmaf(__uint_as_float(words[k]), counts, sums[4 * i + k]);
                }
            }
        }
    }
};

}  // namespace fmha
