// A stencil reads its neighbours before they are all there.
#include "../catalogue.cuh"

BODY {
    __shared__ int row[66];
    const int t = threadIdx.x;
    row[t + 1] = in[t];
    if (t == 0) row[0] = row[65] = 0;
    if (!kMistake) __syncthreads();
    out[t] = row[t] + row[t + 1] + row[t + 2];
}

TWINS
