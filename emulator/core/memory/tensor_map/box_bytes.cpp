// The bytes of a box, from global to shared memory and back.
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "machine/cluster/cluster.hpp"
#include "memory/tensor_map/box_rows.hpp"
#include "ptx/copies/reduction.hpp"

namespace ptxm {

namespace {

// CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA: what an H200 writes, whatever the type.
void fill_nan(std::vector<u8>& linear) {
    for (u32 n = 0; n + 2 <= linear.size(); n += 2) {
        linear[n] = 0xF7;
        linear[n + 1] = 0x7F;
    }
}

void flush_subnormals(const TensorMap& m, std::vector<u8>& linear) {
    if (m.dtype != df32_ftz && m.dtype != dtf32_ftz) return;
    for (u32 n = 0; n + 4 <= linear.size(); n += 4) {
        u32 bits;
        std::memcpy(&bits, linear.data() + n, 4);
        if ((bits & 0x7F800000u) == 0) bits &= 0x80000000u;
        std::memcpy(linear.data() + n, &bits, 4);
    }
}

// Whether a box is rows of one length, as they are in memory: nothing clipped, filled, padded or changed.
bool is_plain(const Box& box) {
    const TensorMap& m = box.map;
    return !m.padding && m.dtype != df32_ftz && m.dtype != dtf32_ftz && is_inside(box);
}

// The box as it lies in shared memory before swizzling, out-of-bounds elements filled.
void gather_box(GlobalView& memory, const Box& box, std::vector<u8>& linear) {
    const u32 element = box.map.element_bytes();
    const u32 pitch = box.map.shared_element();
    linear.assign(box.bytes(), 0);
    if (box.map.oob) fill_nan(linear);
    each_row(box, false, [&](u32 at, u64 address, u32 elements) {
        const Allocation* a = memory.find(address, u64{elements} * element);
        if (!a) return;
        const u8* from = a->data.get() + (address - a->base);
        if (pitch == element)
            std::memcpy(linear.data() + at * element, from, elements * element);
        else
            for (u32 e = 0; e < elements; ++e)
                std::memcpy(linear.data() + (at + e) * pitch, from + e * element, element);
    });
    flush_subnormals(box.map, linear);
}

// Chunks change places with those whose offset differs by `exchanged`, of 16 bytes or more.
void copy_whole_row(u8* to, const u8* from, u32 exchanged) {
#ifdef __AVX512F__
    constexpr u32 kHalf = 64;
    alignas(kHalf) static constexpr u64 kPlaces[4][8] = {
        {0, 1, 2, 3, 4, 5, 6, 7}, {2, 3, 0, 1, 6, 7, 4, 5}, {4, 5, 6, 7, 0, 1, 2, 3}, {6, 7, 4, 5, 2, 3, 0, 1}};
    const __m512i places = _mm512_load_si512(kPlaces[exchanged % kHalf / 16]);
    for (u32 half = 0; half < kWholeRow; half += kHalf)
        _mm512_storeu_si512(to + half,
                            _mm512_permutexvar_epi64(places, _mm512_loadu_si512(from + (half ^ (exchanged & kHalf)))));
#else
    for (u32 x = 0; x < kWholeRow; x += 16) std::memcpy(to + (x ^ exchanged), from + x, 16);
#endif
}

// Row by row, with nothing in between. What has been freed meanwhile is left out, as gather_box does.
void copy_plain_box(GlobalView& memory, const Box& box, u8* shared, u32 offset, std::vector<u8>& linear) {
    constexpr u32 kAhead = 8;  // rows: they lie too far apart for the processor to see them coming
    const u32 row = box.row_bytes(), pitch = box.pitch();
    each_row(box, false, [&](u32, u64 address, u32) {
        const Allocation* a = memory.find(address, row);
        if (!a) linear.assign(row, 0);
        const u8* from = a ? a->data.get() + (address - a->base) : linear.data();
        __builtin_prefetch(from + kAhead * box.map.stride[1]);
        __builtin_prefetch(from + kAhead * box.map.stride[1] + 64);
        if (row == kWholeRow && offset % kWholeRow == 0)
            copy_whole_row(shared + offset, from, swizzled(box.map.swizzle, offset) ^ offset);
        else
            each_piece_of_row<16>(box.map.swizzle, offset, row,
                                  [&](u32 x, u32 at, u32 bytes) { std::memcpy(shared + at, from + x, bytes); });
        offset += pitch;
    });
}

}  // namespace

void load_box(GlobalView& memory, const Box& box, Cta& cta, u32 offset, std::vector<u8>& linear) {
    if (is_plain(box) && !box.map.oob && piece_of(box.map.swizzle) == 16)
        return copy_plain_box(memory, box, cta.shared.data(), offset, linear);
    gather_box(memory, box, linear);
    each_piece(box, offset,
               [&](u32 n, u32 at, u32 bytes) { std::memcpy(cta.shared.data() + at, linear.data() + n, bytes); });
}

void store_box(GlobalView& memory, const Box& box, const std::vector<u8>& linear, Reduction reduction, Overlap* tail) {
    const u32 element = box.map.element_bytes();
    const Ty type = reduction == Reduction::none ? Ty::none : reduced_type(box.map, reduction);
    each_row(box, true, [&](u32 at, u64 address, u32 elements) {
        Allocation* a = memory.find(address, element);
        if (!a) return;
        u8* to = a->data.get() + (address - a->base);
        const u32 bytes = stored_bytes(*a, address, elements, element);
        const u8* const from = linear.data() + at * element;
        if (reduction == Reduction::none) {
            std::memcpy(to, from, bytes);
            return;
        }
        if (tail)
            tail->note(address, bytes, [=, row = std::vector<u8>(from, from + bytes)](u8* place) {
                reduce_bytes(reduction, type, place, row.data(), static_cast<u32>(row.size()));
            });
        reduce_bytes(reduction, type, to, from, bytes);
    });
}

std::vector<u8> collect_box(const Box& box, const Cta& cta, u32 offset) {
    std::vector<u8> linear(box.bytes());
    each_piece(box, offset,
               [&](u32 n, u32 at, u32 bytes) { std::memcpy(linear.data() + n, cta.shared.data() + at, bytes); });
    return linear;
}

Ty reduced_type(const TensorMap& map, Reduction reduction) {
    const bool bitwise = reduction == Reduction::and_ || reduction == Reduction::or_ || reduction == Reduction::xor_;
    Ty type = Ty::none;
    switch (map.dtype) {
        case du32: type = bitwise ? Ty::b32 : Ty::u32_; break;
        case ds32: type = bitwise ? Ty::b32 : Ty::s32; break;
        case du64: type = bitwise ? Ty::b64 : Ty::u64_; break;
        case ds64: type = bitwise ? Ty::b64 : Ty::s64; break;
        case df16: type = Ty::f16; break;
        case dbf16: type = Ty::bf16; break;
        case df32:
        case df32_ftz: type = Ty::f32; break;
        case df64: type = Ty::f64; break;
        default: break;
    }
    if (!reduces(reduction, type))
        throw Fault(
            "bulk-reduction",
            format("a tensor reduction through a map of data type %u, which the operation does not take", map.dtype));
    return type;
}

}  // namespace ptxm
