// The operations of the machine: one row each, which the decoder picks by its name and the core binds to a handler.
//
// A row has the name, what the counters call it, and who binds it: bind_NAME of isa/handlers.hpp. A class of by_space
// is that of the state space, by_binder that of the arithmetic binder that has taken it, which types and rounding
// decide. Names are those of the PTX ISA's instructions, or what an instruction's forms have in common. Their numbers
// are the order, which no program sees.
#pragma once

// clang-format off
#define PTXM_OPS(X)                                                                      \
    /* Moves, and arithmetic of integers */                                           \
    X(mov, integer, integer)                                                             \
    X(pack, integer, arithmetic)                                                         \
    X(unpack, integer, arithmetic)                                                       \
    X(add, by_binder, arithmetic)                                                        \
    X(sub, by_binder, arithmetic)                                                        \
    X(mul_lo, integer, integer)                                                          \
    X(mul_hi, integer, integer)                                                          \
    X(mul_wide, integer, integer)                                                        \
    X(mad_lo, integer, integer)                                                          \
    X(mad_hi, integer, integer)                                                          \
    X(mad_wide, integer, integer)                                                        \
    X(div, integer, integer)                                                             \
    X(rem, integer, integer)                                                             \
    X(min, by_binder, arithmetic)                                                        \
    X(max, by_binder, arithmetic)                                                        \
    X(abs, by_binder, arithmetic)                                                        \
    X(neg, by_binder, arithmetic)                                                        \
    X(and_, integer, integer)                                                            \
    X(or_, integer, integer)                                                             \
    X(xor_, integer, integer)                                                            \
    X(not_, integer, integer)                                                            \
    X(lop3, integer, bits)                                                               \
    X(shl, integer, integer)                                                             \
    X(shr, integer, integer)                                                             \
    X(shf_l, integer, bits)                                                              \
    X(shf_r, integer, bits)                                                              \
    X(bfe, integer, bits)                                                                \
    X(bfi, integer, arithmetic)                                                          \
    X(prmt, integer, arithmetic)                                                         \
    X(popc, integer, integer)                                                            \
    X(clz, integer, integer)                                                             \
    X(brev, integer, arithmetic)                                                         \
    /* Comparison and selection */                                                       \
    X(setp, by_binder, arithmetic)                                                       \
    X(selp, integer, integer)                                                            \
    /* Floating point, with what rounding and type make of it */                         \
    X(fma, floating, arithmetic)                                                         \
    X(mul, floating, arithmetic)                                                         \
    X(ex2, transcendental, approximate)                                                  \
    X(lg2, transcendental, approximate)                                                  \
    X(rcp, by_binder, arithmetic)                                                        \
    X(rsqrt, by_binder, arithmetic)                                                      \
    X(sqrt, by_binder, arithmetic)                                                       \
    X(div_f, by_binder, arithmetic)                                                      \
    /* Conversion */                                                                     \
    X(cvt, conversion, convert)                                                          \
    X(cvt_pack, conversion, convert_packed)                                              \
    /* Control */                                                                        \
    X(bra, control, control)                                                             \
    X(ret, control, control)                                                             \
    X(trap, control, control)                                                            \
    X(nop, control, control)                                                             \
    /* Memory */                                                                         \
    X(ld, by_space, memory)                                                              \
    X(st, by_space, memory)                                                              \
    X(cvta, integer, state_space)                                                        \
    X(cvta_to, integer, state_space)                                                     \
    /* Within a warp */                                                                  \
    X(clock, control, control)                                                           \
    X(elect, exchange, control)                                                          \
    X(shfl, exchange, control)                                                           \
    X(vote, exchange, control)                                                           \
    X(activemask, exchange, control)                                                     \
    /* Barriers and fences */                                                            \
    X(bar, barrier, named_barrier)                                                       \
    X(bar_warp, barrier, barrier)                                                        \
    X(fence_proxy_async, barrier, barrier)                                               \
    X(fence_mbarrier_init, barrier, cluster)                                             \
    X(fence, barrier, barrier)                                                           \
    X(mbar_init, barrier, mbarrier)                                                      \
    X(mbar_inval, barrier, mbarrier)                                                     \
    X(mbar_arrive, barrier, mbarrier)                                                    \
    X(mbar_expect_tx, barrier, mbarrier)                                                 \
    X(mbar_wait, barrier, mbarrier)                                                      \
    /* Tensor copies, tensor memory and tcgen05 */                                       \
    X(tma_load, copy, tma)                                                               \
    X(tmem_alloc, tensor_memory, tmem_alloc)                                             \
    X(tmem_dealloc, tensor_memory, tmem_alloc)                                           \
    X(tmem_relinquish, tensor_memory, tmem_alloc)                                        \
    X(tmem_ld, tensor_memory, tmem)                                                      \
    X(tmem_st, tensor_memory, tmem)                                                      \
    X(tmem_wait_ld, tensor_memory, tmem)                                                 \
    X(tmem_wait_st, tensor_memory, tmem)                                                 \
    X(tc_mma, matrix, tensor)                                                            \
    X(tc_commit, barrier, tensor_sync)                                                   \
    X(tc_fence_before, barrier, tensor_sync)                                             \
    X(tc_fence_after, barrier, tensor_sync)                                              \
    X(tc_cp, matrix, tensor_copy)                                                        \
    X(tc_shift, matrix, tensor_copy)                                                     \
    /* Scalar instructions of fewer programs */                                          \
    X(copysign, floating, float)                                                         \
    X(testp, floating, float)                                                            \
    X(fns, integer, extra_integer)                                                       \
    X(bmsk, integer, extra_integer)                                                      \
    X(szext, integer, extra_integer)                                                     \
    X(sad, integer, extra_integer)                                                       \
    X(mul24_lo, integer, extra_integer)                                                  \
    X(mul24_hi, integer, extra_integer)                                                  \
    X(mad24_lo, integer, extra_integer)                                                  \
    X(mad24_hi, integer, extra_integer)                                                  \
    X(carry_add, integer, extra_integer)                                                 \
    X(carry_sub, integer, extra_integer)                                                 \
    X(carry_mad_lo, integer, extra_integer)                                              \
    X(carry_mad_hi, integer, extra_integer)                                              \
    X(dp4a, integer, extra_integer)                                                      \
    X(dp2a, integer, extra_integer)                                                      \
    X(bfind, integer, extra_integer)                                                     \
    X(slct, integer, extra_integer)                                                      \
    X(set, floating, arithmetic)                                                         \
    X(tanh, transcendental, approximate)                                                 \
    X(sin, transcendental, approximate)                                                  \
    X(cos, transcendental, approximate)                                                  \
    X(cvt_int_pack, conversion, convert_packed)                                          \
    X(cvt_stochastic, conversion, stochastic)                                            \
    /* Synchronising memory, and control again */                                        \
    X(ld_sync, by_space, sync)                                                           \
    X(st_sync, by_space, sync)                                                           \
    X(atom, by_space, sync)                                                              \
    X(fence_acq_rel, barrier, sync)                                                      \
    X(brx, control, warp)                                                                \
    X(print, control, system)                                                            \
    X(assert_fail, control, system)                                                      \
    X(heap_malloc, control, heap)                                                        \
    X(heap_free, control, heap)                                                          \
    X(redux, exchange, warp)                                                             \
    X(match_any, exchange, warp)                                                         \
    X(match_all, exchange, warp)                                                         \
    X(isspacep, integer, state_space)                                                    \
    X(cache_policy, control, cache_policy)                                               \
    X(frame_push, control, frames)                                                       \
    X(frame_pop, control, frames)                                                        \
    X(local_copy, control, frames)                                                       \
    /* Clusters, bulk copies and launch control */                                       \
    X(mapa, integer, cluster)                                                            \
    X(getctarank, integer, cluster)                                                      \
    X(cluster_arrive, barrier, cluster)                                                  \
    X(cluster_wait, barrier, cluster)                                                    \
    X(mbar_complete_tx, barrier, mbarrier)                                               \
    X(mbar_pending, barrier, mbarrier)                                                   \
    X(bar_red, barrier, named_barrier)                                                   \
    X(bulk_load, copy, bulk)                                                             \
    X(bulk_send, copy, bulk)                                                             \
    X(store_async, copy, async_store)                                                    \
    X(store_bulk, shared_memory, fill)                                                   \
    X(bulk_store, copy, bulk)                                                            \
    X(bulk_prefetch, copy, bulk)                                                         \
    X(bulk_commit, copy, bulk_group)                                                     \
    X(bulk_wait, copy, bulk_group)                                                       \
    X(tma_store, copy, tma_store)                                                        \
    X(tma_prefetch, copy, tma)                                                           \
    X(tensormap_replace, copy, tensormap)                                                \
    X(tensormap_fence, copy, tensormap)                                                  \
    X(tensormap_copy, copy, tensormap)                                                   \
    X(setmaxnreg, control, launch_control)                                               \
    X(clc_try_cancel, control, launch_control)                                           \
    X(clc_canceled, control, launch_control)                                             \
    X(clc_ctaid, control, launch_control)                                                \
    X(grid_trigger, control, launch_control)                                             \
    X(grid_wait, control, launch_control)                                                \
    /* Warp- and warpgroup-level matrix instructions and non-bulk asynchronous copies */ \
    X(ldmatrix, shared_memory, matrix_move)                                              \
    X(stmatrix, shared_memory, matrix_move)                                              \
    X(movmatrix, exchange, matrix_move)                                                  \
    X(mma_sync, matrix, warp_mma)                                                        \
    X(cp_async, copy, cp_async)                                                          \
    X(cp_async_commit, copy, cp_async)                                                   \
    X(cp_async_wait, copy, cp_async)                                                     \
    X(cp_async_mbar, copy, cp_async)                                                     \
    X(wgmma, matrix, wgmma)                                                              \
    X(wgmma_fence, matrix, wgmma)                                                        \
    X(wgmma_commit, matrix, wgmma)                                                       \
    X(wgmma_wait, matrix, wgmma)
// clang-format on
