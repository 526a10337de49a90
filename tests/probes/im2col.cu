// Tensor copies of pixels. Shared memory is filled with a pattern first and written out whole, as in tma.cu.
#include "copy.cuh"

#define OFFSETS_3 "{%8}"
#define OFFSETS_4 "{%8, %9}"
#define OFFSETS_5 "{%8, %9, %10}"

// x: the coordinates, and the offsets behind them. expected: bytes of the box; bytes: shared memory looked at.
struct Place {
    int c[5];
    uint16_t offsets[3];
};

#define LOAD(N)                                                                                                        \
    extern "C" __global__ void load_##N##d(const __grid_constant__ Map map, Place x, unsigned expected, unsigned bytes, \
                                           unsigned char* out) {                                                       \
        __shared__ uint64_t barrier;                                                                                   \
        begin(&barrier, bytes);                                                                                        \
        if (threadIdx.x == 0) {                                                                                        \
            expect(&barrier, expected);                                                                                \
            asm volatile("cp.async.bulk.tensor." #N "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, " \
                         COORDINATES_##N "], [%7], " OFFSETS_##N ";" ::"r"(shared_address(region)), "l"(&map),         \
                         "r"(x.c[0]), "r"(x.c[1]), "r"(x.c[2]), "r"(x.c[3]), "r"(x.c[4]),                              \
                         "r"(shared_address(&barrier)), "h"(x.offsets[0]), "h"(x.offsets[1]), "h"(x.offsets[2])         \
                         : "memory");                                                                                  \
        }                                                                                                              \
        finish(&barrier, bytes, out);                                                                                  \
    }
LOAD(3)
LOAD(4)
LOAD(5)

#define STORE(N)                                                                                                       \
    STORE_KERNEL(store_##N##d, "cp.async.bulk.tensor." #N "d.global.shared::cta.im2col_no_offs.bulk_group", N)
STORE(3)
STORE(4)
STORE(5)
