// The thread that has issued the product gives its slot back itself, and does not leave that to the commit.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ u64 full, empty;
    const Tensor x = begin();
    if (x.first) {
        mbar_init(&full, 1);
        mbar_init(&empty, 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 32) {
        for (int turn = 0; turn < 3; ++turn) {
            if (turn > 0) mbar_wait(&empty, (turn - 1) & 1);
            mbar_expect(&full, 4096);
            bulk_load(x.tile, in, 4096, &full);
        }
    } else if (x.first) {
        for (int turn = 0; turn < 3; ++turn) {
            mbar_wait(&full, turn & 1);
            tc_after();
            x.multiply(0, turn > 0);
            if (kMistake)
                mbar_arrive(&empty);
            else
                tc_commit(&empty);
        }
        mbar_wait(&empty, 0);
        tc_commit(x.bar);
    }
    __syncwarp();
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
