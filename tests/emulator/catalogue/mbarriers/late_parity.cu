// The phase of a ring of three is taken from the wrong bit of the turn: it is right for the first turns.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full[3], empty[3];
    __shared__ int ring[3][32];
    const int t = threadIdx.x, lane = t % 32;
    if (t == 0)
        for (int s = 0; s < 3; ++s) {
            mbar_init(&full[s], 32);
            mbar_init(&empty[s], 32);
        }
    __syncthreads();

    if (t < 32) {
        for (int turn = 0; turn < 9; ++turn) {
            const int s = turn % 3, phase = turn / 3 & 1;
            mbar_wait(&empty[s], phase ^ 1);
            ring[s][lane] = in[32 * turn + lane];
            mbar_arrive(&full[s]);
        }
    } else {
        int sum = 0;
        for (int turn = 0; turn < 9; ++turn) {
            const int s = turn % 3, phase = (kMistake ? turn / 4 : turn / 3) & 1;
            mbar_wait(&full[s], phase);
            sum += ring[s][31 - lane];
            mbar_arrive(&empty[s]);
        }
        out[lane] = sum;
    }
}

TWINS
