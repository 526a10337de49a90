#include "ptx/copies/reduction.hpp"

#include <cmath>

#include "numbers/formats.hpp"
#include "numbers/single.hpp"

namespace ptxm {
namespace {

template <class T, class F>
void each(u8* destination, const u8* source, u32 bytes, F f) {
    for (u32 n = 0; n < bytes; n += sizeof(T)) {
        T a, b;
        std::memcpy(&a, destination + n, sizeof(T));
        std::memcpy(&b, source + n, sizeof(T));
        a = static_cast<T>(f(a, b));
        std::memcpy(destination + n, &a, sizeof(T));
    }
}

template <class T>
bool integer(Reduction operation, u8* d, const u8* s, u32 bytes) {
    switch (operation) {
        case Reduction::add:
            each<T>(d, s, bytes, [](T a, T b) {
                return static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b);
            });
            return true;
        case Reduction::min: each<T>(d, s, bytes, [](T a, T b) { return std::min(a, b); }); return true;
        case Reduction::max: each<T>(d, s, bytes, [](T a, T b) { return std::max(a, b); }); return true;
        case Reduction::inc:
            each<T>(d, s, bytes, [](T a, T b) { return a >= b ? T{0} : static_cast<T>(a + 1); });
            return true;
        case Reduction::dec:
            each<T>(d, s, bytes, [](T a, T b) { return a == 0 || a > b ? b : static_cast<T>(a - 1); });
            return true;
        case Reduction::and_: each<T>(d, s, bytes, [](T a, T b) { return a & b; }); return true;
        case Reduction::or_: each<T>(d, s, bytes, [](T a, T b) { return a | b; }); return true;
        case Reduction::xor_: each<T>(d, s, bytes, [](T a, T b) { return a ^ b; }); return true;
        default: return false;
    }
}

// A NaN operand gives way to the other one, as in min and max without .NaN.
float lower(float a, float b) {
    return a != a ? b : b != b ? a : std::signbit(a) ? (a <= b ? a : b) : (b <= a ? b : a);
}
float upper(float a, float b) {
    return a != a ? b : b != b ? a : std::signbit(a) ? (b >= a ? b : a) : (a >= b ? a : b);
}

template <class Load, class Store>
bool sixteen(Reduction operation, u8* d, const u8* s, u32 bytes, Load load, Store store) {
    switch (operation) {
        case Reduction::add:
            each<u16>(d, s, bytes, [&](u16 a, u16 b) { return store(load(a) + load(b)); });
            return true;
        case Reduction::min:
            each<u16>(d, s, bytes, [&](u16 a, u16 b) { return store(lower(load(a), load(b))); });
            return true;
        case Reduction::max:
            each<u16>(d, s, bytes, [&](u16 a, u16 b) { return store(upper(load(a), load(b))); });
            return true;
        default: return false;
    }
}

}  // namespace

// PTX ISA 9.7.9.25.4.2 (cp.reduce.async.bulk), the table of types by operation.
bool reduces(Reduction operation, Ty type) {
    switch (operation) {
        case Reduction::add:
            return type == Ty::f16 || type == Ty::bf16 || type == Ty::f32 || type == Ty::f64 || type == Ty::u32_ ||
                   type == Ty::s32 || type == Ty::u64_;
        case Reduction::min:
        case Reduction::max:
            return type == Ty::f16 || type == Ty::bf16 || type == Ty::u32_ || type == Ty::s32 || type == Ty::u64_ ||
                   type == Ty::s64;
        case Reduction::inc:
        case Reduction::dec: return type == Ty::u32_;
        case Reduction::and_:
        case Reduction::or_:
        case Reduction::xor_: return type == Ty::b32 || type == Ty::b64;
        default: return false;
    }
}

void reduce_bytes(Reduction operation, Ty type, u8* d, const u8* s, u32 bytes) {
    bool done = false;
    switch (type) {
        case Ty::u32_:
        case Ty::b32: done = integer<u32>(operation, d, s, bytes); break;
        case Ty::s32: done = integer<i32>(operation, d, s, bytes); break;
        case Ty::u64_:
        case Ty::b64: done = integer<u64>(operation, d, s, bytes); break;
        case Ty::s64: done = integer<i64>(operation, d, s, bytes); break;
        case Ty::f16: done = sixteen(operation, d, s, bytes, half_to_float, float_to_half); break;
        case Ty::bf16: done = sixteen(operation, d, s, bytes, bf16_to_float, float_to_bf16); break;
        case Ty::f32:
            // .add.f32 to global memory flushes subnormal inputs and results (PTX ISA, as red.add.f32).
            if (operation == Reduction::add) {
                each<float>(d, s, bytes, [](float a, float b) { return flush(flush(a) + flush(b)); });
                done = true;
            }
            break;
        case Ty::f64:
            if (operation == Reduction::add) {
                // As an H200: a NaN stays as it is, signalling as well, and of two what is added counts.
                each<double>(d, s, bytes, [](double a, double b) {
                    return std::isnan(b) ? b : std::isnan(a) ? a : a + b;
                });
                done = true;
            }
            break;
        default: break;
    }
    if (!done) throw Fault("bulk-reduction", "a bulk reduction of a type that the operation does not take");
}

}  // namespace ptxm
