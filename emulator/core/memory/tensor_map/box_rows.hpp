// The rows of a box: where they lie in global memory, and their parts in shared memory.
#pragma once

#include "memory/tensor_map/tensor_map.hpp"

namespace ptxm {

// The part of a row that lies in bounds: elements [first, last) of the box's innermost dimension. A store ends at the
// next multiple of 16 bytes, in the padding behind the tensor's row.
struct Span {
    i64 first, last;
};

inline Span inner_span(const Box& box, bool store) {
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
inline u32 stored_bytes(const Allocation& a, u64 address, u32 elements, u32 element) {
    return static_cast<u32>(std::min<u64>(u64{elements} * element, a.base + a.size - address)) / element * element;
}

constexpr u32 kWholeRow = 128;  // the longest span of a swizzle, and what most boxes have

// Swizzles permute within 1024 bytes and move at least 8 bytes at a time.
inline u32 piece_of(Swizzle s) { return s == Swizzle::b128_atom32_flip8 ? 8 : 16; }

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

inline bool is_inside(const Box& box) {
    const TensorMap& m = box.map;
    bool inside = !box.rows4 && !m.im2col;
    for (u32 d = 0; d < m.rank; ++d) {
        const i64 last = i64{box.start[d]} + i64{m.count(d) - 1} * m.step(d);
        inside = inside && box.start[d] >= 0 && last < static_cast<i64>(m.global_dim[d]);
    }
    return inside;
}

}  // namespace ptxm
