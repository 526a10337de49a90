// A product of two indices has more than 32 bits.
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x, row = in[3] << 16, stride = (1 << 15) + in[0];
    const long long at = kMistake ? (long long)(int)((u32)row * (u32)stride + (u32)(row * 8)) : 0ll;
    out[t] = in[at + t];
}

TWINS
