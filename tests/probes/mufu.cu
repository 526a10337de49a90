// The approximate functions over whole ranges of arguments. digest_*: a sum of all results, each times an odd number
// that its argument gives, a word for every 2^24 arguments. dump_*: the results, for mufu_fit.py.
#include <cstdint>

namespace {

// Arguments from `first` on, `count` a thread; `out`: the digests, from the one of `first` on.
template <class F>
__device__ void digest(unsigned first, unsigned count, unsigned long long* out, F f) {
    const unsigned start = first + (blockIdx.x * blockDim.x + threadIdx.x) * count;
    unsigned long long sum = 0;
    for (unsigned n = 0; n < count; ++n) {
        const unsigned x = start + n;
        sum += f(x) * (static_cast<unsigned long long>(x) * 0x9E3779B97F4A7C15ull | 1);
    }
    atomicAdd(out + ((start - first) >> 24), sum);
}

}  // namespace

#define DIGEST(NAME, ...)                                                                               \
    extern "C" __global__ void digest_##NAME(unsigned first, unsigned count, unsigned long long* out) { \
        digest(first, count, out, [](unsigned x) -> unsigned long long { __VA_ARGS__ });                \
    }
// The argument is the number's bits.
#define WORD(NAME, PTX) DIGEST(NAME, unsigned y; asm(PTX " %0, %1;" : "=r"(y) : "r"(x)); return y;)
#define SINGLE(NAME, PTX) \
    DIGEST(NAME, float y; asm(PTX " %0, %1;" : "=f"(y) : "f"(__uint_as_float(x))); return __float_as_uint(y);)
// Two numbers that look random, the divisor all numbers once.
#define QUOTIENT(NAME, PTX)                                                                                \
    DIGEST(NAME, float y; const unsigned a = (x ^ x >> 15) * 0x85EBCA6Bu, b = x * 0x9E3779B1u;             \
           asm(PTX " %0, %1, %2;" : "=f"(y) : "f"(__uint_as_float(a ^ a >> 13)), "f"(__uint_as_float(b))); \
           return __float_as_uint(y);)
// The argument is the upper word; the lower one must not matter.
#define UPPER(NAME, PTX)                                                                                           \
    DIGEST(NAME, unsigned long long y; const unsigned long long a = static_cast<unsigned long long>(x) << 32 | ~x; \
           asm(PTX " %0, %1;" : "=l"(y) : "l"(a)); return y >> 32 ^ y << 32;)
#define DUMP(NAME, PTX)                                                     \
    extern "C" __global__ void dump_##NAME(unsigned first, unsigned* out) { \
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;           \
        float y;                                                            \
        asm(PTX " %0, %1;" : "=f"(y) : "f"(__uint_as_float(first + i)));    \
        out[i] = __float_as_uint(y);                                        \
    }

SINGLE(ex2_approx_f32, "ex2.approx.f32")
SINGLE(ex2_approx_ftz_f32, "ex2.approx.ftz.f32")
SINGLE(lg2_approx_f32, "lg2.approx.f32")
SINGLE(lg2_approx_ftz_f32, "lg2.approx.ftz.f32")
SINGLE(rcp_approx_f32, "rcp.approx.f32")
SINGLE(rcp_approx_ftz_f32, "rcp.approx.ftz.f32")
SINGLE(rsqrt_approx_f32, "rsqrt.approx.f32")
SINGLE(rsqrt_approx_ftz_f32, "rsqrt.approx.ftz.f32")
SINGLE(sqrt_approx_f32, "sqrt.approx.f32")
SINGLE(sqrt_approx_ftz_f32, "sqrt.approx.ftz.f32")
SINGLE(sin_approx_f32, "sin.approx.f32")
SINGLE(sin_approx_ftz_f32, "sin.approx.ftz.f32")
SINGLE(cos_approx_f32, "cos.approx.f32")
SINGLE(cos_approx_ftz_f32, "cos.approx.ftz.f32")
SINGLE(tanh_approx_f32, "tanh.approx.f32")
WORD(ex2_approx_f16x2, "ex2.approx.f16x2")
WORD(ex2_approx_ftz_bf16x2, "ex2.approx.ftz.bf16x2")
WORD(tanh_approx_f16x2, "tanh.approx.f16x2")
WORD(tanh_approx_bf16x2, "tanh.approx.bf16x2")
QUOTIENT(div_approx_f32, "div.approx.f32")
QUOTIENT(div_approx_ftz_f32, "div.approx.ftz.f32")
QUOTIENT(div_full_f32, "div.full.f32")
QUOTIENT(div_full_ftz_f32, "div.full.ftz.f32")
UPPER(rcp_approx_ftz_f64, "rcp.approx.ftz.f64")
UPPER(rsqrt_approx_ftz_f64, "rsqrt.approx.ftz.f64")

DUMP(ex2, "ex2.approx.ftz.f32")
DUMP(lg2, "lg2.approx.ftz.f32")
DUMP(rcp, "rcp.approx.ftz.f32")
DUMP(rsqrt, "rsqrt.approx.ftz.f32")
DUMP(sqrt, "sqrt.approx.ftz.f32")
DUMP(sin, "sin.approx.ftz.f32")
DUMP(cos, "cos.approx.ftz.f32")
DUMP(tanh, "tanh.approx.f32")
