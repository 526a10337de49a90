// The consumer waits for one slot and reads the next.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full[2], empty[2];
    __shared__ int ring[2][32];
    const int t = threadIdx.x, lane = t % 32;
    if (t == 0)
        for (int s = 0; s < 2; ++s) {
            mbar_init(&full[s], 32);
            mbar_init(&empty[s], 32);
        }
    __syncthreads();

    if (t < 32) {
        for (int turn = 0; turn < 6; ++turn) {
            const int s = turn % 2, phase = turn / 2 & 1;
            mbar_wait(&empty[s], phase ^ 1);
            ring[s][lane] = in[32 * turn + lane];
            mbar_arrive(&full[s]);
        }
    } else {
        int sum = 0;
        for (int turn = 0; turn < 6; ++turn) {
            const int s = turn % 2, phase = turn / 2 & 1;
            mbar_wait(&full[s], phase);
            sum += ring[kMistake && turn == 3 ? s ^ 1 : s][31 - lane];
            mbar_arrive(&empty[s]);
        }
        out[lane] = sum;
    }
}

TWINS
