// Tensor maps, and the boxes that tensor copies move through them (PTX ISA 5.5).
#include "memory/tensor_map/tensor_map.hpp"

#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "memory/tensor_map/box_rows.hpp"
#include "order/conflicts/conflicts.hpp"

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

namespace {

// What a load reads, where it is the same chunks of many blocks of one allocation: blocks that differ would each be a
// state of its own. False, and nothing has happened, where it is not, and where there is something to report.
bool touch_loaded_rows(Warp& w, const Box& box, const Accessor& who) {
    constexpr u32 kLine = 64;
    Machine& m = machine_of(w);
    if (m.global.logs()) return false;
    const u32 element = box.map.element_bytes();
    Allocation* a = nullptr;
    bool good = true;
    m.rows.clear();
    each_row(box, false, [&](u32, u64 address, u32 elements) {
        const u64 bytes = u64{elements} * element;
        if (!a) a = m.global.find(address, bytes);
        good = good && a && a->holds(address, bytes) && m.rows.add(address - a->base, bytes);
        if (!good) return;
        // They will be copied in a while.
        const u8* const from = a->data.get() + (address - a->base);
        for (u64 x = 0; x < bytes; x += kLine) __builtin_prefetch(from + x, 0, 2);
    });
    return good && a && touch_global_blocks(*a, w, m.rows.blocks(), who);
}

}  // namespace

void touch_box(Warp& w, const Box& box, const Accessor& who) {
    if (!who.write && touch_loaded_rows(w, box, who)) return;
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

}  // namespace ptxm
