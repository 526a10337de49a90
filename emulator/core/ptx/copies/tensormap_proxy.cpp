// Tensor maps that a kernel makes or changes: tensormap.replace, tensormap.cp_fenceproxy, and the proxy fence without
// which a copy may still use the old map (PTX ISA 9.7.9.28, 9.7.13.5).
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "memory/tensor_map/tensor_map.hpp"
#include "order/conflicts/conflicts.hpp"
#include "order/history/linear_history.hpp"

namespace ptxm {

constexpr u32 kMapBytes = 128;

namespace {

u32 known_clock(const Message& m, u32 cluster, AgentId agent) {
    if (m.cluster == cluster) return m.generic.get(agent);
    const ForeignClocks::View* view = m.foreign.find(cluster);
    return view ? view->generic.get(agent) : 0;
}

// The fence may be another warp's that this one has synchronised with: it lies on the path between the change and the
// use (PTX ISA 8, Proxy-preserved Base Causality Order).
bool fenced_since(Warp& w, const std::vector<MapFence>& fences, const Access& change) {
    const Message here = w.clocks.generic_view();
    return std::any_of(fences.begin(), fences.end(), [&](const MapFence& f) {
        return known_clock(here, f.known.cluster, f.agent) >= f.clock &&
               known_clock(f.known, change.cluster, change.agent) >= change.clock;
    });
}

}  // namespace

// A use of a map in global memory reads it through the tensormap proxy: what warps have written there counts only after
// an acquiring proxy fence on that address.
void check_tensor_map_fresh(Warp& w, u64 address) {
    Machine& m = machine_of(w);
    const Allocation& a = *m.global.find(address, kMapBytes);
    LinearShadow* shadow = m.global.existing_shadow(a);
    if (!m.checks || !shadow) return;
    const std::vector<MapFence>& fences = m.map_fences[address];
    Accessor who{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), false};
    who.cluster = w.cta->cluster->number;
    Touch touch(
        shadow->pasts(), who, false,
        [&](const Access& e, bool was_write) { return !was_write || fenced_since(w, fences, e); },
        [&](const Conflict& c) {
            m.report(&w, "tensor-map-stale",
                     format("a copy uses the tensor map at 0x%llx ('%s'), changed in this launch, with no "
                            "fence.proxy.tensormap::generic.acquire of it after the change",
                            (unsigned long long)address, a.name.c_str()),
                     w.pc(), c.earlier ? static_cast<i32>(c.earlier->pc) : -1);
        });
    shadow->touch(address - a.base, kMapBytes, touch);
}

namespace {

enum Field : u32 {
    global_address,
    rank,
    box_dim,
    global_dim,
    global_stride,
    element_stride,
    elemtype,
    interleave,
    swizzle_mode,
    swizzle_atomicity,
    fill_mode
};

template <class T>
void put(u8* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

void check_ordinal(u32 ordinal, u32 limit) {
    if (ordinal >= limit) throw Fault("tensormap-replace", format("ordinal %u of a field of %u", ordinal, limit));
}

// The encoding is that of emulator/tensormap.py.
void put_bits(u8* map, u32 byte, u32 shift, u32 width, u64 value) {
    const u32 mask = (1u << width) - 1;
    map[byte] = static_cast<u8>((map[byte] & ~(mask << shift)) | (static_cast<u32>(value) & mask) << shift);
}

void set_type(u8* map, u64 value) {
    // PTX numbers the types differently from the driver (table of tensormap.replace's .elemtype).
    static constexpr u8 driver[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12, 13, 14, 15};
    if (value >= sizeof driver)
        throw Fault("tensormap-replace", format("element type %llu", (unsigned long long)value));
    put_bits(map, 10, 0, 4, driver[value]);
}

// The map keeps one code for mode and atomicity, as the driver's encoder takes it.
void set_atomicity(u8* map, u64 value) {
    static constexpr u8 codes[] = {3, 4, 5, 6};
    if (value > 3) throw Fault("tensormap-replace", format("swizzle atomicity %llu", (unsigned long long)value));
    if ((map[11] & 7) >= 3)
        put_bits(map, 11, 0, 3, codes[value]);
    else if (value)
        throw Fault("tensormap-replace", "a swizzle atomicity other than 16B goes with the 128B swizzle mode");
}

void set_box(u8* map, u32 ordinal, u64 value) {
    check_ordinal(ordinal, 5);
    if (value < 1 || value > 256)
        throw Fault("tensormap-replace", format("box_dim %llu: 1..256 is allowed", (unsigned long long)value));
    map[56 + ordinal] = static_cast<u8>(value - 1);
    map[63] |= static_cast<u8>(1u << ordinal);
}

void set_element_stride(u8* map, u32 ordinal, u64 value) {
    check_ordinal(ordinal, 5);
    if (value < 1 || value > 8)
        throw Fault("tensormap-replace", format("element_stride %llu: 1..8 is allowed", (unsigned long long)value));
    u16 strides;
    std::memcpy(&strides, map + 61, 2);
    strides = static_cast<u16>((strides & ~(7u << 3 * ordinal)) | static_cast<u32>(value - 1) << 3 * ordinal);
    put<u16>(map + 61, strides);
}

void replace(u8* map, u32 field, u32 ordinal, u64 value) {
    if (holds_im2col_map(map) && (field == rank || field == box_dim || field == element_stride))
        throw Fault("tensormap-replace",
                    "a map for im2col copies keeps its rank, its pixels and its strides: what they "
                    "become by tensormap.replace.tile is not modelled");
    switch (field) {
        case global_address: put<u64>(map, value); break;
        case rank: put_bits(map, 11, 3, 3, value + 1); break;
        case box_dim: set_box(map, ordinal, value); break;
        case global_dim:
            check_ordinal(ordinal, 5);
            put<u32>(map + 16 + 4 * ordinal, static_cast<u32>(value) - 1);
            break;
        case global_stride:
            check_ordinal(ordinal, 4);
            if (value >> 40) throw Fault("tensormap-replace", format("global_stride %llu", (unsigned long long)value));
            put<u32>(map + 36 + 5 * ordinal, static_cast<u32>(value));
            map[40 + 5 * ordinal] = static_cast<u8>(value >> 32);
            break;
        case element_stride: set_element_stride(map, ordinal, value); break;
        case elemtype: set_type(map, value); break;
        case interleave: put_bits(map, 10, 6, 2, value); break;
        case swizzle_mode:
            if (value > 3) throw Fault("tensormap-replace", format("swizzle mode %llu", (unsigned long long)value));
            put_bits(map, 11, 0, 3, value);
            break;
        case swizzle_atomicity: set_atomicity(map, value); break;
        default: put_bits(map, 10, 4, 1, value); break;
    }
}

// The bytes of a map at a generic address, touched as a generic write or read.
u8* map_at(Warp& w, u64 address, bool write) {
    if (address % kMapBytes)
        throw Fault("misaligned", format("tensor map at 0x%llx is not 128-byte aligned", (unsigned long long)address));
    const Accessor who{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), write};
    if ((address & kWindowMask) == kSharedWindow) {
        const SharedRef ref = resolve_shared(w, static_cast<u32>(address), kMapBytes, "tensor map");
        touch_shared(*ref.cta, w, ref.offset, kMapBytes, who, false);
        return ref.cta->shared.data() + ref.offset;
    }
    Allocation& a = resolve_global(w, address, kMapBytes, "tensor map");
    touch_global(a, w, address, kMapBytes, who, false);
    return a.data.get() + (address - a.base);
}

// Kernels make maps from 128 bytes of zeros, field by field (Triton does). A copy refuses one that lacks a box.
void begin_map(u8* map) {
    if (std::any_of(map, map + kMapBytes, [](u8 byte) { return byte != 0; }))
        throw Fault("tensormap-replace", "the 128 bytes at the address are neither a tensor map nor zeros");
    begin_tensor_map(map);
    replace(map, rank, 0, 0);
}

// Operands: generic address, new value (64 bits). Inst::immediate: ordinal << 8 | field.
Flow replace_field(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        u8* map = map_at(w, w.reg<u64>(o[0])[l], true);
        if (!holds_tensor_map(map)) begin_map(map);
        replace(map, static_cast<u32>(i.immediate & 0xFF), static_cast<u32>(i.immediate >> 8), w.reg<u64>(o[1])[l]);
    }
    return Flow::next;
}

// fence.proxy.tensormap::generic.acquire [address], 128.
Flow acquire(Warp& w, const Inst& i, u32 mask) {
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        std::vector<MapFence>& fences = machine_of(w).map_fences[w.reg<u64>(w.ops(i)[0])[l]];
        std::erase_if(
            fences, [&](const MapFence& f) { return f.agent == w.clocks.self && f.known.cluster == w.clocks.cluster; });
        fences.push_back({w.clocks.self, w.clocks.epoch(), w.clocks.generic_view()});
    }
    w.clocks.tick();
    return Flow::next;
}

// tensormap.cp_fenceproxy: the whole warp copies one map from shared to global memory. Operands: generic addresses.
Flow copy_fenced(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 l = static_cast<u32>(std::countr_zero(mask));
    const u8* from = map_at(w, w.reg<u64>(o[1])[l], false);
    std::memcpy(map_at(w, w.reg<u64>(o[0])[l], true), from, kMapBytes);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_tensormap(X)             \
    X(tensormap_replace, copy, tensormap) \
    X(tensormap_fence, copy, tensormap)   \
    X(tensormap_copy, copy, tensormap)
// clang-format on

Handler bind_tensormap(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tensormap_replace: return replace_field;
        case Op::tensormap_fence: return acquire;
        case Op::tensormap_copy: return copy_fenced;
        default: return nullptr;
    }
}

}  // namespace ptxm
