// Bulk and tensor copies.
#include "copy.cuh"

// at: offset of the box in shared memory; expected: bytes of the box; bytes: shared memory looked at.
#define LOAD(N)                                                                                                        \
    extern "C" __global__ void load_##N##d(const __grid_constant__ Map map, Coordinates x, unsigned at, unsigned expected, \
                                           unsigned bytes, unsigned char* out) {                                       \
        __shared__ uint64_t barrier;                                                                                   \
        begin(&barrier, bytes);                                                                                        \
        if (threadIdx.x == 0) {                                                                                        \
            expect(&barrier, expected);                                                                                \
            asm volatile("cp.async.bulk.tensor." #N "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, " \
                         COORDINATES_##N "], [%7];" ::"r"(shared_address(region + at)), "l"(&map), "r"(x.c[0]),        \
                         "r"(x.c[1]), "r"(x.c[2]), "r"(x.c[3]), "r"(x.c[4]), "r"(shared_address(&barrier)) : "memory"); \
        }                                                                                                              \
        finish(&barrier, bytes, out);                                                                                  \
    }
LOAD(1)
LOAD(2)
LOAD(3)
LOAD(4)
LOAD(5)

#define STORE(N) STORE_KERNEL(store_##N##d, "cp.async.bulk.tensor." #N "d.global.shared::cta.tile.bulk_group", N)
STORE(1)
STORE(2)
STORE(3)
STORE(4)
STORE(5)
#define REDUCE(OP) \
    STORE_KERNEL(reduce_##OP##_2d, "cp.reduce.async.bulk.tensor.2d.global.shared::cta." #OP ".tile.bulk_group", 2)
REDUCE(add)
REDUCE(min)
REDUCE(max)
REDUCE(inc)
REDUCE(dec)
REDUCE(and)
REDUCE(or)
REDUCE(xor)

extern "C" __global__ void bulk_load(const unsigned char* in, unsigned at, unsigned expected, unsigned bytes,
                                     unsigned char* out) {
    __shared__ uint64_t barrier;
    begin(&barrier, bytes);
    if (threadIdx.x == 0) {
        expect(&barrier, expected);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(region + at)),
                     "l"(in), "r"(expected), "r"(shared_address(&barrier))
                     : "memory");
    }
    finish(&barrier, bytes, out);
}

#define BULK_STORE(NAME, INSTRUCTION)                                                                                  \
    extern "C" __global__ void NAME(unsigned char* out, unsigned at, unsigned size, unsigned bytes,                     \
                                    const unsigned char* in) {                                                         \
        for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) region[i] = in[i];                                  \
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                   \
        __syncthreads();                                                                                               \
        if (threadIdx.x == 0) {                                                                                        \
            asm volatile(INSTRUCTION " [%1], [%0], %2;" ::"r"(shared_address(region + at)), "l"(out + at), "r"(size)   \
                         : "memory");                                                                                  \
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");                                                  \
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");                                                  \
        }                                                                                                              \
    }
BULK_STORE(bulk_store, "cp.async.bulk.global.shared::cta.bulk_group")
BULK_STORE(bulk_add_u32, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32")
BULK_STORE(bulk_add_f32, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32")
BULK_STORE(bulk_add_f16, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16")
BULK_STORE(bulk_add_bf16, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16")
BULK_STORE(bulk_min_s32, "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32")
