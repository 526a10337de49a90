"""Rules of memory and of the copies that fill it."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault, when

WAITS_FOR_TOO_FEW = when(
    r"there is a wait for all but the last",
    "Lower the number of the wait_group: it may be at most the number of groups that are committed behind the one that "
    "is needed, and 0 waits for all.",
)

MEMORY: Mapping[str, Rule] = {
    "race": Rule(
        "8.7.1, Conflict and Data-races",
        "Two accesses to the same bytes, one of them a write, by two warps (or a warp and an agent) with nothing that "
        "orders one before the other. Leniently, a plain load that comes second is reported where its value reaches "
        "memory, an address, another warp or a guard.",
        "Put a bar.sync (__syncthreads), or an arrive and a wait on an mbarrier, between them; relaxed ones order "
        "nothing.",
        instead=(
            when(
                r"wait with an old token",
                "Correct the wait with the old token first, and add no barrier for it. Only where the race is still "
                "there then, put a bar.sync, or an arrive and a wait on an mbarrier, between the two.",
            ),
            when(
                r"mbarrier-phase-aliasing",
                "Do what mbarrier-phase-aliasing says first, and add no barrier before that. Only where the race is "
                "still there then, put a bar.sync, or an arrive and a wait on an mbarrier, between the two.",
            ),
            when(
                r"the \.cta scope of one",
                "Give both the scope .gpu: ld.acquire.gpu and st.release.gpu, atomicAdd and not atomicAdd_block, "
                "__threadfence() and not __threadfence_block().",
            ),
            when(
                r"another cluster or CTA",
                "Between CTAs: the writer releases (__threadfence(), or st.release and atom.release of .gpu scope) and "
                "then sets a flag, the reader sees the flag and acquires. Where one thread releases for its whole CTA, "
                "a __syncthreads() of all that have written stands before its release. __syncthreads() alone reaches "
                "one CTA; grid.sync() of a cooperative launch, or a second kernel, orders all.",
            ),
        ),
    ),
    "scope-too-narrow": Rule(
        "8.5, Scope; 9.7.13.15.13, mbarrier.arrive; 9.7.13.15.16, mbarrier.test_wait",
        "An access is ordered after that of another CTA by an arrival at an mbarrier, or a wait for it, which is "
        "written with .cta scope: that leaves the other CTA's threads out. An instruction that names no scope is taken "
        "to have the one that it needs.",
        "mbarrier.arrive.release.cluster by the CTA that has accessed the memory, and "
        "mbarrier.try_wait.acquire.cluster by the one that goes on.",
        lenient=False,
    ),
    "non-coherent-load": Rule(
        "9.7.9.9, ld.global.nc; 9.7.10.2, tex; 9.7.11.1, suld",
        "ld.global.nc (__ldg, or a const __restrict__ pointer), a texture or a surface reads what this launch has "
        "written: the non-coherent path may hold what was there before, whatever orders the two.",
        "A plain load; or leave __restrict__ off a pointer to what the kernel writes. Of a surface: another launch.",
    ),
    "image-object": fault(
        "9.7.10, Texture Instructions; 9.7.11, Surface Instructions",
        "What a texture or surface instruction takes for the handle of an object is none, or stands for one of other "
        "dimensions.",
        "Pass the object that was created for this kernel, and destroy it after the launch.",
    ),
    "surface-out-of-bounds": fault(
        "9.7.11, Surface Instructions",
        "A surface is accessed outside by an instruction with .trap, which CUDA's functions have by default.",
        "Compare the coordinates with the surface: x counts bytes. cudaBoundaryModeZero and cudaBoundaryModeClamp "
        "accept others.",
    ),
    "lane-race": Rule(
        "8.7.1, Conflict and Data-races; 9.7.13.2, bar.warp.sync",
        "Two lanes of one warp access the same shared or global memory, one of them writes it, and nothing orders "
        "them: lanes of a warp run independently of one another, and shuffles and votes order no memory.",
        "bar.warp.sync (__syncwarp) between them.",
        lenient=False,
    ),
    "array-out-of-bounds": Rule(
        "5.1.7, Shared State Space",
        "An address that was computed from the name of one array in shared memory lies outside of it, mostly in the "
        "array behind it. Leniently, a plain load is reported where its value is used.",
        "Correct the index, or, if no element is meant there, skip the access.",
    ),
    "launch-race": Rule(
        "9.7.13.16, griddepcontrol",
        "A launch that may begin before the launch before it is complete accesses what that one accesses: it has "
        "executed griddepcontrol.launch_dependents, and only its end makes its results visible.",
        "griddepcontrol.wait (cudaGridDependencySynchronize) before the access, in the thread or in one that a barrier "
        "orders before it.",
        instead=(
            when(
                r"this kernel waits for",
                "griddepcontrol.wait (cudaGridDependencySynchronize) belongs into the kernel in between as well, "
                "whether it uses the memory or not: a wait covers the launch before and what that one has waited for.",
            ),
        ),
    ),
    "grid-race": Rule(
        "-",
        "A grid that a kernel has launched accesses what the launching grid does, with nothing that orders it before "
        "the launch; or what another grid launched from the device does, of another stream. A grid knows what the "
        "thread that launched it had done and knew (CUDA C++ programming guide, CUDA dynamic parallelism).",
        "Put __syncthreads before the launch, launch into cudaStreamTailLaunch, or order the streams by an event.",
    ),
    "stream-race": Rule(
        "-",
        "Two launches, copies or fills in different streams, or two nodes of a graph, access the same bytes, one of "
        "them writes, and neither has to be over before the other begins (CUDA C++ programming guide, asynchronous "
        "concurrent execution). cudaMemcpy and cudaMemset work in the legacy default stream, which does not wait for "
        "streams made with cudaStreamNonBlocking; cudaFreeAsync frees in its stream's order.",
        "cudaEventRecord behind the first and cudaStreamWaitEvent before the second, or both in one stream; in a graph "
        "a dependency.",
        instead=(
            when(
                r"cudaFreeAsync",
                "Free in the stream that uses the memory last, or have the freeing stream wait for an event recorded "
                "behind that use (cudaStreamWaitEvent).",
            ),
        ),
    ),
    "stream-counter": Rule(
        "-",
        "Two launches in different streams count at one place by atomic operations and look at the count, and neither "
        "has to be over before the other begins: each sees the other's arrivals, which matters where a launch takes "
        "the count for its own, as a split-K reduction or a last-block test does. A warning: it is no race of memory, "
        "and an atomic whose result nobody reads looks the same.",
        "A counter for each stream, or each launch; or an event that orders the two. Nothing where both are meant to "
        "share the count, as a queue of work is.",
        severity="warning",
    ),
    "swizzle-base": Rule(
        "5.5.7, Swizzling Modes",
        "A tensor copy puts a swizzled box that holds the pattern whole (8 rows of 128, 64 or 32 bytes) at an address "
        "inside a repetition of it. The swizzle exchanges bits of the shared address: a reader that counts rows from "
        "the box's start looks in other places. Aligned to 128 bytes is enough for the copy, not for that reader.",
        "Align the tile to 1024 bytes for the 128-byte swizzle (512 for 64, 256 for 32): alignas(1024), or round the "
        "dynamic shared memory's start up. Or compute the reader's swizzle from the shared address.",
        severity="warning",
        lenient=False,
    ),
    "missing-proxy-fence": Rule(
        "8.6, Proxies; 9.7.13.4, membar and fence",
        "The async proxy (an MMA, a bulk copy) reads what was written through the generic proxy, with no proxy fence "
        "for that memory between the write and the synchronisation that orders them.",
        "fence.proxy.async after the writes, by the threads that wrote, before they arrive.",
    ),
    "bulk-copy-in-flight": Rule(
        "9.7.9.25, Data Movement: Asynchronous copy",
        "Memory is accessed while a bulk copy may still write it, or written while it is the source of one.",
        "Wait for the mbarrier phase that the copy completes, in the warp that makes the access or one it has "
        "synchronised with.",
    ),
    "overwrite-under-mma": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Shared memory is written while an MMA may still read it as an operand.",
        "tcgen05.commit to an mbarrier after the MMA, and wait for that phase before the memory is used again.",
        instead=(
            when(
                r"wgmma",
                "wgmma.commit_group and a wgmma.wait_group that covers it by the warps that issued the wgmma, and "
                "behind that an arrival (mbarrier or bar) which the warp that overwrites waits for.",
            ),
        ),
    ),
    "mma-missing-fence-after": Rule(
        "9.7.16.11.1, tcgen05.fence",
        "An MMA relies on what its issuer has learned by a wait or a barrier, with no tcgen05.fence::after_thread_sync "
        "in between: the MMA may be issued ahead of the wait.",
        "tcgen05.fence::after_thread_sync after the wait.",
        lenient=False,
    ),
    "uninitialised-shared": Rule(
        "5.1.7, Shared State Space",
        "Shared memory is read that nothing has written since the CTA started. Leniently, a plain load is reported "
        "where its value reaches other memory, an address, another warp or a guard; arithmetic, shuffles and shared "
        "memory pass it on.",
        "Write it first; when another warp does, synchronise with that warp.",
    ),
    "uninitialised-global": Rule(
        "5.1.4, Global State Space",
        "Global memory is read that nobody has written since it was allocated: neither the host nor a kernel. "
        "Leniently, a plain load is reported where its value reaches memory, an address, another warp or a guard, and "
        "copies are not.",
        "Write it first, or have the host set it: cudaMemset, or the emulator's `alloc(..., zeroed=True)`.",
    ),
    "uninitialised-local": Rule(
        "5.1.5, Local State Space",
        "What a thread has loaded from its local memory, and never written there, reaches memory, an address, another "
        "lane or a guard. It may copy such values to local memory and to functions: structs have gaps.",
        "Write every element of the array that is read, on every path.",
    ),
    "uninitialised-register": Rule(
        "5.1.1, Register State Space",
        "A register without a value in these lanes reaches memory, an address, another lane or a guard predicate. "
        "Arithmetic alone passes it on: compilers compute with halves of registers that nobody uses.",
        "Give it a value on every path; look for a path that skips the definition.",
        lenient=False,
    ),
    "use-after-free": fault(
        "-",
        "An access to what a kernel's malloc has returned, after a free of it.",
        "Free it once nobody uses it any more; a barrier before free waits for the other threads.",
    ),
    "heap-free": Rule(
        "-",
        "free in a kernel of an address that malloc has not returned, or twice of the same.",
        "Free what malloc has returned, once; cudaMalloc's memory belongs to cudaFree.",
    ),
    "cache-policy": Rule(
        "9.7.9.18, createpolicy",
        "The operand of .L2::cache_hint is nothing that createpolicy makes: its unused bits are set, or it has no "
        "such kind.",
        "Take it from createpolicy, or from cuda::access_property; look for what has been passed in its place.",
        lenient=False,
    ),
    "misaligned": fault(
        "6.4.1, Addresses as Operands",
        "An address is no multiple of what the instruction needs: the size of the whole access, 16 bytes for a row of "
        "ldmatrix or stmatrix, 8 for an mbarrier, 64 for a tensor map, 128 for a bulk tensor copy's shared memory.",
        "Align the array, or the offset into it.",
    ),
    "shared-out-of-bounds": fault(
        "5.1.7, Shared State Space",
        "An access outside the CTA's shared memory, static and dynamic, or in a CTA that the cluster does not have.",
        "Compare the offset with the launch's dynamic shared memory (shared_bytes); the first kilobyte belongs to the "
        "system.",
        when(
            r"names CTA rank", "Compare the rank that mapa was given with %cluster_nctarank, the CTAs of the cluster."
        ),
    ),
    "global-out-of-bounds": fault(
        "5.1.4, Global State Space",
        "An access that no allocation holds. The message names the allocation before it where that is near, or says in "
        "which other memory's window the address lies.",
        "Check the bound that should have kept this lane away, and the address arithmetic.",
        when(
            r"tensor map of 128 bytes at 0x3",
            "Declare the parameter const __grid_constant__, and give cp.async.bulk.tensor the parameter's own address, "
            "not a local variable's.",
        ),
        when(
            r"that is in the window of",
            "The address is one of another memory than global memory: take the pointer to what lies there.",
        ),
        when(
            r"which the host has freed",
            "Free it when the work that uses it is over: behind cudaStreamSynchronize, or by cudaFreeAsync in the "
            "stream that uses it last. Or the pointer was kept too long.",
        ),
    ),
    "param-out-of-bounds": fault(
        "5.1.6, Parameter State Space", "An access behind the kernel's parameters.", "Compare with the .entry's list."
    ),
    "param-store": fault(
        "5.1.6.1, Kernel Function Parameters", "A store to a kernel parameter, which is read-only.", "Store elsewhere."
    ),
    "local-out-of-bounds": fault(
        "5.1.5, Local State Space", "An access outside the thread's local memory.", "Check the index into the array."
    ),
    "address-space": fault(
        "9.7.9.20, cvta", "cvta.to of an address that is not in that space.", "Convert to the space of the variable."
    ),
    "cp-async-size": fault(
        "9.7.9.25.3.1, cp.async",
        "cp.async with a src-size greater than its cp-size.",
        "Clamp the size; 0 fills the destination with zeros.",
    ),
    "cp-async-in-flight": Rule(
        "9.7.9.25.3, Non-bulk copy",
        "Memory is accessed while a cp.async may still write it, or written while one may still read it.",
        "cp.async.wait_group or cp.async.wait_all in the warp that copies, then a barrier for the other warps; or let "
        "cp.async.mbarrier.arrive arrive on an mbarrier that they wait for.",
        instead=(
            when(
                r"its own warp has waited for it",
                "A barrier (bar.sync, __syncthreads) behind the wait, before other warps make the access.",
            ),
            WAITS_FOR_TOO_FEW,
        ),
    ),
    "bulk-store-in-flight": Rule(
        "9.7.9.25, Data Movement: Asynchronous copy",
        "A bulk store, or bulk reduction, may still read memory that is overwritten, or still write memory that is "
        "accessed.",
        "cp.async.bulk.commit_group and wait_group by the thread that issued it, then a barrier; wait_group.read is "
        "enough before its source is overwritten.",
        instead=(
            when(
                r"its own thread has waited for it",
                "A barrier (bar.sync, __syncthreads) behind the wait, before other warps make the access.",
            ),
            when(
                r"covers the reads of the store's source",
                "cp.async.bulk.wait_group, without .read, before anybody accesses what the store writes.",
            ),
            WAITS_FOR_TOO_FEW,
        ),
    ),
    "bulk-store-repeated": Rule(
        "9.7.9.25.5.2, cp.async.bulk.tensor",
        "Several lanes of a warp issue the same bulk store. Each performs it: the same bytes are written several times "
        "over, in no order.",
        "Let one lane issue it: elect.sync.",
        lenient=False,
    ),
    "bulk-copy-mbarrier": fault(
        "9.7.9.25.5.2, cp.async.bulk.tensor",
        "A bulk copy signals an mbarrier of another CTA than the one it writes to; with .cta_group::2, one outside "
        "that CTA's pair, or a CTA without a peer.",
        "Take destination and mbarrier from the same CTA, or the same pair.",
    ),
    "bulk-copy-ignored": fault(
        "9.7.9.25.4.1, cp.async.bulk",
        "A bulk copy with .ignore_oob leaves out more than 15 bytes at one of its ends.",
        "Begin at the multiple of 16 below the first byte that is wanted, end at the one above the last.",
    ),
    "bulk-reduction": fault(
        "9.7.9.25.4.2, cp.reduce.async.bulk",
        "A bulk reduction of a type, for a tensor that of the map, that the operation does not take.",
        "Compare with the table of types by operation.",
    ),
    "tensor-coordinate": fault(
        "9.7.9.25.5.2, cp.async.bulk.tensor",
        "A tensor copy whose innermost coordinate is no multiple of 16 bytes, or a store at a negative coordinate: an "
        "H200 ends the kernel with an illegal instruction.",
        "Round the innermost coordinate down to a multiple of 16 bytes.",
        when(r"a store ", "Begin the box that is stored inside the tensor: at coordinates of 0 and more."),
        when(r"im2col", "Begin the copy at a pixel inside the bounding box of the map."),
    ),
    "multicast-mask": fault(
        "9.7.9.25.5.2, cp.async.bulk.tensor",
        "A multicast to no CTA, or to one that the cluster does not have.",
        "Set the bits of ranks below the cluster's size, at least one.",
    ),
    "tensor-map-stale": Rule(
        "9.7.13.4, membar and fence",
        "A copy uses a tensor map that was changed in this launch, with no acquire of the tensormap proxy after the "
        "change: it may work with the old map.",
        "tensormap.cp_fenceproxy or fence.proxy.tensormap::generic.release by the writer; "
        "fence.proxy.tensormap::generic.acquire of the map's 128 bytes by the thread that copies.",
    ),
    "tensormap-replace": fault(
        "9.7.9.28, tensormap.replace",
        "tensormap.replace of a dimension that a map does not have, or with a value that its field does not take or "
        "that is not modelled.",
        "The message names the field.",
    ),
}
