// A buffer of partial sums has more parts than were written.
#include "../catalogue.cuh"

BODY {
    int* parts = out + 512;
    const int t = threadIdx.x;
    if (t < 32) parts[t] = in[t];
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < (kMistake ? 33 : 32); ++k) sum += parts[k];
    out[t] = sum;
}

TWINS
