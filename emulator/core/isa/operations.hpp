// The table of the machine's operations, which Python reads as well. A row has:
//
// - the name: that of the PTX ISA's instruction, or what an instruction's forms have in common;
// - its class, for the counters and the timing model. by_space is that of the state space, by_binder that of the
//   arithmetic binder that has taken it, which types and rounding decide;
// - who binds it: bind_NAME of isa/handlers.hpp;
// - the syntax of the instructions that are this operation and no more, as decode/table.py reads it: they are decoded
//   by it. Other rows have none: a function of decode/ emits their records.
//
// A row's number is its place, which no program sees.
#pragma once

// clang-format off
#define PTXM_OPS(X)                                                                      \
    /* Moves, and arithmetic of integers */                                           \
    X(mov, integer, integer)                                                             \
    X(pack, integer, arithmetic)                                                         \
    X(unpack, integer, arithmetic)                                                       \
    X(add, by_binder, arithmetic)                                                        \
    X(sub, by_binder, arithmetic)                                                        \
    X(mul_lo, integer, integer, "mul.lo{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")         \
    X(mul_hi, integer, integer, "mul.hi{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")         \
    X(mul_wide, integer, integer)                                                        \
    X(mad_lo, integer, integer, "mad.lo{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b, c")      \
    X(mad_hi, integer, integer, "mad.hi{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b, c; mad.hi.sat.s32 d, a, b, c") \
    X(mad_wide, integer, integer)                                                        \
    X(div, integer, integer, "div{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")               \
    X(rem, integer, integer, "rem{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")               \
    X(min, by_binder, arithmetic)                                                        \
    X(max, by_binder, arithmetic)                                                        \
    X(abs, by_binder, arithmetic, "abs{.s16|.s32|.s64|.f64} d, a; abs[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(neg, by_binder, arithmetic, "neg{.s16|.s32|.s64|.f64} d, a; neg[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(and_, integer, integer, "and{.pred|.b16|.b32|.b64} d, a, b")                       \
    X(or_, integer, integer, "or{.pred|.b16|.b32|.b64} d, a, b")                         \
    X(xor_, integer, integer, "xor{.pred|.b16|.b32|.b64} d, a, b")                       \
    X(not_, integer, integer, "not{.pred|.b16|.b32|.b64} d, a")                          \
    X(lop3, integer, bits, "lop3.b32 d, a, b, c, #table")                                \
    X(shl, integer, integer, "shl{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64} d, a, b:u32") \
    X(shr, integer, integer, "shr{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64} d, a, b:u32") \
    X(shf_l, integer, bits, "shf.l{.clamp|.wrap}.b32 d, a, b, c")                        \
    X(shf_r, integer, bits, "shf.r{.clamp|.wrap}.b32 d, a, b, c")                        \
    X(bfe, integer, bits, "bfe{.u32|.s32|.u64|.s64} d, a, b:u32, c:u32")                 \
    X(bfi, integer, arithmetic, "bfi{.b32|.b64} d, a, b, c:u32, length:u32")             \
    X(prmt, integer, arithmetic, "prmt.b32[.f4e|.b4e|.rc8|.ecl|.ecr|.rc16] d, a, b, c")  \
    X(popc, integer, integer, "popc{.b32|.b64} d:u32, a")                                \
    X(clz, integer, integer, "clz{.b32|.b64} d:u32, a")                                  \
    X(brev, integer, arithmetic, "brev{.b32|.b64} d, a")                                 \
    /* Comparison and selection */                                                       \
    X(setp, by_binder, arithmetic)                                                       \
    X(selp, integer, integer)                                                            \
    /* Floating point, with what rounding and type make of it */                         \
    X(fma, floating, arithmetic)                                                         \
    X(mul, floating, arithmetic)                                                         \
    X(ex2, transcendental, approximate, "ex2.approx[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(lg2, transcendental, approximate, "lg2.approx[.ftz].f32 d, a")                     \
    X(rcp, by_binder, arithmetic)                                                        \
    X(rsqrt, by_binder, arithmetic)                                                      \
    X(sqrt, by_binder, arithmetic)                                                       \
    X(div_f, by_binder, arithmetic)                                                      \
    /* Conversion */                                                                     \
    X(cvt, conversion, convert)                                                          \
    X(cvt_pack, conversion, convert_packed)                                              \
    /* Control */                                                                        \
    X(bra, control, control)                                                             \
    X(ret, control, control, "ret[.uni=]; exit[.uni=]")                                  \
    X(trap, control, control, "trap")                                                    \
    X(nop, control, control)                                                             \
    /* Memory */                                                                         \
    X(ld, by_space, memory)                                                              \
    X(st, by_space, memory)                                                              \
    X(cvta, integer, state_space)                                                        \
    X(cvta_to, integer, state_space)                                                     \
    /* Within a warp */                                                                  \
    X(clock, control, control)                                                           \
    X(elect, exchange, control, "elect.sync d:b32|p:pred, members:b32")                  \
    X(shfl, exchange, control)                                                           \
    X(vote, exchange, control)                                                           \
    X(activemask, exchange, control, "activemask.b32 d")                                 \
    /* Barriers and fences */                                                            \
    X(bar, barrier, named_barrier)                                                       \
    X(bar_warp, barrier, barrier, "bar.warp.sync members:b32")                           \
    X(fence_proxy_async, barrier, barrier)                                               \
    X(fence_mbarrier_init, barrier, cluster, "fence.mbarrier_init.release=.cluster")      \
    X(fence, barrier, barrier)                                                           \
    X(mbar_init, barrier, mbarrier, "mbarrier.init[.shared=|.shared::cta=].b64 [a:shared], count:u32") \
    X(mbar_inval, barrier, mbarrier, "mbarrier.inval[.shared=|.shared::cta=].b64 [a:shared]") \
    X(mbar_arrive, barrier, mbarrier)                                                    \
    X(mbar_expect_tx, barrier, mbarrier,                                                 \
      "mbarrier.expect_tx[.relaxed=][.cta=|.cluster=][.shared=|.shared::cta=|.shared::cluster=].b64 [a:shared], bytes:u32") \
    X(mbar_wait, barrier, mbarrier)                                                      \
    /* Tensor copies, tensor memory and tcgen05 */                                       \
    X(tma_load, copy, tma)                                                               \
    X(tmem_alloc, tensor_memory, tmem_alloc,                                             \
      "tcgen05.alloc{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned.b32 [a:generic], columns:u32; " \
      "tcgen05.alloc{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned.shared::cta.b32 [a:shared], columns:u32") \
    X(tmem_dealloc, tensor_memory, tmem_alloc,                                           \
      "tcgen05.dealloc{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned.b32 a, columns:u32") \
    X(tmem_relinquish, tensor_memory, tmem_alloc,                                        \
      "tcgen05.relinquish_alloc_permit{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned") \
    X(tmem_ld, tensor_memory, tmem)                                                      \
    X(tmem_st, tensor_memory, tmem)                                                      \
    X(tmem_wait_ld, tensor_memory, tmem, "tcgen05.wait::ld.sync.aligned")                \
    X(tmem_wait_st, tensor_memory, tmem, "tcgen05.wait::st.sync.aligned")                \
    X(tc_mma, matrix, tensor)                                                            \
    X(tc_commit, barrier, tensor_sync)                                                   \
    X(tc_fence_before, barrier, tensor_sync, "tcgen05.fence::before_thread_sync")        \
    X(tc_fence_after, barrier, tensor_sync, "tcgen05.fence::after_thread_sync")          \
    X(tc_cp, matrix, tensor_copy)                                                        \
    X(tc_shift, matrix, tensor_copy)                                                     \
    /* Scalar instructions of fewer programs */                                          \
    X(copysign, floating, float, "copysign{.f32|.f64} d, a, b")                          \
    X(testp, floating, float, "testp{.finite|.infinite|.number|.notanumber|.normal|.subnormal}{.f32|.f64} d:pred, a") \
    X(fns, integer, extra_integer, "fns.b32 d, mask, base, offset")                      \
    X(bmsk, integer, extra_integer, "bmsk{.clamp|.wrap}.b32 d, a, b")                    \
    X(szext, integer, extra_integer, "szext{.clamp|.wrap}{.u32|.s32} d, a, b:u32")       \
    X(sad, integer, extra_integer, "sad{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b, c")      \
    X(mul24_lo, integer, extra_integer, "mul24.lo{.u32|.s32} d, a, b")                   \
    X(mul24_hi, integer, extra_integer, "mul24.hi{.u32|.s32} d, a, b")                   \
    X(mad24_lo, integer, extra_integer, "mad24.lo{.u32|.s32} d, a, b, c")                \
    X(mad24_hi, integer, extra_integer, "mad24.hi{.u32|.s32} d, a, b, c; mad24.hi.sat.s32 d, a, b, c") \
    X(carry_add, integer, extra_integer)                                                 \
    X(carry_sub, integer, extra_integer)                                                 \
    X(carry_mad_lo, integer, extra_integer)                                              \
    X(carry_mad_hi, integer, extra_integer)                                              \
    X(dp4a, integer, extra_integer, "dp4a{.u32|.s32}{.u32|.s32} d:b32, a:b32, b:b32, c:b32") \
    X(dp2a, integer, extra_integer, "dp2a{.lo|.hi}{.u32|.s32}{.u32|.s32} d:b32, a:b32, b:b32, c:b32") \
    X(bfind, integer, extra_integer, "bfind[.shiftamt]{.u32|.s32|.u64|.s64} d:u32, a")   \
    X(slct, integer, extra_integer,                                                      \
      "slct{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64|.f32|.f64}.s32 d, a, b, c:s32; " \
      "slct[.ftz]{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64|.f32|.f64}.f32 d, a, b, c:f32") \
    X(set, floating, arithmetic)                                                         \
    X(tanh, transcendental, approximate, "tanh.approx[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(sin, transcendental, approximate, "sin.approx[.ftz].f32 d, a")                     \
    X(cos, transcendental, approximate, "cos.approx[.ftz].f32 d, a")                     \
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
    X(device_runtime, control, device_runtime)                                           \
    X(redux, exchange, warp)                                                             \
    X(match_any, exchange, warp, "match.any.sync{.b32|.b64} d:b32, a, members:b32")      \
    X(match_all, exchange, warp, "match.all.sync{.b32|.b64} d:b32|p:pred, a, members:b32") \
    X(isspacep, integer, state_space)                                                    \
    X(cache_policy, control, cache_policy)                                               \
    X(frame_push, control, frames)                                                       \
    X(frame_pop, control, frames)                                                        \
    X(local_copy, control, frames)                                                       \
    /* Clusters, bulk copies and launch control */                                       \
    X(mapa, integer, cluster)                                                            \
    X(getctarank, integer, cluster)                                                      \
    X(cluster_arrive, barrier, cluster, "barrier.cluster.arrive[.release=|.relaxed=cluster_relaxed][.aligned]") \
    X(cluster_wait, barrier, cluster, "barrier.cluster.wait[.acquire=][.aligned]")       \
    X(mbar_complete_tx, barrier, mbarrier,                                               \
      "mbarrier.complete_tx[.relaxed=][.cta=|.cluster=][.shared=|.shared::cta=|.shared::cluster=].b64 [a:shared], bytes:u32") \
    X(mbar_pending, barrier, mbarrier, "mbarrier.pending_count.b64 d:b32, state")        \
    X(bar_red, barrier, named_barrier)                                                   \
    X(bulk_load, copy, bulk)                                                             \
    X(bulk_send, copy, bulk)                                                             \
    X(store_async, copy, async_store)                                                    \
    X(store_bulk, shared_memory, fill)                                                   \
    X(bulk_store, copy, bulk)                                                            \
    X(bulk_prefetch, copy, bulk)                                                         \
    X(bulk_commit, copy, bulk_group, "cp.async.bulk.commit_group")                       \
    X(bulk_wait, copy, bulk_group, "cp.async.bulk.wait_group[.read=bulk_read] #groups")  \
    X(tma_store, copy, tma_store)                                                        \
    X(tma_prefetch, copy, tma)                                                           \
    X(tensormap_replace, copy, tensormap)                                                \
    X(tensormap_fence, copy, tensormap)                                                  \
    X(tensormap_copy, copy, tensormap)                                                   \
    X(setmaxnreg, control, launch_control)                                               \
    X(clc_try_cancel, control, launch_control)                                           \
    X(clc_canceled, control, launch_control)                                             \
    X(clc_ctaid, control, launch_control)                                                \
    X(grid_trigger, control, launch_control, "griddepcontrol.launch_dependents")         \
    X(grid_wait, control, launch_control, "griddepcontrol.wait")                         \
    /* Textures and surfaces */                                                          \
    X(tex, global_memory, texture)                                                       \
    X(image_query, global_memory, texture)                                               \
    X(suld, global_memory, surface)                                                      \
    X(sust, global_memory, surface)                                                      \
    /* Warp- and warpgroup-level matrix instructions and non-bulk asynchronous copies */ \
    X(ldmatrix, shared_memory, matrix_move)                                              \
    X(stmatrix, shared_memory, matrix_move)                                              \
    X(movmatrix, exchange, matrix_move)                                                  \
    X(mma_sync, matrix, warp_mma)                                                        \
    X(cp_async, copy, cp_async)                                                          \
    X(cp_async_commit, copy, cp_async, "cp.async.commit_group")                          \
    X(cp_async_wait, copy, cp_async, "cp.async.wait_group #groups; cp.async.wait_all=copy_all") \
    X(cp_async_mbar, copy, cp_async,                                                     \
      "cp.async.mbarrier.arrive[.noinc=copy_noinc][.shared=|.shared::cta=].b64 [a:shared]") \
    X(wgmma, matrix, wgmma)                                                              \
    X(wgmma_fence, matrix, wgmma)                                                        \
    X(wgmma_commit, matrix, wgmma)                                                       \
    X(wgmma_wait, matrix, wgmma)
// clang-format on
