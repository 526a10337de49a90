// Dynamic shared memory of less than the kernel uses.
// launch: shared 256
#include "../catalogue.cuh"

BODY {
    extern __shared__ int dynamic[];
    const int t = threadIdx.x;
    dynamic[kMistake ? 2 * t : t] = in[t];
    __syncthreads();
    out[t] = dynamic[kMistake ? 2 * (63 - t) : 63 - t];
}

TWINS
