// D += A B of bf16 with the host's matrix instructions. TDPBF16PS sums as multiply_vectors does (Intel SDM volume 2):
// fused, in f32, products of even and of odd k apart, then both, then onto D. But it takes denormals as zero, makes
// them zero, and has a NaN of its own. So it is used where none can arise: see the limits below.
#include <utility>

#include "ptx/tcgen05/product/product.hpp"

// The compiler's header stands for an assembler that knows the instructions, which are written out: the compiler's own
// functions take tiles by literal and do not say that they read memory.
#if defined(__x86_64__) && __has_include(<amxbf16intrin.h>)
#define PTXM_TILES
#endif

namespace ptxm::tc {
namespace {

// With exponents e as f32 stores them: a number of bf16 is a multiple of 2^(e - 134), so all sums of products, exact or
// rounded, are multiples of 2^-126 where those of A and B add to 142, and none is a denormal. An element of D is such a
// multiple from 24 on. With D and the sum of 128 products below 2^126 each, nothing overflows.
constexpr u32 kLowestSum = 142, kHighestSum = 371, kLowestD = 24, kHighestD = 252, kSpecial = 255;

// `bits`: of a magnitude, times two, of a 16-bit number.
u32 exponent_of(u32 bits) { return bits >> 8; }

// Whether all of a tile of D are zero or within the limits for D.
class Extremes {
public:
    void see_tile(const u32* d) {
        for (u32 r = 0; r < kTileRows; ++r, d += Tmem::kPitch) {
            Words x;
            std::memcpy(&x, d, sizeof x);
            const Words magnitude = x + x, below = magnitude - 1;  // zero is above all
            low_ = below < low_ ? below : low_;
            high_ = magnitude > high_ ? magnitude : high_;
        }
    }
    bool fit() const {
        u32 low = ~0u, high = 0;
        for (u32 j = 0; j < kBlockColumns; ++j) low = std::min(low, low_[j]), high = std::max(high, high_[j]);
        return high >> 24 <= kHighestD && (high == 0 || (low + 1) >> 24 >= kLowestD);
    }

private:
    typedef u32 Words __attribute__((vector_size(kBlockColumns * sizeof(u32))));
    Words low_ = ~Words{}, high_ = {};
};

}  // namespace

bool tiles_fit(const Packed& operands, const Sums& s) {
    const Packed::Range a = operands.magnitudes_a.range(), b = operands.magnitudes_b.range();
    if (s.scale != 1.0f) return false;
    if (a.high == 0 || b.high == 0) return exponent_of(a.high) != kSpecial && exponent_of(b.high) != kSpecial;
    const u32 low_a = exponent_of(a.low), low_b = exponent_of(b.low);
    const u32 high_a = exponent_of(a.high), high_b = exponent_of(b.high);
    return low_a && low_b && low_a + low_b >= kLowestSum && high_a != kSpecial && high_b != kSpecial &&
           high_a + high_b <= kHighestSum;
}

#ifdef PTXM_TILES

namespace {

// The operand of LDTILECFG: tiles 0 to 3 are D, 4 and 5 are A, 6 and 7 are B.
constexpr u32 kFirstA = 4, kFirstB = 6, kTileBytes = 64;
struct alignas(64) TileShapes {
    u8 palette = 1, start_row = 0, reserved[14] = {};
    u16 row_bytes[16] = {};
    u8 rows[16] = {};

    constexpr explicit TileShapes(u32 group) {
        for (u32 t = 0; t < 8; ++t) {
            const bool a = t == kFirstA || t == kFirstA + 1;
            row_bytes[t] = static_cast<u16>(a ? group * sizeof(u16) : kTileBytes);
            rows[t] = static_cast<u8>(t >= kFirstB ? group / 2 : kTileRows);
        }
    }
};
constexpr TileShapes kDepth16(16), kDepth32(32);

template <u32 kTile>
[[gnu::always_inline]] inline void load_tile(const void* from, std::size_t pitch) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(pitch), "i"(kTile) : "memory");
}
template <u32 kTile>
[[gnu::always_inline]] inline void store_tile(void* to, std::size_t pitch) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(pitch), "i"(kTile) : "memory");
}
template <u32 kTile>
[[gnu::always_inline]] inline void clear_tile() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <u32 kD, u32 kA, u32 kB>
[[gnu::always_inline]] inline void multiply_tile() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kD), "i"(kA), "i"(kB));
}

// f(0), f(1), .. of numbers that the compiler knows.
template <u32 kCount, class F>
[[gnu::always_inline]] inline void each(F f) {
    [&]<u32... k>(std::integer_sequence<u32, k...>) {
        (f(std::integral_constant<u32, k>{}), ...);
    }(std::make_integer_sequence<u32, kCount>{});
}

constexpr std::size_t kDBytes = Tmem::kPitch * sizeof(u32), kABytes = kPackedPitch * sizeof(u16),
                      kBBytes = kBPitch * sizeof(u32);

// Four tiles of D, if there are so many, are in flight: each waits for its sum before the next is added.
template <u32 kRows, u32 kColumns>
bool multiply_tiles(const Sums& s, u32* const* d, const u16* const* a, const u32* b) {
    const auto each_d = [&](auto f) {
        each<kRows>([&](auto r) {
            each<kColumns>([&](auto c) {
                f(std::integral_constant<u32, r.value * kColumns + c.value>{}, d[r] + c * kBlockColumns);
            });
        });
    };
    if (s.accumulate) {
        Extremes extremes;
        each_d([&](auto, const u32* at) { extremes.see_tile(at); });
        if (!extremes.fit()) return false;
        each_d([](auto tile, const u32* at) { load_tile<tile.value>(at, kDBytes); });
    } else {
        each_d([](auto tile, const u32*) { clear_tile<tile.value>(); });
    }
    for (u32 done = 0; done < s.depth; done += s.group, b += s.group / 2 * kBPitch) {
        each<kColumns>([&](auto c) {
            load_tile<kFirstB + c % 2>(b + c * kBlockColumns, kBBytes);
            each<kRows>([&](auto r) {
                constexpr u32 kA = kFirstA + r % 2;
                if (c == 0) load_tile<kA>(a[r] + done, kABytes);
                multiply_tile<r.value * kColumns + c.value, kA, kFirstB + c % 2>();
            });
        });
    }
    each_d([](auto tile, u32* at) { store_tile<tile.value>(at, kDBytes); });
    return true;
}

}  // namespace

Tiles::Tiles(u32 group) { asm volatile("ldtilecfg %0" ::"m"(group == 16 ? kDepth16 : kDepth32)); }
Tiles::~Tiles() { asm volatile("tilerelease"); }

bool Tiles::multiply(const Sums& s, const TileBlock& block, u32* const* d, const u16* const* a, const u32* b) const {
    switch (block.rows * 8 + block.columns) {
        case 4 * 8 + 1: return multiply_tiles<4, 1>(s, d, a, b);
        case 2 * 8 + 2: return multiply_tiles<2, 2>(s, d, a, b);
        case 2 * 8 + 1: return multiply_tiles<2, 1>(s, d, a, b);
        case 1 * 8 + 4: return multiply_tiles<1, 4>(s, d, a, b);
        case 1 * 8 + 3: return multiply_tiles<1, 3>(s, d, a, b);
        case 1 * 8 + 2: return multiply_tiles<1, 2>(s, d, a, b);
        default: return multiply_tiles<1, 1>(s, d, a, b);
    }
}

#else

Tiles::Tiles(u32) {}
Tiles::~Tiles() {}
bool Tiles::multiply(const Sums&, const TileBlock&, u32* const*, const u16* const*, const u32*) const { return false; }

#endif

}  // namespace ptxm::tc
