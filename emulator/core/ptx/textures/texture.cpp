// tex, tld4 and txq (PTX ISA 9.7.10). What an object's coordinates, filter and addressing mean is in the CUDA C++
// programming guide, texture fetching: a linear filter has weights of eight fractional bits.
#include <cmath>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "numbers/formats.hpp"
#include "ptx/textures/filter.hpp"
#include "ptx/textures/image_access.hpp"

namespace ptxm {
namespace {

// An element of each lane: what its channels are in registers.
typedef u32 Elements[kLanes][kMostChannels];

// Of a fetch, what lanes ask along one dimension: an element, and the weight of the one behind it.
struct Axis {
    i64 at[kLanes];
    i32 weight[kLanes];
};

// The element that a place stands for, or -1 for none.
i64 placed(i64 at, i64 size, Addressing how) {
    switch (how) {
        case Addressing::clamp: return std::clamp<i64>(at, 0, size - 1);
        case Addressing::border: return at >= 0 && at < size ? at : -1;
        case Addressing::wrap: return (at % size + size) % size;
        case Addressing::mirror: break;
    }
    const i64 turn = (at % (2 * size) + 2 * size) % (2 * size);
    return turn < size ? turn : 2 * size - 1 - turn;
}

float fraction_of(Texel t, u32 raw) {
    switch (t) {
        case Texel::u8_: return static_cast<float>(raw) / 255.0f;
        case Texel::s8: return std::max(static_cast<float>(static_cast<std::int8_t>(raw)) / 127.0f, -1.0f);
        case Texel::u16_: return static_cast<float>(raw) / 65535.0f;
        default: return std::max(static_cast<float>(static_cast<std::int16_t>(raw)) / 32767.0f, -1.0f);
    }
}

// A NaN keeps its payload, and stays one that signals.
u32 widened(u16 half) {
    if ((half & 0x7FFF) <= 0x7C00) return std::bit_cast<u32>(half_to_float(half));
    return static_cast<u32>(half & 0x8000) << 16 | 0x7F800000u | static_cast<u32>(half & 0x3FF) << 13;
}

// `fraction`: an integer becomes one.
u32 channel(const Image& m, const u8* element, u32 c, bool fraction) {
    const u32 bytes = texel_bytes(m.texel);
    u32 raw = 0;
    std::memcpy(&raw, element + c * bytes, bytes);
    if (m.texel == Texel::f16) return widened(static_cast<u16>(raw));
    if (fraction) return std::bit_cast<u32>(fraction_of(m.texel, raw));
    if (m.texel == Texel::s8) return static_cast<u32>(static_cast<i32>(static_cast<std::int8_t>(raw)));
    if (m.texel == Texel::s16) return static_cast<u32>(static_cast<i32>(static_cast<std::int16_t>(raw)));
    return raw;
}

// One fetch of lanes that name the same texture.
struct Fetch {
    Warp& w;
    const Inst& i;
    const Image& m;
    u32 mask;
    Axis axes[kMostDimensions];
    u64 layers[kLanes];  // byte offsets
    bool integers;       // those that are read as fractions stay integers: a filter sums them

    u32 dimensions = m.dimensions;

    // `between`: elements are those that a linear filter takes. `filter`: and it does take them.
    void place(const i32* coordinates, bool between, bool filter) {
        for (u32 l = 0; l < kLanes; ++l) layers[l] = 0;
        if (m.layers) {
            const u32* layer = w.reg<u32>(*coordinates++);
            for (u32 l = 0; l < kLanes; ++l)
                if (mask >> l & 1) layers[l] = layer_offset(m, layer[l]);
        }
        for (u32 d = 0; d < dimensions; ++d) {
            Axis& axis = axes[d];
            if (!(i.mods & kTexFloat)) {
                const i32* x = w.reg<i32>(coordinates[d]);
                for (u32 l = 0; l < kLanes; ++l) axis.at[l] = x[l], axis.weight[l] = 0;
                continue;
            }
            const float* given = w.reg<float>(coordinates[d]);
            for (u32 l = 0; l < kLanes; ++l) {
                float x = m.normalized ? given[l] * static_cast<float>(m.size[d]) : given[l];
                if (between) x -= 0.5f;
                if (!(x == x)) x = 0;
                // Outside there is one element alone: a second one with some of its weight would change products.
                if (filter && m.addressing[d] == Addressing::clamp)
                    x = std::clamp(x, 0.0f, static_cast<float>(m.size[d] - 1));
                x = std::clamp(x, -0x1p30f, 0x1p30f);
                const float below = std::floor(x);
                axis.at[l] = static_cast<i64>(below);
                axis.weight[l] = filter ? static_cast<i32>(std::floor((x - below) * kWhole + 0.5f)) : 0;
            }
        }
        // An image of one dimension is one row, read at 0: half of it is the border in front of that row.
        if (filter && m.dimensions == 1 && m.addressing[1] == Addressing::border) {
            dimensions = 2;
            std::fill_n(axes[1].at, kLanes, -1);
            std::fill_n(axes[1].weight, kLanes, kWhole / 2);
        }
    }

    // The elements so many steps behind those of the axes, of the lanes in `which`. A channel that the image lacks is
    // 0.
    void read(u32 corner, u32 which, Elements& out) {
        const u32 size = element_bytes_of(m);
        const u64 strides[kMostDimensions] = {size, m.pitch, m.plane};
        Addresses a{};
        u32 inside = 0;
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(which >> l & 1)) continue;
            u64 at = m.address + layers[l];
            bool there = true;
            for (u32 d = 0; d < dimensions; ++d) {
                // A whole number names an element, or none, whatever the texture's addressing.
                const Addressing how = i.mods & kTexFloat ? m.addressing[d] : Addressing::border;
                const i64 place = placed(axes[d].at[l] + (corner >> d & 1), m.size[d], how);
                there = there && place >= 0;
                at += static_cast<u64>(std::max<i64>(place, 0)) * strides[d];
            }
            a.at[l] = at;
            inside |= static_cast<u32>(there) << l;
            for (u32 c = 0; c < kMostChannels && !there; ++c)
                out[l][c] = c < m.channels && i.mods & kTexFloat ? border(c) : 0;
        }
        if (!inside) return;
        u8* pointers[kLanes];
        resolve_lanes(w, Space::global, a, inside, size, false, pointers, Strength::weak, nullptr, true);
        after_load(w, i, a, inside, size);
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(inside >> l & 1)) continue;
            for (u32 c = 0; c < kMostChannels; ++c)
                out[l][c] = c < m.channels ? channel(m, pointers[l], c, m.scaled && !integers) : 0;
        }
    }

    u32 border(u32 c) const {
        return m.scaled && integers ? static_cast<u32>(border_element(m.texel, m.border[c]))
                                    : std::bit_cast<u32>(m.border[c]);
    }
};

void put(Warp& w, const Inst& i, u32 lanes, const Elements& values) {
    for (u32 k = 0; k < i.n_dst; ++k) {
        const i32 unit = w.ops(i)[k];
        if (unit < 0) continue;
        u32* d = w.reg<u32>(unit);
        for (u32 l = 0; l < kLanes; ++l)
            if (lanes >> l & 1) d[l] = values[l][k];
    }
}

void nearest(Fetch& f, Elements& out) { f.read(0, f.mask, out); }

void interpolated(Fetch& f, Elements& out) {
    Corners<i32> weights[kLanes];
    u32 taken[kLanes] = {};  // a bit for each corner that the lane's place is between
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(f.mask >> l & 1)) continue;
        std::array<i32, kMostDimensions> behind{};
        for (u32 d = 0; d < f.dimensions; ++d) behind[d] = f.axes[d].weight[l];
        weights[l] = corner_weights(behind);
        taken[l] = corners_between(behind);
    }
    Elements read[kMostCorners];
    for (u32 corner = 0; corner < 1u << f.dimensions; ++corner) {
        u32 lanes = 0;
        for (u32 l = 0; l < kLanes; ++l) lanes |= (taken[l] >> corner & 1) << l;
        f.read(corner, lanes, read[corner]);
    }
    for (u32 l = 0; l < kLanes; ++l)
        for (u32 c = 0; c < f.m.channels && (f.mask >> l & 1); ++c) {
            Corners<u32> elements{};
            for (u32 corner = 0; corner < kMostCorners; ++corner)
                if (taken[l] >> corner & 1) elements[corner] = read[corner][l][c];
            out[l][c] = weighted_sum(f.m, elements, weights[l], taken[l]);
        }
}

// One channel of the four elements that a linear filter would take, counter-clockwise from the one at the lower left.
void gathered(Fetch& f, Elements& out) {
    constexpr u32 kCorners[] = {0b10, 0b11, 0b01, 0b00};
    const u32 from = f.i.mods >> kTexComponentShift & 3;
    Elements read;
    for (u32 k = 0; k < 4; ++k) {
        f.read(kCorners[k], f.mask, read);
        for (u32 l = 0; l < kLanes; ++l) out[l][k] = read[l][from];
    }
}

Flow tex(Warp& w, const Inst& i, u32 mask) {
    const i32* s = w.ops(i) + i.n_dst;
    Elements out = {};
    begin_loads(w, i, mask);
    each_image(w, i, s[0], mask, false, [&](const Image& m, u32 lanes) {
        if (m.linear && (i.mods & kTexFloat))
            throw Fault("image-object", "coordinates of a texture over linear memory are whole numbers: tex1Dfetch");
        const bool gather = i.mods & kTexGather, filter = m.filtered && (i.mods & kTexFloat);
        Fetch f{.w = w, .i = i, .m = m, .mask = lanes, .axes = {}, .layers = {}, .integers = filter && !gather};
        f.place(s + 1, gather || filter, filter);
        (gather ? gathered : filter ? interpolated : nearest)(f, out);
    });
    put(w, i, mask, out);
    return Flow::next;
}

// What txq and suq ask for: the order is that of decode/textures.py.
enum class Asked : u8 { width, height, depth, array_size, mipmap_levels, normalized_coordinates };

u32 answer(const Image& m, Asked what) {
    switch (what) {
        case Asked::width: return m.size[0];
        case Asked::height: return m.size[1];
        case Asked::depth: return m.size[2];
        case Asked::array_size: return m.layers;
        case Asked::mipmap_levels: return 1;
        case Asked::normalized_coordinates: return m.normalized;
    }
    return 0;
}

Flow query(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    each_image(w, i, o[1], mask, i.mods & kImageSurface, [&](const Image& m, u32 lanes) {
        const u32 value = answer(m, static_cast<Asked>(i.immediate));
        for (u32 l = 0; l < kLanes; ++l)
            if (lanes >> l & 1) w.reg<u32>(o[0])[l] = value;
    });
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_texture(X)        \
    X(tex, global_memory, texture) \
    X(image_query, global_memory, texture)
// clang-format on

Handler bind_texture(const InstRecord& r) { return static_cast<Op>(r.op) == Op::tex ? tex : query; }

}  // namespace ptxm
