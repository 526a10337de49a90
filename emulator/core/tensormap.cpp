// Tensor maps, and the boxes that tensor copies move through them (PTX ISA 5.5).
#include "tensormap.hpp"

#include "handlers.hpp"
#include "reduction.hpp"

namespace ptxm {

namespace {

const u8* tensor_map_bytes(Warp& w, u64 address) {
    if (address % 64)
        throw Fault("misaligned", format("tensor map at 0x%llx is not 64-byte aligned", (unsigned long long)address));
    if ((address & kWindowMask) == kParamWindow) return resolve_param(w, address & ~kWindowMask, 128);
    Allocation& a = resolve_global(w, address, 128, "tensor map");
    machine_of(w).global.note(a, address, 128, false);
    check_tensor_map_fresh(w, address);
    return a.data.get() + (address - a.base);
}

// The part of a row that lies in bounds: elements [first, last) of the box's innermost dimension. A store ends at the
// next multiple of 16 bytes, in the padding behind the tensor's row.
struct Span {
    i64 first, last;
};

Span inner_span(const Box& box, bool store) {
    const i64 x0 = box.start[0], count = box.map.count(0), unit = store ? 16 / box.map.element_bytes() : 1;
    const i64 inside = static_cast<i64>(box.map.global_dim[0]) - x0;
    return {std::max<i64>(0, -x0), std::min(count, (inside + unit - 1) / unit * unit)};
}

template <class F>
void each_of_four_rows(const Box& box, Span span, F f) {
    const TensorMap& m = box.map;
    for (u32 r = 0; r < 4; ++r) {
        const i64 y = box.start[1 + r];
        if (y < 0 || y >= static_cast<i64>(m.global_dim[1])) continue;
        f(r * m.count(0) + static_cast<u32>(span.first),
          m.address + static_cast<u64>(y) * m.stride[1] +
              static_cast<u64>(box.start[0] + span.first) * m.element_bytes(),
          static_cast<u32>(span.last - span.first));
    }
}

// im2col (PTX ISA 5.5.4): pixel by pixel through the bounding box, W first, from image to image; what is copied lies
// the offsets further on, whatever the bounding box says of that.
template <class F>
void each_pixel(const Box& box, Span span, F f) {
    const TensorMap& m = box.map;
    const u32 spatial = m.rank - 2u;
    i64 at[3] = {}, n = box.start[m.rank - 1];
    for (u32 d = 0; d < spatial; ++d) at[d] = box.start[d + 1];
    for (u32 pixel = 0; pixel < m.box[1]; ++pixel) {
        bool inside = n >= 0 && n < static_cast<i64>(m.global_dim[m.rank - 1]);
        u64 address = m.address + static_cast<u64>(box.start[0] + span.first) * m.element_bytes();
        for (u32 d = 0; d < spatial; ++d) {
            const i64 c = at[d] + box.offset[d];
            inside = inside && c >= 0 && c < static_cast<i64>(m.global_dim[d + 1]);
            address += static_cast<u64>(c) * m.stride[d + 1];
        }
        address += static_cast<u64>(n) * m.stride[m.rank - 1];
        if (inside)
            f(pixel * m.count(0) + static_cast<u32>(span.first), address, static_cast<u32>(span.last - span.first));
        u32 d = 0;
        for (; d < spatial; at[d] = m.first_pixel[d], ++d)
            if ((at[d] += m.step(d + 1)) <= m.last_pixel[d]) break;
        n += d == spatial;
    }
}

// Calls f(element offset in the box, global address, elements) for every inner row that lies in bounds, clipped.
template <class F>
void each_row(const Box& box, bool store, F f) {
    const Span span = inner_span(box, store);
    if (span.first >= span.last) return;
    if (box.rows4) return each_of_four_rows(box, span, f);
    if (box.map.im2col) return each_pixel(box, span, f);
    const TensorMap& m = box.map;
    const u32 width = m.count(0), rows = m.count(1), elements = static_cast<u32>(span.last - span.first);
    const u64 first = m.address + static_cast<u64>(box.start[0] + span.first) * m.element_bytes();
    u32 index[5] = {};
    for (u32 at = static_cast<u32>(span.first);;) {
        u64 address = first;
        bool inside = true;
        for (u32 d = 2; d < m.rank; ++d) {
            const i64 c = box.start[d] + static_cast<i64>(index[d] * m.step(d));
            inside = inside && c >= 0 && c < static_cast<i64>(m.global_dim[d]);
            if (inside) address += static_cast<u64>(c) * m.stride[d];
        }
        i64 c = box.start[1];
        for (u32 row = 0; row < rows; ++row, at += width, c += m.step(1))
            if (inside && c >= 0 && c < static_cast<i64>(m.global_dim[1]))
                f(at, address + static_cast<u64>(c) * m.stride[1], elements);
        u32 d = 2;
        while (d < m.rank && ++index[d] == m.count(d)) index[d++] = 0;
        if (d >= m.rank) return;
    }
}

// The bytes of a stored row that an allocation has: behind a tensor's last row, the padding may not be there.
u32 stored_bytes(const Allocation& a, u64 address, u32 elements, u32 element) {
    return static_cast<u32>(std::min<u64>(u64{elements} * element, a.base + a.size - address)) / element * element;
}

constexpr u32 kWholeRow = 128;  // the longest span of a swizzle, and what most boxes have

// Swizzles permute within 1024 bytes and move at least 8 bytes at a time.
u32 piece_of(Swizzle s) { return s == Swizzle::b128_atom32_flip8 ? 8 : 16; }

// Calls f(byte offset in the row, shared offset, bytes) for the parts of a row at `offset` that a swizzle moves as one.
template <u32 kPiece, class F>
[[gnu::always_inline]] inline void each_piece_of_row(Swizzle swizzle, u32 offset, u32 row, F f) {
    if (kPiece == 16 && row == kWholeRow && offset % kWholeRow == 0) {
        const u32 exchanged = swizzled(swizzle, offset) ^ offset;
#pragma GCC unroll 8
        for (u32 x = 0; x < kWholeRow; x += kPiece) f(x, offset + (x ^ exchanged), kPiece);
        return;
    }
    for (u32 x = 0; x < row;) {
        // What a swizzle exchanges depends on the address from bit 7 on.
        const u32 exchanged = swizzled(swizzle, offset + x) ^ (offset + x);
        const u32 end = std::min(row, (offset + x) / 128 * 128 + 128 - offset);
        for (; x + kPiece <= end; x += kPiece) f(x, (offset + x) ^ exchanged, kPiece);
        for (; x < end; x = end) f(x, (offset + x) ^ exchanged, end - x);
    }
}

// Calls f(byte offset in the box, shared offset, bytes) for the parts of a box that are contiguous in shared memory.
template <class F>
void each_piece(const Box& box, u32 offset, F f) {
    const u32 bytes = box.bytes(), row = box.row_bytes(), pitch = box.pitch();
    if (box.map.swizzle == Swizzle::none && !box.map.padding) return f(0, offset, bytes);
    const u32 piece = piece_of(box.map.swizzle);
    if (box.map.padding) {
        for (u32 n = 0; n < bytes; n += piece) f(n, swizzled(box.map.swizzle, offset + n), box.map.element_bytes());
        return;
    }
    for (u32 n = 0; n < bytes; n += row, offset += pitch) {
        const auto of_row = [&](u32 x, u32 at, u32 size) { f(n + x, at, size); };
        if (piece == 8)
            each_piece_of_row<8>(box.map.swizzle, offset, row, of_row);
        else
            each_piece_of_row<16>(box.map.swizzle, offset, row, of_row);
    }
}

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

bool is_inside(const Box& box) {
    const TensorMap& m = box.map;
    bool inside = !box.rows4 && !m.im2col;
    for (u32 d = 0; d < m.rank; ++d) {
        const i64 last = i64{box.start[d]} + i64{m.count(d) - 1} * m.step(d);
        inside = inside && box.start[d] >= 0 && last < static_cast<i64>(m.global_dim[d]);
    }
    return inside;
}

}  // namespace

u32 coordinate_units(u32 mods) {
    const u32 dims = mods >> kTmaDimShift & 7;
    return mods & kTmaGather4 ? 5 : mods & kTmaIm2col ? 2 * dims - 2 : dims;
}

Box read_loaded_box(Warp& w, u64 map_address, const i32* coordinates, u32 lane, u32 mods) {
    Box box = read_box(w, map_address, coordinates, lane, mods);
    if (mods & kTmaIm2col)
        for (u32 d = 0; d + 2 < box.map.rank; ++d) box.offset[d] = w.reg<u16>(coordinates[box.map.rank + d])[lane];
    return box;
}

Box read_box(Warp& w, u64 map_address, const i32* coordinates, u32 lane, u32 mods) {
    const u32 dims = mods >> kTmaDimShift & 7;
    const bool rows4 = mods & kTmaGather4;
    Box box;
    box.map = decode_tensor_map(tensor_map_bytes(w, map_address));
    box.rows4 = rows4;
    if (box.map.rank != dims)
        throw Fault("tensor-map", format("a %uD copy through a tensor map of rank %u", dims, box.map.rank));
    if (box.map.im2col != ((mods & kTmaIm2col) != 0))
        throw Fault("tensor-map", box.map.im2col ? "a tiled copy through a tensor map for im2col copies"
                                                 : "an im2col copy through a tensor map for tiled ones");
    if (rows4 && box.map.box[1] != 1)
        throw Fault("tensor-map",
                    format("tile::gather4 and scatter4 take boxes of one row, the map's has %u", box.map.box[1]));
    for (u32 d = 0; d < (rows4 ? 5 : dims); ++d) box.start[d] = w.reg<i32>(coordinates[d])[lane];
    for (u32 d = 0; box.map.im2col && d + 2 < dims; ++d)
        if (box.start[d + 1] < box.map.first_pixel[d] || box.start[d + 1] > box.map.last_pixel[d])
            throw Fault("tensor-coordinate", format("the first pixel of an im2col copy, at %d in dimension %u, lies "
                                                    "outside the bounding box from %lld to %lld",
                                                    box.start[d + 1], d + 1, (long long)box.map.first_pixel[d],
                                                    (long long)box.map.last_pixel[d]));
    if (box.map.dtype == d16u4_align8) {
        if (box.start[0] % 32)
            throw Fault("tensor-coordinate", format("innermost coordinate %d of packed 4-bit elements: it is a "
                                                    "multiple of 16 bytes",
                                                    box.start[0]));
        box.start[0] /= 2;
    }
    if (box.map.padding) {
        if (box.start[0] % 128)
            throw Fault("tensor-coordinate",
                        format("innermost coordinate %d of padded elements: it is a multiple of 128", box.start[0]));
        box.start[0] /= 16;
    }
    if (i64{box.start[0]} * box.map.element_bytes() % 16)
        throw Fault("tensor-coordinate",
                    format("innermost coordinate %d of elements of %u bytes: it is a multiple of 16 bytes",
                           box.start[0], box.map.element_bytes()));
    return box;
}

void touch_box_shared(Cta& cta, Warp& w, const Box& box, u32 offset, const Accessor& who) {
    if (box.pitch() == box.row_bytes() && !box.map.padding) return touch_shared(cta, w, offset, box.bytes(), who, true);
    std::vector<Range>& ranges = machine_of(w).ranges;
    ranges.clear();
    each_piece(box, offset, [&](u32, u32 at, u32 bytes) { ranges.push_back({at, bytes}); });
    touch_shared(cta, w, ranges, who, true);
}

void touch_stored(Cta& cta, Warp& w, const Box& box, u32 offset, const Accessor& who) {
    if (is_inside(box)) return touch_box_shared(cta, w, box, offset, who);
    const u32 element = box.map.element_bytes(), row = box.row_bytes();
    std::vector<Range>& ranges = machine_of(w).ranges;
    ranges.clear();
    each_row(box, true, [&](u32 at, u64, u32 elements) {
        const u32 first = at * element % row, end = first + elements * element;
        const u32 start = offset + at * element / row * box.pitch();
        if (box.map.swizzle == Swizzle::none) return ranges.push_back({start + first, end - first});
        each_piece_of_row<16>(box.map.swizzle, start, row, [&](u32 x, u32 piece, u32 bytes) {
            if (x < end && first < x + bytes) ranges.push_back({piece, bytes});
        });
    });
    touch_shared(cta, w, ranges, who, true);
}

void touch_box(Warp& w, const Box& box, const Accessor& who) {
    const u32 element = box.map.element_bytes();
    std::vector<Range>& ranges = machine_of(w).ranges;
    ranges.clear();
    Allocation* all = nullptr;
    const auto touch = [&] {
        if (all) touch_global(*all, w, ranges, who, true);
        ranges.clear();
    };
    each_row(box, who.write, [&](u32, u64 address, u32 elements) {
        const u64 bytes = who.write ? element : u64{elements} * element;
        if (!all || !all->holds(address, bytes)) {
            touch();
            all = &resolve_global(w, address, bytes, "bulk tensor copy");
        }
        ranges.push_back({address, stored_bytes(*all, address, elements, element)});
    });
    touch();
    if (!who.write) return;
    // Of a store, too, the tensor's own elements have to be there.
    each_row(box, false, [&](u32, u64 address, u32 elements) {
        const u64 bytes = u64{elements} * element;
        if (!all || !all->holds(address, bytes)) resolve_global(w, address, bytes, "bulk tensor store");
    });
}

namespace {

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

void store_box(GlobalView& memory, const Box& box, const std::vector<u8>& linear, Reduction reduction) {
    const u32 element = box.map.element_bytes();
    const Ty type = reduction == Reduction::none ? Ty::none : element_type(box.map, reduction);
    each_row(box, true, [&](u32 at, u64 address, u32 elements) {
        Allocation* a = memory.find(address, element);
        if (!a) return;
        u8* to = a->data.get() + (address - a->base);
        const u32 bytes = stored_bytes(*a, address, elements, element);
        if (reduction == Reduction::none)
            std::memcpy(to, linear.data() + at * element, bytes);
        else
            reduce_bytes(reduction, type, to, linear.data() + at * element, bytes);
    });
}

std::vector<u8> collect_box(const Box& box, const Cta& cta, u32 offset) {
    std::vector<u8> linear(box.bytes());
    each_piece(box, offset,
               [&](u32 n, u32 at, u32 bytes) { std::memcpy(linear.data() + n, cta.shared.data() + at, bytes); });
    return linear;
}

Ty element_type(const TensorMap& map, Reduction reduction) {
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
