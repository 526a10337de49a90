// A call from the form of its tensors, which calls.cpp's `read` makes: what harness/attention/arguments.py checks of
// shapes, strides, dtypes and devices. What is not as it should be is left to that, which says what is wrong.
#pragma once

#include <cmath>
#include <optional>
#include <span>

#include "sizes.hpp"

namespace fmha::planner {

// Places of fmha.harness.attention.given.NAMES.
enum Place {
    kQ,
    kK,
    kV,
    kKvLens,
    kQueryOffsets,
    kSink,
    kSparseK,
    kSparseV,
    kSparseIndices,
    kSparseLens,
    kBlockTable,
    kCuSeqlensQ,
    kCuSeqlensK,
    kPlaces
};

struct Options {
    double scale = 0;  // 0: of the head_dim
    i64 left = kUnlimited, right = kUnlimited;
    i64 longest_q = -1, longest_k = -1;  // -1: none
    bool normalise = true, output_bf16 = false;
    i64 stored = 3;  // statistics
    i64 splits = 0;  // 0: left to us
};

struct Tensor {
    i64 dims = -1;  // -1: there is none
    i64 device = 0, type = 0;
    bool aligned = false;
    i64 shape[8], strides[8];

    bool is_there() const { return dims >= 0; }
    bool contiguous() const {
        i64 step = 1;
        for (i64 d = dims - 1; d >= 0; --d) {
            if (shape[d] != 1 && strides[d] != step) return false;
            step *= shape[d];
        }
        return true;
    }
    bool is(i64 wanted_type, std::initializer_list<i64> wanted) const {
        return type == wanted_type && dims == static_cast<i64>(wanted.size()) &&
               std::equal(wanted.begin(), wanted.end(), shape);
    }
};

constexpr i64 type_of(i64 code, i64 bits) { return code | bits << 8 | 1 << 16; }
constexpr i64 kInt32 = type_of(0, 32), kFloat32 = type_of(2, 32), kBf16 = type_of(4, 16);  // of DLPack
constexpr i64 kMostRows = (i64{1} << 31) - 1, kMostPaged = (i64{1} << 31) - 256, kMostPlanes = 65535;
constexpr i64 kLeastTile = 64, kStrideElements = 8, kMostHeadDim = 512;

inline bool read_form(std::span<const i64> form, Tensor (&tensors)[kPlaces]) {
    std::size_t at = 0;
    while (at < form.size()) {
        if (at + 3 > form.size()) return false;
        const i64 place = form[at] >> 40, dims = form[at] & 0xffff;
        if (place >= kPlaces || dims > 8 || at + 3 + 2 * dims > form.size()) return false;
        Tensor& t = tensors[place];
        t.dims = dims;
        t.aligned = (form[at] >> 32 & 0xff) == 0;
        t.device = form[at + 1];
        t.type = form[at + 2];
        at += 3;
        for (i64 d = 0; d < dims; ++d, at += 2) t.shape[d] = form[at], t.strides[d] = form[at + 1];
    }
    return true;
}

// The strides of q, k or v; false where TMA cannot go by them. Along a dimension of one element no step is taken, and
// one behind the last element of the next dimension is as good as any.
inline bool take_strides(const Tensor& t, bool packed, bool& gaps, Strides& strides) {
    gaps = !t.contiguous();
    if (!gaps) return true;
    i64 own[4];
    const i64 last = t.dims - 1;
    own[last] = 1;
    if (t.shape[last] > 1 && t.strides[last] != 1) return false;
    for (i64 d = last - 1; d >= 0; --d) {
        own[d] = t.shape[d] > 1 ? t.strides[d] : own[d + 1] * t.shape[d + 1];
        if (own[d] % kStrideElements || own[d] < 0) return false;
    }
    if (packed)
        strides = {t.shape[0] * own[0], own[0], own[1]};
    else if (t.dims == 4)
        strides = {own[0], own[1], own[2]};
    else
        strides = {own[0], own[1], t.shape[last]};
    return true;
}

inline bool right_options(const Options& options, const Tensor (&t)[kPlaces]) {
    if (t[kCuSeqlensQ].is_there() != (options.longest_q >= 0) || t[kCuSeqlensK].is_there() != (options.longest_k >= 0))
        return false;
    for (const Place sparse : {kSparseK, kSparseV, kSparseIndices, kSparseLens})
        if (t[sparse].is_there()) return false;
    for (const Tensor& each : t) {
        if (!each.is_there()) continue;
        if (!each.aligned || each.device != t[kQ].device) return false;
        for (i64 d = 0; d < each.dims; ++d)
            if (each.shape[d] < 1) return false;
    }
    return true;
}

// Sizes of k and v; false where they do not fit q's.
inline bool take_keys(const Tensor (&t)[kPlaces], const Options& options, Call& call) {
    const Tensor& k = t[kK];
    const bool packed = t[kCuSeqlensK].is_there(), paged = t[kBlockTable].is_there();
    if (!k.is_there() || k.type != kBf16 || (packed && paged)) return false;
    if (k.dims != (packed ? 3 : 4) && !(k.dims == 3 && !packed)) return false;
    if (k.shape[k.dims - 1] != call.width) return false;
    call.kv_heads = k.dims == 3 && !packed ? 1 : k.shape[k.dims - 2];
    if (call.heads % call.kv_heads) return false;
    if (packed) {
        if (!t[kCuSeqlensK].is(kInt32, {call.batch + 1}) || t[kKvLens].is_there() || k.shape[0] > kMostRows)
            return false;
        call.total_k = k.shape[0];
        call.s_k = std::min(options.longest_k, call.total_k);
    } else if (paged) {
        const Tensor& table = t[kBlockTable];
        call.pages = k.shape[0], call.page_size = k.shape[1];
        if (call.page_size < 16 || call.page_size > 256 || call.page_size & (call.page_size - 1)) return false;
        if (table.dims != 2 || !table.is(kInt32, {call.batch, table.shape[1]}) || !table.contiguous()) return false;
        call.s_k = table.shape[1] * call.page_size;
        if (call.s_k > kMostPaged) return false;
    } else {
        if (k.shape[0] != call.batch) return false;
        call.s_k = k.shape[1];
    }
    call.shared_kv = !t[kV].is_there();
    if (!call.shared_kv) {
        const Tensor& v = t[kV];
        if (v.type != kBf16 || v.dims != k.dims || !std::equal(k.shape, k.shape + k.dims, v.shape)) return false;
        if (!take_strides(v, packed, call.v_gaps, call.v)) return false;
    }
    return call.s_k >= 1 && take_strides(k, packed, call.k_gaps, call.k);
}

inline std::optional<Call> call_of(const Tensor (&t)[kPlaces], const Options& options) {
    Call call;
    const Tensor& q = t[kQ];
    const bool packed = t[kCuSeqlensQ].is_there();
    if (!q.is_there() || q.type != kBf16 || q.dims != (packed ? 3 : 4) || !right_options(options, t)) return {};
    call.width = q.shape[q.dims - 1];
    call.heads = q.shape[q.dims - 2];
    if (packed) {
        call.total_q = q.shape[0];
        if (t[kCuSeqlensQ].dims != 1 || t[kCuSeqlensQ].type != kInt32 || t[kCuSeqlensQ].shape[0] < 2 ||
            call.total_q > kMostRows)
            return {};
        if (options.longest_q < 1) return {};
        call.batch = t[kCuSeqlensQ].shape[0] - 1;
        call.t = std::min(options.longest_q, call.total_q);
    } else {
        call.batch = q.shape[0], call.t = q.shape[1];
    }
    if (call.width % 8 || call.width > kMostHeadDim || !take_strides(q, packed, call.q_gaps, call.q)) return {};
    if (!take_keys(t, options, call)) return {};
    if (call.t > kMostRows || call.s_k > kMostPaged) return {};  // kernels count to the end of a tile, in 32 bits
    if (call.planes() > kMostPlanes) return {};
    if (divide_up(call.rows(), kLeastTile) * call.planes() > kMostRows) return {};
    if (t[kKvLens].is_there() && !t[kKvLens].is(kInt32, {call.batch})) return {};
    if (t[kQueryOffsets].is_there() && !t[kQueryOffsets].is(kInt32, {call.batch})) return {};
    if (t[kSink].is_there() && !t[kSink].is(kFloat32, {call.heads})) return {};
    for (const Place place : {kKvLens, kQueryOffsets, kSink, kCuSeqlensQ, kCuSeqlensK})
        if (t[place].is_there() && !t[place].contiguous()) return {};
    call.ragged = t[kKvLens].is_there() || call.packed_k();
    call.left = options.left, call.right = options.right;
    call.normalise = options.normalise, call.output_bf16 = options.output_bf16;
    call.asked_splits = options.splits;
    call.scale = static_cast<float>(options.scale ? options.scale : 1.0 / std::sqrt(static_cast<double>(call.width)));
    for (const i64 head_dim : {64, 128, 256, 512})
        if (!call.head_dim && head_dim >= call.width) call.head_dim = head_dim;
    return call;
}

}  // namespace fmha::planner
