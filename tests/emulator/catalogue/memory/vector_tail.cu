// Vector loads of an array whose length is no multiple of the vector's.
#include "../catalogue.cuh"

BODY {
    const int n = 1022, t = threadIdx.x;
    if (!kMistake && 4 * t + 964 > n) {
        int sum = 0;
        for (int k = 4 * t + 960; k < n; ++k) sum += in[k];
        out[t] = sum;
        return;
    }
    if (t < 17) {
        const int4 v = *reinterpret_cast<const int4*>(in + 960 + 4 * t);
        out[t] = v.x + v.y + v.z + v.w;
    }
}

TWINS
