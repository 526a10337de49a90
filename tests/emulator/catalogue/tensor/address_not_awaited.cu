// The address of the allocation is read with no barrier behind the allocation.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ u32 slot;
    const int t = threadIdx.x;
    if (t < 32) tc_alloc(&slot, 32);
    tc_before();
    if (!kMistake) __syncthreads();
    tc_after();
    const u32 tm = *(volatile u32*)&slot;
    if (kMistake) __syncthreads();
    tc_store(tm + (t / 32 << 21), t);
    tc_wait_store();
    out[t] = tc_load(tm + (t / 32 << 21));
    tc_wait_load();
    tc_before();
    __syncthreads();
    tc_after();
    if (t < 32) tc_dealloc(tm, 32);
}

TWINS
