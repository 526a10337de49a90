// The padding at the end of each row is added up with the row.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[8][9];
    const int t = threadIdx.x;
    x[t / 8][t % 8] = in[t];
    __syncthreads();
    int sum = 0;
    if (t < 8)
        for (int k = 0; k < (kMistake ? 9 : 8); ++k) sum += x[t][k];
    out[t] = sum;
}

TWINS
