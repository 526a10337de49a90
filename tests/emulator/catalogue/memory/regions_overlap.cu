// Dynamic shared memory is divided by elements where bytes are meant: two regions overlap.
// launch: shared 256
#include "../catalogue.cuh"

BODY {
    extern __shared__ char room[];
    int* const first = reinterpret_cast<int*>(room);
    int* const second = reinterpret_cast<int*>(room + (kMistake ? 32 : 32 * sizeof(int)));
    const int t = threadIdx.x;
    if (t < 32)
        first[t] = in[t];
    else
        second[t - 32] = in[t];
    __syncthreads();
    out[t] = first[t % 32] + second[t % 32];
}

TWINS
