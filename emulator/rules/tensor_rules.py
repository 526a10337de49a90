"""Rules of tensor memory and of the tensor core."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault, when

COMMIT_OF_ANOTHER = when(
    r"covers the MMAs of its own thread alone",
    "Have the thread that issues the MMA commit as well: the same condition around both.",
)

TENSOR: Mapping[str, Rule] = {
    "uninitialised-tmem": Rule(
        "9.7.16.1, Tensor Memory",
        "Tensor memory is read that nothing has written since it was allocated. The lenient profile reports an MMA "
        "that adds to it, not a tcgen05.ld, whose registers may go unused.",
        "Let the first MMA overwrite (enable-input-d false), or store first.",
    ),
    "tmem-missing-wait-ld": Rule(
        "9.7.16.8.5, tcgen05.wait",
        "Tensor memory is overwritten while a tcgen05.ld of it may not be complete.",
        "tcgen05.wait::ld in the loading warp before it arrives or meets the others.",
    ),
    "tmem-missing-wait-st": Rule(
        "9.7.16.8.5, tcgen05.wait",
        "Tensor memory is accessed while a tcgen05.st to it may not be complete.",
        "tcgen05.wait::st in the storing warp before it arrives or meets the others.",
        lenient=False,
    ),
    "tmem-missing-fence-before": Rule(
        "9.7.16.11.1, tcgen05.fence",
        "A barrier orders two threads but not their tcgen05 operations: the first thread did not fence before it.",
        "tcgen05.fence::before_thread_sync before the arrival. tcgen05.commit implies it.",
        lenient=False,
    ),
    "tmem-missing-fence-after": Rule(
        "9.7.16.11.1, tcgen05.fence",
        "A barrier orders two threads but not their tcgen05 operations: the second thread did not fence after it.",
        "tcgen05.fence::after_thread_sync after the wait, before the tcgen05 operation.",
        lenient=False,
    ),
    "tmem-access-under-mma": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Tensor memory is accessed while an MMA may still write it.",
        "tcgen05.commit after the MMA, by the thread that issued it, wait for the mbarrier, "
        "tcgen05.fence::after_thread_sync, then the access.",
        instead=(COMMIT_OF_ANOTHER,),
    ),
    "tmem-overwrite-under-mma": Rule(
        "9.7.16.6, tcgen05 Memory Consistency Model",
        "Tensor memory is overwritten while an MMA may still read it as operand A or accumulator.",
        "tcgen05.commit after the MMA, by the thread that issued it, wait for the mbarrier, "
        "tcgen05.fence::after_thread_sync, then the store.",
        instead=(COMMIT_OF_ANOTHER,),
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
    "tmem-address": fault(
        "9.7.16.1.1, Tensor Memory Addressing",
        "A tensor-memory address that the instruction does not take: one that differs between lanes, or an MMA operand "
        "that does not start at its first lane.",
        "Compute the address from values that are the same in all lanes.",
    ),
    "tmem-unallocated": fault(
        "9.7.16.1, Tensor Memory",
        "Columns are accessed that have not been allocated: never, or behind the allocation.",
        "Compare the column map with the argument of tcgen05.alloc.",
    ),
    "tmem-deallocated": Rule(
        "9.7.16.7.1, tcgen05.dealloc",
        "Columns are accessed that have been given back. They hold what they held until another CTA of the "
        "multiprocessor allocates them.",
        "Deallocate last: a barrier between the last access and the deallocation.",
    ),
    "tmem-alloc-size": fault(
        "9.7.16.7.1, tcgen05.alloc",
        "The number of columns is no power of two of 32..512.",
        "Round up to a power of two, here and in the tcgen05.dealloc that gives them back.",
    ),
    "tmem-alloc-blocked": fault(
        "9.7.16.7.1, tcgen05.alloc",
        "A pair of CTAs allocates columns that it holds too many of itself. In a single CTA, where another warp may "
        "yet give columns back, the allocation waits, and a deadlock's report says so.",
        "Allocate once, or deallocate first.",
    ),
    "tmem-alloc-relinquished": fault(
        "9.7.16.7.1, tcgen05.relinquish_alloc_permit",
        "tcgen05.alloc after the CTA gave up the right to allocate.",
        "Relinquish after the last allocation.",
    ),
    "tmem-dealloc": fault(
        "9.7.16.7.1, tcgen05.dealloc",
        "The columns are no whole allocation of this CTA; freed twice, for instance.",
        "Give back what tcgen05.alloc wrote, with the same number of columns, once.",
    ),
    "tmem-leak": Rule(
        "9.7.16.7.1, tcgen05.dealloc",
        "Tensor memory is still allocated when the CTA exits.",
        "tcgen05.dealloc on every path to the exit.",
    ),
    "matrix-descriptor": fault(
        "9.7.16.4.1, Shared memory descriptor",
        "A shared-memory matrix descriptor with fields that have no meaning, or one that is not modelled.",
        "Mend the field that the message names, in the one place that builds descriptors.",
        when(
            r"bits 46-48 are",
            "Bits 46-48 must be 0b001 when the MMA gets the descriptor: set them where it is built (| 1ull << 46), and "
            "see that nothing behind that changes them.",
        ),
    ),
    "instruction-descriptor": fault(
        "9.7.16.4.2, Instruction descriptor",
        "An instruction descriptor with a shape, type or field that the instruction does not take, or that is not "
        "modelled.",
        "The message names the field.",
    ),
    "mma-issued-by-many": fault(
        "9.7.16.10.9.1, tcgen05.mma",
        "Several lanes execute tcgen05.mma; each would issue the whole operation.",
        "Elect one lane: elect.sync.",
    ),
    "tensor-map": fault(
        "5.5.8, Tensor-map",
        "The address holds no tensor map, or one that the copy cannot use.",
        "Pass the map as const __grid_constant__, and give the copy the parameter's own address.",
        when(
            r"D copy through a tensor map of rank",
            "Give the copy as many dimensions and coordinates as the map has (.2d and two for a rank of 2), or encode "
            "the map with the rank of the copy.",
        ),
    ),
    "zero-column-mask": fault(
        "9.7.16.4.3, Zero-Column Mask Descriptor",
        "A zero-column mask with reserved bits, a shift that the instruction does not allow, or a start behind its "
        "first span.",
        "The message names the field.",
    ),
    "mma-unordered": Rule(
        "9.7.16.6.2, Pipelined tcgen05 instructions",
        "An MMA uses tensor memory that an earlier MMA of another accumulator, shape or kind uses, as D, A, scales or "
        "sparsity metadata, or a tcgen05.cp writes what an earlier MMA uses: the two are not pipelined.",
        "tcgen05.commit after the first, wait for the mbarrier, tcgen05.fence::after_thread_sync, then the second.",
        lenient=False,
        instead=(
            when(
                r"mma writes D to .* tcgen05\.mma writes D to",
                "Where they are two accumulators, begin the second behind the last column of the first: N columns on "
                "for f32. Where they are one, same address and shape for both, and the second accumulates (predicate "
                "true), or it overwrites the first. Where columns are used again on purpose, tcgen05.commit after the "
                "first, wait for the mbarrier, tcgen05.fence::after_thread_sync, then the second.",
            ),
        ),
    ),
    "tmem-alloc-increase": Rule(
        "9.7.16.7.1, tcgen05.alloc",
        "An allocation of more columns than an earlier one of the same CTA.",
        "Allocate the largest number first.",
        lenient=False,
    ),
}
