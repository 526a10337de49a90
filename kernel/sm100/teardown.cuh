// The end of a CTA, the same in every kernel here: tensor memory is given back.
#pragma once

#include "ptx/tcgen05.cuh"

namespace fmha {

// By all threads. The last reads of tensor memory happen before they `meet`, behind which the warp that allocated it,
// the `owner`, has `give_back` do that. The last products are over by then: some warp of the CTA waited for them.
template <class Meet, class Back>
__device__ __forceinline__ void give_tmem_back(bool owner, Meet meet, Back give_back) {
    ptx::tcgen05_fence_before_thread_sync();
    meet();
    if (owner) {
        ptx::tcgen05_fence_after_thread_sync();
        give_back();
    }
}

}  // namespace fmha
