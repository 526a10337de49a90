"""Rules of the barriers of a CTA."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault, when

BARRIERS: Mapping[str, Rule] = {
    "barrier-index": fault("9.7.13.1, bar, barrier", "A CTA has the barriers 0 to 15.", "Use one of them."),
    "barrier-count": fault(
        "9.7.13.1, bar, barrier",
        "The number of threads at a barrier is no positive multiple of the warp size.",
        "Count whole warps.",
    ),
    "barrier-count-mismatch": Rule(
        "9.7.13.1, bar, barrier",
        "Warps that meet at one barrier give different numbers of threads.",
        "Give all of them the same number, or the roles different barriers.",
    ),
    "mbarrier-uninitialised": fault(
        "9.7.13.15.9, mbarrier.init",
        "An operation, or the completion of an asynchronous one, on memory that is no mbarrier (any more).",
        "mbarrier.init first; mbarrier.inval only once nothing completes on it.",
    ),
    "mbarrier-count": fault(
        "9.7.13.15.9, mbarrier.init", "The count is not in 1..2^20-1.", "Count the arrivals of a phase."
    ),
    "mbarrier-reinitialised": Rule(
        "9.7.13.15.9, mbarrier.init",
        "mbarrier.init over a live mbarrier.",
        "mbarrier.inval in between; or two initialisations have the same address by mistake.",
        lenient=False,
    ),
    "mbarrier-reinitialised-in-use": fault(
        "9.7.13.15.9, mbarrier.init",
        "mbarrier.init over an mbarrier in the middle of a phase: arrivals or bytes have been counted or are expected.",
        "Let the phase complete, then mbarrier.inval; or two initialisations have the same address by mistake.",
    ),
    "mbarrier-race": Rule(
        "9.7.13.15.9, mbarrier.init",
        "An mbarrier is used by a warp that has not synchronised with the one that initialised it.",
        "bar.sync between initialisation and first use.",
        instead=(
            when(
                r"shared::cluster\.b64 _",
                "The barrier of another CTA: barrier.cluster.arrive and wait (cluster.sync()) between mbarrier.init, "
                "with its fence.mbarrier_init, and the first arrival from outside. __syncthreads is of one CTA.",
            ),
        ),
    ),
    "mbarrier-missing-fence": Rule(
        "9.7.13.4, fence.mbarrier_init",
        "An asynchronous operation completes on an mbarrier whose initialisation was never made visible to its proxy.",
        "fence.mbarrier_init.release.cluster or fence.proxy.async after the initialisation, before the bar.sync.",
        lenient=False,
    ),
    "mbarrier-over-arrival": fault(
        "9.7.13.15.13, mbarrier.arrive",
        "More arrivals at once than the phase still expects.",
        "Make the count of mbarrier.init the number of arrivals of one phase.",
    ),
    "mbarrier-split-arrival": Rule(
        "9.7.13.15.13, mbarrier.arrive",
        "Lanes of one arrive belong to two phases: the count is less than the number of threads that arrive, and "
        "phases complete early by a thread more each time.",
        "Make the count of mbarrier.init the number of arrivals of one phase, or elect one lane to arrive.",
        instead=(
            when(
                r"came from elsewhere before",
                "Remove the arrival that is too many: another one on this mbarrier, mostly in a branch that some turn "
                "takes before this line. Change the count only where every phase has as many arrivals.",
            ),
        ),
    ),
    "mbarrier-phase-aliasing": Rule(
        "9.7.13.15.16, mbarrier.test_wait, mbarrier.try_wait",
        "A wait by parity comes when the phase it means is two or more behind: one bit cannot tell it from a later "
        "one, and the wait blocks, or is answered by the wrong phase.",
        "Let the barrier complete no other phase before every waiter has passed: have the waiters arrive on a second "
        "mbarrier that the producer waits for, or have them wait for every phase.",
        instead=(
            when(
                r"the token that it waits with",
                "Wait with the token that the last arrival has returned: assign it at every arrival, on each path that "
                "leads to the wait.",
            ),
        ),
    ),
    "mbarrier-early-completion": Rule(
        "9.7.13.15.5.1, expect-tx operation",
        "A phase completes with bulk copies issued for it still in flight: fewer bytes were expected than come.",
        "expect_tx the bytes of every copy; a box counts in full, also where it lies outside the tensor.",
        instead=(
            when(
                r"no expect_tx of this phase",
                "mbarrier.arrive.expect_tx, with the bytes of the phase's copies, in the place of the arrival beside "
                "the copy, by the thread that issues it.",
            ),
        ),
    ),
    "mbarrier-inval-uninitialised": Rule(
        "9.7.13.15.10, mbarrier.inval",
        "mbarrier.inval of memory that is no mbarrier: the behaviour is undefined. Here it changes nothing, and the "
        "launch goes on.",
        "mbarrier.inval once, behind the last use of what mbarrier.init has made.",
    ),
    "mbarrier-inval-in-flight": Rule(
        "9.7.13.15.10, mbarrier.inval",
        "mbarrier.inval while bulk copies will still complete on the mbarrier.",
        "Wait for their phase first.",
    ),
    "mbarrier-inval-race": Rule(
        "9.7.13.15.10, mbarrier.inval",
        "mbarrier.inval while another warp may still arrive on the mbarrier or wait for it.",
        "bar.sync, or any other synchronisation with the warps that use it, before mbarrier.inval.",
    ),
    "mbarrier-accessed": Rule(
        "9.7.13.15.10, mbarrier.inval",
        "A load, a store, a copy or the tensor core accesses the memory of a live mbarrier. It lives from "
        "mbarrier.init to mbarrier.inval, or to the end of its CTA.",
        "mbarrier.inval before the memory serves another purpose; or two arrays overlap by mistake.",
    ),
    "mbarrier-tx-range": fault(
        "9.7.13.15.5, tx-count", "The tx-count leaves -(2^20-1)..2^20-1.", "Look for a wrong count; split the phase."
    ),
    "barrier-operands": fault(
        "9.7.13.1, bar, barrier",
        "The lanes of a warp name different barriers, or give different numbers of threads.",
        "Compute both from values that are the same in all lanes of a warp.",
    ),
    "barrier-over-arrival": Rule(
        "9.7.13.1, bar, barrier",
        "Threads arrive at a barrier a second time before it has completed: bar.arrive twice, or too high a count. The "
        "lenient profile accepts a warp that arrives for others and then waits itself.",
        "Wait between two arrivals, or take turns at two barriers.",
    ),
    "barrier-exited-threads": Rule(
        "9.7.13.1, bar, barrier",
        "A barrier of the whole CTA completes although threads have exited that never came to it.",
        "Let every thread of the CTA reach the barrier, or give it the number of threads that do.",
        lenient=False,
    ),
    "barrier-mixed-reduction": Rule(
        "9.7.13.1, bar, barrier",
        "Warps meet at one barrier with different operations: .red of two kinds, or .red and .sync.",
        "Use one operation, or different barriers.",
    ),
    "mbarrier-no-complete": fault(
        "9.7.13.15.13, mbarrier.arrive",
        "Arrivals with .noComplete that complete the phase.",
        "Leave out .noComplete where the arrival may be the last one.",
    ),
}
