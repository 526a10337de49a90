// cp.async that no group holds when the groups are waited for.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[1][64];
    const int t = threadIdx.x;
    copy_async(&x[0][t], in + t);
    if (!kMistake) copy_commit();
    copy_wait<0>();
    __syncthreads();
    out[t] = x[0][63 - t];
}

TWINS
