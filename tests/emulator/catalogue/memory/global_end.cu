// The last thread reads one element behind the input.
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    const bool inside = 1023 - t + (kMistake ? 1 : 0) < 1024 + (kMistake ? 1 : 0);
    out[t] = inside ? in[1023 - t + (kMistake ? 1 : 0)] : 0;
}

TWINS
