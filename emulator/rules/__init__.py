"""Every rule that the machine reports: what it means and what to do. The one source of docs/hazards.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`section` of the PTX ISA 9.1. `lenient`: reported under that profile too. `ends`: the launch."""

    section: str
    meaning: str
    remedy: str
    severity: Severity = "error"
    lenient: bool = True
    ends: bool = False


def _fault(section: str, meaning: str, remedy: str) -> Rule:
    return Rule(section, meaning, remedy, ends=True)


_MEMORY: dict[str, Rule] = {
    "race": Rule(
        "8, Memory Consistency Model",
        "Two accesses to the same bytes, one of them a write, by two warps (or a warp and an agent) with nothing that "
        "orders one before the other.",
        "Put a bar.sync, or an arrive and a wait on an mbarrier, between them; relaxed ones order nothing.",
    ),
    "missing-proxy-fence": Rule(
        "8.6, Proxies; 9.7.13.4, membar and fence",
        "The async proxy (an MMA, a bulk copy) reads what was written through the generic proxy, with no proxy fence "
        "for that memory between the write and the synchronisation that orders them.",
        "fence.proxy.async after the writes, by the threads that wrote, before they arrive.",
    ),
    "bulk-copy-in-flight": Rule(
        "9.7.9.25, Data Movement: Asynchronous copy",
        "Memory is accessed while a bulk copy may still write it.",
        "Wait for the mbarrier phase that the copy completes, in the warp that makes the access or one it has "
        "synchronised with.",
    ),
    "overwrite-under-mma": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Shared memory is written while an MMA may still read it as an operand.",
        "tcgen05.commit to an mbarrier after the MMA, and wait for that phase before the memory is used again.",
    ),
    "mma-missing-fence-after": Rule(
        "9.7.16.6.2, tcgen05.fence",
        "An MMA relies on what its issuer has learned by a wait or a barrier, with no tcgen05.fence::after_thread_sync "
        "in between: the MMA may be issued ahead of the wait.",
        "tcgen05.fence::after_thread_sync after the wait.",
        lenient=False,
    ),
    "uninitialised-shared": Rule(
        "5.1.7, Shared State Space",
        "Shared memory is read that nothing has written since the CTA started.",
        "Write it first; when another warp does, synchronise with that warp.",
    ),
    "uninitialised-register": Rule(
        "5.1.1, Register State Space",
        "An instruction reads a register or a guard predicate that has no value yet in these lanes.",
        "Give it a value on every path; look for a path that skips the definition.",
    ),
    "misaligned": _fault(
        "6.4.1, Addresses as Operands",
        "An address is no multiple of what the instruction needs: the size of the whole access, 8 bytes for an "
        "mbarrier, 64 for a tensor map, 128 for a bulk tensor copy's shared memory.",
        "Align the array, or the offset into it.",
    ),
    "shared-out-of-bounds": _fault(
        "5.1.7, Shared State Space",
        "An access outside the CTA's shared memory, static and dynamic, or in a CTA that the cluster does not have.",
        "Compare the offset with the launch's dynamic shared memory; the first kilobyte belongs to the system.",
    ),
    "global-out-of-bounds": _fault(
        "5.1.4, Global State Space",
        "An access that no allocation holds. The message names the allocation that lies nearest.",
        "Check the bound that should have kept this lane away, and the address arithmetic.",
    ),
    "param-out-of-bounds": _fault(
        "5.1.6, Parameter State Space", "An access behind the kernel's parameters.", "Compare with the .entry's list."
    ),
    "param-store": _fault(
        "5.1.6.1, Kernel Function Parameters", "A store to a kernel parameter, which is read-only.", "Store elsewhere."
    ),
    "local-out-of-bounds": _fault(
        "5.1.5, Local State Space", "An access outside the thread's local memory.", "Check the index into the array."
    ),
    "address-space": _fault(
        "9.7.9.20, cvta", "cvta.to of an address that is not in that space.", "Convert to the space of the variable."
    ),
}

_BARRIERS: dict[str, Rule] = {
    "barrier-index": _fault("9.7.13.1, bar, barrier", "A CTA has the barriers 0 to 15.", "Use one of them."),
    "barrier-count": _fault(
        "9.7.13.1, bar, barrier",
        "The number of threads at a barrier is no positive multiple of the warp size.",
        "Count whole warps.",
    ),
    "barrier-count-mismatch": Rule(
        "9.7.13.1, bar, barrier",
        "Warps that meet at one barrier give different numbers of threads.",
        "Give all of them the same number, or the roles different barriers.",
    ),
    "nonconvergent-aligned": _fault(
        "9.7.13.1, bar, barrier; every .aligned instruction",
        "An .aligned instruction is executed by a part of a warp.",
        "Move it out of the divergent code, or make its condition the same in all lanes of a warp.",
    ),
    "shfl-inactive-lane": Rule(
        "9.7.9.6, shfl.sync",
        "A lane reads from a lane that does not take part: the value is undefined.",
        "Name all lanes that are read in the member mask, and have them execute the instruction.",
    ),
    "mbarrier-uninitialised": _fault(
        "9.7.13.15.9, mbarrier.init",
        "An operation, or the completion of an asynchronous one, on memory that is no mbarrier (any more).",
        "mbarrier.init first; mbarrier.inval only once nothing completes on it.",
    ),
    "mbarrier-count": _fault(
        "9.7.13.15.9, mbarrier.init", "The count is not in 1..2^20-1.", "Count the arrivals of a phase."
    ),
    "mbarrier-reinitialised": _fault(
        "9.7.13.15.9, mbarrier.init",
        "mbarrier.init over a live mbarrier.",
        "mbarrier.inval in between; or two initialisations have the same address by mistake.",
    ),
    "mbarrier-race": Rule(
        "9.7.13.15.9, mbarrier.init",
        "An mbarrier is used by a warp that has not synchronised with the one that initialised it.",
        "bar.sync between initialisation and first use.",
    ),
    "mbarrier-missing-fence": Rule(
        "9.7.13.4, fence.mbarrier_init",
        "An asynchronous operation completes on an mbarrier whose initialisation was never made visible to its proxy.",
        "fence.mbarrier_init.release.cluster or fence.proxy.async after the initialisation, before the bar.sync.",
        lenient=False,
    ),
    "mbarrier-over-arrival": _fault(
        "9.7.13.15.13, mbarrier.arrive",
        "More arrivals at once than the phase still expects.",
        "Make the count of mbarrier.init the number of arrivals of one phase.",
    ),
    "mbarrier-split-arrival": Rule(
        "9.7.13.15.13, mbarrier.arrive",
        "Lanes of one arrive belong to two phases: the count is less than the number of threads that arrive, and "
        "phases complete early by a thread more each time.",
        "Make the count of mbarrier.init the number of arrivals of one phase, or elect one lane to arrive.",
    ),
    "mbarrier-phase-aliasing": Rule(
        "9.7.13.15.16, mbarrier.test_wait, mbarrier.try_wait",
        "A wait by parity comes when the phase it means is two or more behind: one bit cannot tell it from a later "
        "one, and the wait blocks, or is answered by the wrong phase.",
        "Let the barrier complete no other phase before every waiter has passed: have the waiters arrive on a second "
        "mbarrier that the producer waits for, or have them wait for every phase.",
    ),
    "mbarrier-early-completion": Rule(
        "9.7.13.15.5.1, expect-tx operation",
        "A phase completes with bulk copies issued for it still in flight: fewer bytes were expected than come.",
        "expect_tx the bytes of every copy; a box counts in full, also where it lies outside the tensor.",
    ),
    "mbarrier-inval-in-flight": Rule(
        "9.7.13.15.10, mbarrier.inval",
        "mbarrier.inval while bulk copies will still complete on the mbarrier.",
        "Wait for their phase first.",
    ),
    "mbarrier-tx-range": _fault(
        "9.7.13.15.5, tx-count", "The tx-count leaves -(2^20-1)..2^20-1.", "Look for a wrong count; split the phase."
    ),
}

_TENSOR: dict[str, Rule] = {
    "uninitialised-tmem": Rule(
        "9.7.16.1, Tensor Memory",
        "Tensor memory is read that nothing has written since it was allocated.",
        "Let the first MMA overwrite (enable-input-d false), or store first.",
    ),
    "tmem-missing-wait-ld": Rule(
        "9.7.16.8, tcgen05.wait",
        "Tensor memory is overwritten while a tcgen05.ld of it may not be complete.",
        "tcgen05.wait::ld in the loading warp before it arrives or meets the others.",
    ),
    "tmem-missing-wait-st": Rule(
        "9.7.16.8, tcgen05.wait",
        "Tensor memory is accessed while a tcgen05.st to it may not be complete.",
        "tcgen05.wait::st in the storing warp before it arrives or meets the others.",
        lenient=False,
    ),
    "tmem-missing-fence-before": Rule(
        "9.7.16.6.2, tcgen05.fence",
        "A barrier orders two threads but not their tcgen05 operations: the first thread did not fence before it.",
        "tcgen05.fence::before_thread_sync before the arrival. tcgen05.commit implies it.",
        lenient=False,
    ),
    "tmem-missing-fence-after": Rule(
        "9.7.16.6.2, tcgen05.fence",
        "A barrier orders two threads but not their tcgen05 operations: the second thread did not fence after it.",
        "tcgen05.fence::after_thread_sync after the wait, before the tcgen05 operation.",
        lenient=False,
    ),
    "tmem-access-under-mma": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Tensor memory is accessed while an MMA may still write it.",
        "tcgen05.commit after the MMA, wait for the mbarrier, tcgen05.fence::after_thread_sync, then the access.",
    ),
    "tmem-overwrite-under-mma": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Tensor memory is overwritten while an MMA may still read it as operand A or accumulator.",
        "tcgen05.commit after the MMA, wait for the mbarrier, tcgen05.fence::after_thread_sync, then the store.",
    ),
    "tmem-race": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Two threads access the same tensor memory with nothing that orders them.",
        "Fence, arrive, wait, fence between them.",
    ),
    "tmem-lane-quarter": Rule(
        "9.7.16.8.1, Access restrictions",
        "tcgen05.ld or tcgen05.st with a lane outside the quarter of 32 lanes that belongs to the warp.",
        "Add (warp % 4) << 21 to the address.",
        lenient=False,
    ),
    "tmem-address": _fault(
        "9.7.16.1.1, Tensor Memory Addressing",
        "A tensor-memory address that the instruction does not take: one that differs between lanes, or an MMA operand "
        "that does not start at its first lane.",
        "Compute the address from values that are the same in all lanes.",
    ),
    "tmem-unallocated": _fault(
        "9.7.16.1, Tensor Memory",
        "Columns are accessed that are not allocated: never, no longer, or behind the allocation.",
        "Compare the column map with the argument of tcgen05.alloc; deallocate last.",
    ),
    "tmem-alloc-size": _fault(
        "9.7.16.7.1, tcgen05.alloc", "The number of columns is no power of two of 32..512.", "Round up."
    ),
    "tmem-alloc-blocked": _fault(
        "9.7.16.7.1, tcgen05.alloc",
        "The allocation waits for columns that the same CTA holds.",
        "Allocate once, or deallocate first.",
    ),
    "tmem-alloc-relinquished": _fault(
        "9.7.16.7.1, tcgen05.relinquish_alloc_permit",
        "tcgen05.alloc after the CTA gave up the right to allocate.",
        "Relinquish after the last allocation.",
    ),
    "tmem-dealloc": _fault(
        "9.7.16.7.1, tcgen05.dealloc",
        "The columns are no whole allocation of this CTA; freed twice, for instance.",
        "Give back what tcgen05.alloc wrote, with the same number of columns, once.",
    ),
    "tmem-leak": Rule(
        "9.7.16.7.1, tcgen05.dealloc",
        "Tensor memory is still allocated when the CTA exits.",
        "tcgen05.dealloc on every path to the exit.",
    ),
    "matrix-descriptor": _fault(
        "9.7.16.4.1, Shared memory descriptor",
        "A shared-memory matrix descriptor with fields that have no meaning, or one that is not modelled.",
        "The message names the field; build descriptors in one place.",
    ),
    "instruction-descriptor": _fault(
        "9.7.16.4.2, Instruction descriptor",
        "An instruction descriptor with a shape, type or field that the instruction does not take, or that is not "
        "modelled.",
        "The message names the field.",
    ),
    "mma-issued-by-many": _fault(
        "9.7.16.10.9, tcgen05.mma",
        "Several lanes execute tcgen05.mma; each would issue the whole operation.",
        "Elect one lane: elect.sync.",
    ),
    "tensor-map": _fault(
        "5.5, Tensors",
        "The address holds no tensor map, or one that the copy cannot use.",
        "Pass the map as const __grid_constant__, and its rank as the copy's.",
    ),
}

_LAUNCH: dict[str, Rule] = {
    "deadlock": _fault(
        "9.7.13.15, mbarrier",
        "No warp can go on and nothing asynchronous is pending. The report has a line for each waiting warp.",
        "Look for the arrival, or the bytes, that the barrier with pending ones is short of.",
    ),
    "livelock": _fault(
        "9.7.13.15.16, mbarrier.test_wait",
        "For millions of instructions warps only polled: nothing arrived, completed or exited.",
        "As for a deadlock.",
    ),
    "instruction-limit": _fault(
        "-",
        "The launch executed more instructions than allowed.",
        "Look for a loop without an end, or raise the limit.",
    ),
    "exit-with-work-in-flight": Rule(
        "9.7.9.25, Data Movement: Asynchronous copy",
        "A CTA exits before its asynchronous operations are complete: they would write memory, or arrive on mbarriers, "
        "that may belong to another CTA by then.",
        "Wait for every operation, or do not issue an arrival that nobody waits for.",
        lenient=False,
    ),
    "trap": _fault("9.7.19.6, trap", "The kernel executed trap.", "Find the assertion that failed."),
    "internal": _fault("-", "The machine itself is at fault.", "Report it with the PTX."),
}

GROUPS: Mapping[str, Mapping[str, Rule]] = {
    "Memory": _MEMORY,
    "Barriers and warps": _BARRIERS,
    "Tensor memory and tensor core": _TENSOR,
    "The launch as a whole": _LAUNCH,
}
RULES: Mapping[str, Rule] = {name: rule for group in GROUPS.values() for name, rule in group.items()}
