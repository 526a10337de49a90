// A vote in a loop that lanes leave at different turns, under the mask of those that entered.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    int turns = 0;
    const int mine = in[t] & 3;
    for (int k = 0; k < 4; ++k) {
        const bool goes_on = k < mine;
        if (kMistake) {
            if (!goes_on) break;
            turns += __any_sync(0xffffffffu, goes_on);
        } else {
            turns += __any_sync(0xffffffffu, goes_on) && goes_on;
        }
    }
    out[t] = turns;
}

TWINS
