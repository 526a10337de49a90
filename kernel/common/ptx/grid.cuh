// Ordering between grids of which one may start while the one before it runs.
#pragma once

namespace fmha::ptx {

// Lets the grid behind this one start launching; it still waits for this one's writes.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// The grid before this one, if this was launched to overlap it, has finished and its writes are visible.
__device__ __forceinline__ void wait_for_primary() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace fmha::ptx
