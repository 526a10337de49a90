// Threads wait for their own cp.async and read what others' have brought.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[1][64];
    const int t = threadIdx.x;
    copy_async(&x[0][t], in + t);
    copy_commit();
    copy_wait<0>();
    if (!kMistake) __syncthreads();
    out[t] = x[0][63 - t];
}

TWINS
