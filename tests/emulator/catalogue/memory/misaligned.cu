// A vector load from an address that is no multiple of its size.
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    const int4 v = *reinterpret_cast<const int4*>(in + 4 * t + (kMistake ? 1 : 0));
    out[t] = v.x + v.y + v.z + v.w;
}

TWINS
