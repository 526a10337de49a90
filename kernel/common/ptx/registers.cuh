// Register budgets of warpgroups.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// By every warp of a warpgroup. The kernel's launch bound sets what each thread starts with.
template <int Registers>
__device__ __forceinline__ void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace fmha::ptx
