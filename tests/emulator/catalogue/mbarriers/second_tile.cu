// The second tile begins at the ring's first slot again, and the phases go on as if nothing had happened.
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
        int s = 0, phase = 0;
        for (int turn = 0; turn < 8; ++turn) {
            if (kMistake && turn == 4) s = 0;
            mbar_wait(&empty[s], phase ^ 1);
            ring[s][lane] = in[32 * turn + lane];
            mbar_arrive(&full[s]);
            if (++s == 3) s = 0, phase ^= 1;
        }
    } else {
        int sum = 0, s = 0, phase = 0;
        for (int turn = 0; turn < 8; ++turn) {
            mbar_wait(&full[s], phase);
            sum += ring[s][31 - lane];
            mbar_arrive(&empty[s]);
            if (++s == 3) s = 0, phase ^= 1;
        }
        out[lane] = sum;
    }
}

TWINS
