// __syncwarp() stands before the lanes' writes, not behind them.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    __shared__ int x[32];
    const int t = threadIdx.x;
    if (kMistake) __syncwarp();
    x[t] = in[t];
    if (!kMistake) __syncwarp();
    out[t] = x[31 - t];
}

TWINS
