// What textures and surfaces give, as lines of a name and words: textures.py runs it on a GPU and on the emulator.
// Names under open/ are of what no document says; the others should be equal.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call)                                                               \
    do {                                                                          \
        const cudaError_t status_ = (call);                                       \
        if (status_ != cudaSuccess) {                                             \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status_)); \
            std::exit(1);                                                         \
        }                                                                         \
    } while (0)

using Words = std::vector<uint32_t>;
using Floats = std::vector<float>;

static void tell(const std::string& name, const Words& words) {
    std::printf("%s", name.c_str());
    for (uint32_t w : words) std::printf(" %x", w);
    std::printf("\n");
}

// splitmix64, which gives the same everywhere.
static uint32_t drawn(uint64_t n) {
    uint64_t x = (n + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
}

enum Way { line, whole2, one, two, three, layered, gathered0, gathered3 };

// Four words a thread.
__global__ void fetch(cudaTextureObject_t t, Way way, const float* at, uint32_t* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = at[3 * i], y = at[3 * i + 1], z = at[3 * i + 2];
    uint32_t a, b, c, d;
#define FETCH(form, ...) asm volatile(form : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(t), __VA_ARGS__)
    switch (way) {
        case line: FETCH("tex.1d.v4.u32.s32 {%0, %1, %2, %3}, [%4, {%5}];", "r"(static_cast<int>(x))); break;
        case whole2:
            FETCH("tex.2d.v4.u32.s32 {%0, %1, %2, %3}, [%4, {%5, %6}];", "r"(static_cast<int>(x)),
                  "r"(static_cast<int>(y)));
            break;
        case one: FETCH("tex.1d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5}];", "f"(x)); break;
        case two: FETCH("tex.2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];", "f"(x), "f"(y)); break;
        case three: FETCH("tex.3d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6, %7, %7}];", "f"(x), "f"(y), "f"(z)); break;
        case layered:
            FETCH("tex.a2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6, %7, %7}];", "r"(static_cast<int>(z)), "f"(x),
                  "f"(y));
            break;
        case gathered0: FETCH("tld4.r.2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];", "f"(x), "f"(y)); break;
        case gathered3: FETCH("tld4.a.2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];", "f"(x), "f"(y)); break;
    }
    out[4 * i] = a, out[4 * i + 1] = b, out[4 * i + 2] = c, out[4 * i + 3] = d;
}

struct Sampler {
    cudaTextureAddressMode mode = cudaAddressModeClamp;
    bool filtered = false, normalized = false, fractions = false;
    float border[4] = {};
};

static cudaTextureObject_t object(const cudaResourceDesc& resource, const Sampler& s) {
    cudaTextureDesc desc{};
    for (auto& mode : desc.addressMode) mode = s.mode;
    desc.filterMode = s.filtered ? cudaFilterModeLinear : cudaFilterModePoint;
    desc.readMode = s.fractions ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    desc.normalizedCoords = s.normalized;
    std::memcpy(desc.borderColor, s.border, sizeof s.border);
    cudaTextureObject_t made = 0;
    CHECK(cudaCreateTextureObject(&made, &resource, &desc, nullptr));
    return made;
}

// Of each fetch the channels that the texture has.
static void probe(const std::string& name, cudaTextureObject_t t, Way way, const Floats& at, int channels = 1) {
    const int n = static_cast<int>(at.size() / 3);
    float* places;
    uint32_t* out;
    Words words(4 * n);
    CHECK(cudaMalloc(&places, at.size() * sizeof(float)));
    CHECK(cudaMalloc(&out, words.size() * sizeof(uint32_t)));
    CHECK(cudaMemcpy(places, at.data(), at.size() * sizeof(float), cudaMemcpyHostToDevice));
    fetch<<<(n + 127) / 128, 128>>>(t, way, places, out, n);
    CHECK(cudaMemcpy(words.data(), out, words.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    Words told;
    for (size_t k = 0; k < words.size(); ++k)
        if (static_cast<int>(k % 4) < channels) told.push_back(words[k]);
    tell(name, told);
    CHECK(cudaFree(places));
    CHECK(cudaFree(out));
}

static cudaArray_t array(const cudaChannelFormatDesc& format, cudaExtent e, unsigned flags, const void* data,
                         size_t element) {
    cudaArray_t made;
    CHECK(cudaMalloc3DArray(&made, &format, e, flags));
    if (!data) return made;
    cudaMemcpy3DParms copy{};
    const size_t rows = e.height ? e.height : 1;
    copy.srcPtr = make_cudaPitchedPtr(const_cast<void*>(data), e.width * element, e.width, rows);
    copy.dstArray = made;
    copy.extent = make_cudaExtent(e.width, rows, e.depth ? e.depth : 1);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return made;
}

static cudaResourceDesc of(cudaArray_t a) {
    cudaResourceDesc r{};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = a;
    return r;
}

// Elements that are small whole numbers, so that a weighted sum is exact in any order.
static Floats whole(size_t n, uint64_t salt) {
    Floats out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<int>(drawn(salt + i) % 128) - 64);
    return out;
}

// Places that are multiples of 1/256 of an element, from two elements before an axis to two behind it.
static Floats places(int n, const int (&sizes)[3], uint64_t salt, bool normalized) {
    Floats at(3 * n);
    for (int i = 0; i < 3 * n; ++i) {
        const int size = sizes[i % 3], steps = (size + 4) * 256;
        const float x = static_cast<float>(static_cast<int>(drawn(salt + i) % steps) - 512) / 256;
        at[i] = normalized ? x / static_cast<float>(size) : x;  // exact: sizes are powers of two
    }
    return at;
}

static void linear_memory() {
    struct Format {
        const char* name;
        int bits;
        cudaChannelFormatKind kind;
    };
    const Format formats[] = {{"u8", 8, cudaChannelFormatKindUnsigned},   {"s8", 8, cudaChannelFormatKindSigned},
                              {"u16", 16, cudaChannelFormatKindUnsigned}, {"s16", 16, cudaChannelFormatKindSigned},
                              {"f16", 16, cudaChannelFormatKindFloat},    {"u32", 32, cudaChannelFormatKindUnsigned},
                              {"s32", 32, cudaChannelFormatKindSigned},   {"f32", 32, cudaChannelFormatKindFloat}};
    const int n = 256;
    Words data(n * 4);
    for (size_t i = 0; i < data.size(); ++i) data[i] = drawn(i);
    for (size_t i = 0; i < data.size(); ++i)  // no NaN among halves and floats
        data[i] &= 0xBFFFBFFF;
    for (int b = 0; b < 256; ++b) reinterpret_cast<uint8_t*>(data.data())[b] = static_cast<uint8_t>(b);
    uint32_t* memory;
    CHECK(cudaMalloc(&memory, data.size() * 4));
    CHECK(cudaMemcpy(memory, data.data(), data.size() * 4, cudaMemcpyHostToDevice));
    Floats at;
    for (int i = -2; i < n + 3; ++i) at.insert(at.end(), {static_cast<float>(i), 0, 0});
    for (const Format& f : formats)
        for (int channels : {1, 2, 4}) {
            cudaResourceDesc r{};
            r.resType = cudaResourceTypeLinear;
            r.res.linear.devPtr = memory;
            const auto bits = [&](int c) { return c < channels ? f.bits : 0; };
            r.res.linear.desc = cudaCreateChannelDesc(f.bits, bits(1), bits(2), bits(3), f.kind);
            r.res.linear.sizeInBytes = static_cast<size_t>(n) * channels * f.bits / 8;
            const std::string name = std::string(f.name) + "x" + std::to_string(channels);
            probe("line/" + name, object(r, {}), line, at, channels);
            if (channels < 4) probe("open/absent/" + name, object(r, {}), line, {5, 0, 0}, 4);
            if (f.bits == 32 || f.kind == cudaChannelFormatKindFloat) continue;
            Sampler s;
            s.fractions = true;
            probe("open/fractions/" + name, object(r, s), line, at, channels);
        }
}

static void arrays() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(), quad = cudaCreateChannelDesc<float4>();
    const cudaExtent extents[] = {{16, 0, 0}, {16, 8, 0}, {8, 8, 4}};
    const Way ways[] = {one, two, three};
    const cudaTextureAddressMode modes[] = {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror,
                                            cudaAddressModeBorder};
    const Floats data = whole(16 * 16 * 8 * 4, 1000);
    for (int d = 0; d < 3; ++d) {
        const cudaExtent e = extents[d];
        const int sizes[] = {static_cast<int>(e.width), static_cast<int>(e.height ? e.height : 1),
                             static_cast<int>(e.depth ? e.depth : 1)};
        const cudaArray_t a = array(format, e, 0, data.data(), 4), b = array(quad, e, 0, data.data(), 16);
        for (int mode = 0; mode < 4; ++mode)
            for (int what = 0; what < 4; ++what) {
                Sampler s{modes[mode], what % 2 == 1, what / 2 == 1, false, {3, -2, 5, 7}};
                const std::string name = std::to_string(d + 1) + "d/mode" + std::to_string(mode) +
                                         (s.filtered ? "/linear" : "/point") + (s.normalized ? "/normalized" : "");
                Floats at = places(96, sizes, 5000 + 100 * d + 10 * mode + what, s.normalized);
                // Between elements, where a mirrored place may be either, none is asked for the nearest one.
                for (size_t k = 0; k < at.size() && !s.filtered; ++k)
                    at[k] += s.normalized ? 0x1p-9f / static_cast<float>(sizes[k % 3]) : 0x1p-9f;
                probe(name, object(of(a), s), ways[d], at);
                probe(name + "/x4", object(of(b), s), ways[d], at, 4);
            }
    }
}

static void others() {
    const Floats data = whole(16 * 8 * 4 * 4, 2000);
    const int sizes[] = {16, 8, 4};
    const cudaArray_t layers = array(cudaCreateChannelDesc<float>(), {16, 8, 4}, cudaArrayLayered, data.data(), 4);
    Floats at = places(256, sizes, 6000, false);
    for (size_t i = 2; i < at.size(); i += 3) at[i] = static_cast<float>(i / 3 % 6);  // two behind the last one
    probe("layered/point", object(of(layers), {}), layered, at);
    Sampler filtered;
    filtered.filtered = true;
    probe("layered/linear", object(of(layers), filtered), layered, at);
    for (size_t i = 2; i < at.size(); i += 3) at[i] = -1;
    probe("open/layer_before_the_first", object(of(layers), {}), layered, at);

    const cudaArray_t gather =
        array(cudaCreateChannelDesc<float4>(), {16, 8, 0}, cudaArrayTextureGather, data.data(), 16);
    at = places(256, sizes, 7000, false);
    // A place half-way between two elements is in either: of those none.
    for (float& x : at) x = static_cast<float>(static_cast<int>(x)) + 0.25f;
    probe("gather/r", object(of(gather), {}), gathered0, at, 4);
    probe("gather/a", object(of(gather), {}), gathered3, at, 4);

    float* rows;
    size_t pitch;
    CHECK(cudaMallocPitch(reinterpret_cast<void**>(&rows), &pitch, 20 * 4, 8));
    CHECK(cudaMemset2D(rows, pitch, 0, 20 * 4, 8));
    CHECK(cudaMemcpy2D(rows, pitch, data.data(), 20 * 4, 20 * 4, 8, cudaMemcpyHostToDevice));
    cudaResourceDesc r{};
    r.resType = cudaResourceTypePitch2D;
    r.res.pitch2D = {rows, cudaCreateChannelDesc<float>(), 20, 8, pitch};
    const int wide[] = {20, 8, 1};
    at = places(256, wide, 8000, false);
    probe("pitch/point", object(r, {}), two, at);
    probe("pitch/linear", object(r, filtered), two, at);

    for (float& x : at) x = static_cast<float>(static_cast<int>(x));
    probe("open/whole_numbers_in_two_dimensions", object(r, {}), whole2, at);
    const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, -0.0f, 0x1p-149f};
    Floats strange;
    for (float x : odd) strange.insert(strange.end(), {x, 1.5f, 0});
    probe("open/no_numbers", object(r, {}), two, strange);

    // How a weight comes of a place: between an element of 0 and one of 1, at multiples of 1/1024.
    const float step[] = {0, 1, 1, 1};
    const cudaArray_t stair = array(cudaCreateChannelDesc<float>(), {4, 0, 0}, 0, step, 4);
    Floats fine;
    for (int k = 0; k < 1024; ++k) fine.insert(fine.end(), {0.5f + static_cast<float>(k) / 1024, 0, 0});
    probe("open/weights", object(of(stair), filtered), one, fine);
    // Where the nearest element becomes the next one: at so many steps of a float before whole numbers.
    Floats below;
    for (int k = 0; k < 64; ++k) {
        uint32_t bits;
        float x = 1;
        std::memcpy(&bits, &x, 4);
        bits -= 1u << k / 2;
        std::memcpy(&x, &bits, 4);
        below.insert(below.end(), {x, 0, 0});
        below.insert(below.end(), {x + 1, 0, 0});
    }
    probe("open/nearest_below", object(of(stair), {}), one, below);
    // How sums are rounded: elements that are no whole numbers.
    Floats rough(16 * 8);
    for (size_t i = 0; i < rough.size(); ++i)
        rough[i] = static_cast<float>(static_cast<int>(drawn(3000 + i))) * 0x1p-20f;
    const cudaArray_t fractions = array(cudaCreateChannelDesc<float>(), {16, 8, 0}, 0, rough.data(), 4);
    probe("open/sums", object(of(fractions), filtered), two, places(512, sizes, 9000, false));
    // Fractions of integers, filtered.
    std::vector<uint8_t> bytes(16 * 8);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(drawn(4000 + i));
    const cudaArray_t small = array(cudaCreateChannelDesc<unsigned char>(), {16, 8, 0}, 0, bytes.data(), 1);
    Sampler mean = filtered;
    mean.fractions = true;
    probe("open/filtered_bytes", object(of(small), mean), two, places(512, sizes, 9500, false));
    std::vector<__half> halves(16 * 8);
    for (size_t i = 0; i < halves.size(); ++i)
        halves[i] = __float2half(static_cast<float>(static_cast<int>(drawn(4500 + i))) * 0x1p-20f);
    const cudaArray_t half = array(cudaCreateChannelDescHalf(), {16, 8, 0}, 0, halves.data(), 2);
    probe("open/filtered_halves", object(of(half), filtered), two, places(512, sizes, 9800, false));
    // From 0 to 1 in an odd number of elements.
    const cudaArray_t odd_array = array(cudaCreateChannelDesc<float>(), {13, 0, 0}, 0, data.data(), 4);
    Floats thirds;
    for (int k = -64; k < 192; ++k) thirds.insert(thirds.end(), {static_cast<float>(k) / 96, 0, 0});
    Sampler around{cudaAddressModeWrap, false, true};
    probe("open/thirteen_elements", object(of(odd_array), around), one, thirds);
}

// What filters make of formats and numbers that others() does not ask for.
static void filters() {
    const int sizes[] = {16, 8, 4};
    const auto halves = [](const Floats& from) {
        std::vector<__half> out(from.size());
        for (size_t i = 0; i < from.size(); ++i) out[i] = __float2half(from[i]);
        return out;
    };
    // Of so many magnitudes below 2^`top`.
    const auto spread = [](size_t n, uint64_t salt, int magnitudes, int top) {
        Floats out(n);
        for (size_t i = 0; i < n; ++i)
            out[i] = std::ldexp(static_cast<float>(static_cast<int>(drawn(salt + 2 * i))),
                                top - 31 - static_cast<int>(drawn(salt + 2 * i + 1) % magnitudes));
        return out;
    };
    Sampler sampler;
    sampler.filtered = true;
    const Floats flat = places(256, sizes, 20000, false), deep = places(256, sizes, 21000, false);
    const cudaExtent plane{16, 8, 0}, room{16, 8, 4};
    const auto half_format = cudaCreateChannelDescHalf();

    const Floats rough = spread(16 * 8 * 4, 22000, 8, 12), low = spread(16 * 8, 23000, 8, -122);
    probe("open/filter/f32/3d", object(of(array(cudaCreateChannelDesc<float>(), room, 0, rough.data(), 4)), sampler),
          three, deep);
    probe("open/filter/f16/3d", object(of(array(half_format, room, 0, halves(rough).data(), 2)), sampler), three, deep);
    probe("open/filter/f32/x4",
          object(of(array(cudaCreateChannelDesc<float4>(), {8, 4, 0}, 0, rough.data(), 16)), sampler), two, flat, 4);
    probe("open/filter/f32/low", object(of(array(cudaCreateChannelDesc<float>(), plane, 0, low.data(), 4)), sampler),
          two, flat);
    const Floats low_halves = spread(16 * 8, 24000, 8, -11);
    probe("open/filter/f16/low", object(of(array(half_format, plane, 0, halves(low_halves).data(), 2)), sampler), two,
          flat);
    Floats strange = rough;
    for (size_t i = 0; i < strange.size(); ++i) {
        const float numbers[] = {INFINITY, -INFINITY, NAN, -0.0f};
        const uint32_t which = drawn(25000 + i) % 24;
        if (which < 4) strange[i] = numbers[which];
    }
    probe("open/filter/f32/strange",
          object(of(array(cudaCreateChannelDesc<float>(), plane, 0, strange.data(), 4)), sampler), two, flat);
    probe("open/filter/f16/strange", object(of(array(half_format, plane, 0, halves(strange).data(), 2)), sampler), two,
          flat);

    Sampler fractions = sampler;
    fractions.fractions = true;
    Words integers(16 * 8 * 4);
    for (size_t i = 0; i < integers.size(); ++i) integers[i] = drawn(26000 + i);
    const struct {
        const char* name;
        int bits;
        cudaChannelFormatKind kind;
    } formats[] = {{"u8", 8, cudaChannelFormatKindUnsigned},
                   {"s8", 8, cudaChannelFormatKindSigned},
                   {"u16", 16, cudaChannelFormatKindUnsigned},
                   {"s16", 16, cudaChannelFormatKindSigned}};
    for (const auto& f : formats)
        for (bool bordered : {false, true}) {
            Sampler s = fractions;
            if (bordered) s.mode = cudaAddressModeBorder, s.border[0] = 0.3f, s.border[1] = -2, s.border[2] = 0.7f;
            const std::string name = std::string("open/filter/") + f.name + (bordered ? "/border" : "");
            const auto single = cudaCreateChannelDesc(f.bits, 0, 0, 0, f.kind);
            const auto quad = cudaCreateChannelDesc(f.bits, f.bits, f.bits, f.bits, f.kind);
            probe(name, object(of(array(single, plane, 0, integers.data(), f.bits / 8)), s), two, flat);
            probe(name + "/x4", object(of(array(quad, plane, 0, integers.data(), f.bits / 2)), s), two, flat, 4);
        }
    const cudaArray_t bytes = array(cudaCreateChannelDesc<unsigned char>(), room, 0, integers.data(), 1);
    probe("open/filter/u8/3d", object(of(bytes), fractions), three, deep);
}

__global__ void touch(cudaSurfaceObject_t from, cudaSurfaceObject_t to, uint32_t* out, int width, int height) {
    const int x = static_cast<int>(threadIdx.x) - 1, y = static_cast<int>(blockIdx.x) - 1;
    const int i = (y + 1) * blockDim.x + x + 1;
    out[2 * i] = surf2Dread<unsigned>(from, 4 * x, y, cudaBoundaryModeZero);
    out[2 * i + 1] = surf2Dread<unsigned>(from, 4 * x, y, cudaBoundaryModeClamp);
    if (x >= 0 && x < width && y >= 0 && y < height)
        surf2Dwrite(static_cast<unsigned>(100 * y + x), to, 4 * x, y, cudaBoundaryModeTrap);
    else
        surf2Dwrite(7u, to, 4 * x, y, cudaBoundaryModeZero);
}

static void surfaces() {
    const int width = 13, height = 6;
    Words data(width * height);
    for (size_t i = 0; i < data.size(); ++i) data[i] = drawn(500 + i);
    const cudaExtent e{width, height, 0};
    const auto format = cudaCreateChannelDesc<unsigned>();
    const cudaArray_t from = array(format, e, cudaArraySurfaceLoadStore, data.data(), 4);
    const cudaArray_t to = array(format, e, cudaArraySurfaceLoadStore, data.data(), 4);
    cudaSurfaceObject_t read, written;
    const cudaResourceDesc of_read = of(from), of_written = of(to);
    CHECK(cudaCreateSurfaceObject(&read, &of_read));
    CHECK(cudaCreateSurfaceObject(&written, &of_written));
    Words found(2 * (width + 2) * (height + 2));
    uint32_t* out;
    CHECK(cudaMalloc(&out, found.size() * 4));
    touch<<<height + 2, width + 2>>>(read, written, out, width, height);
    CHECK(cudaMemcpy(found.data(), out, found.size() * 4, cudaMemcpyDeviceToHost));
    tell("surface/read", found);
    CHECK(cudaMemcpy2DFromArray(data.data(), width * 4, to, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    tell("surface/written", data);
    CHECK(cudaDestroySurfaceObject(read));
    CHECK(cudaDestroySurfaceObject(written));
}

int main() {
    linear_memory();
    arrays();
    others();
    filters();
    surfaces();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
