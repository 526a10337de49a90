"""Rules of a launch as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault, when

LAUNCH: Mapping[str, Rule] = {
    "deadlock": fault(
        "9.7.13.15, mbarrier",
        "No warp can go on and nothing asynchronous is pending. The report has a line for each waiting warp.",
        'Go by the likely cause where one is given, under "why it hangs". Otherwise look for the arrival, or the '
        "bytes, that the barrier with pending ones is short of.",
        when(
            r"registers a thread: the CTA's pool has",
            "setmaxnreg.inc waits for registers: have other warpgroups give back as many first (setmaxnreg.dec), or "
            "ask for less. All warps together have 64 K registers; a CTA starts with its kernel's number a thread.",
        ),
        when(
            r"barrier \d+: \d+ of \d+ threads",
            "Give bar.sync (a named barrier) the number of threads that come, and have all of them name the same one.",
        ),
        when(
            r"tensor memory that other CTAs hold",
            "CTAs hold columns and wait for more, or for CTAs that find none: allocate all columns at once, and give "
            "them back before waiting for another CTA; or launch no more CTAs than the columns are enough for.",
        ),
        (
            r"tensor memory that is still allocated|peer CTA's tcgen05",
            "Deallocate columns before more are allocated; with cta_group::2 one warp of each CTA has to come.",
        ),
        when(
            r"an \.aligned or \.sync instruction is not reached",
            "Have all lanes that the mask names, or of an .aligned instruction the whole warp, execute it: move it out "
            "of the branch.",
        ),
    ),
    "livelock": fault(
        "9.7.13.15.16, mbarrier.test_wait",
        "For millions of instructions warps only polled: nothing arrived, completed or exited.",
        "Look for who should change what is polled: a store that is missing, that another CTA makes which has not "
        "started (more CTAs than are resident), or that waits itself.",
        when(
            r"tensor memory that other CTAs hold",
            "CTAs hold columns and wait for CTAs that find none: give columns back before waiting for another CTA, or "
            "launch no more CTAs than the columns are enough for.",
        ),
    ),
    "instruction-limit": fault(
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
        instead=(
            when(
                r"bulk stores that may still read",
                "cp.async.bulk.wait_group 0 (or wait_group.read 0) behind the last store, by the thread that issued "
                "it, before it exits.",
            ),
            when(
                r"see mbarrier-early-completion",
                "Make the edit that mbarrier-early-completion asks for, which cures both, and add no wait.",
            ),
        ),
    ),
    "device-launch": Rule(
        "-",
        "A launch from the device failed: the kernel does not run. The message has the error that cudaGetLastError "
        "gives to the thread.",
        "Look at the launch's dimensions, its stream, and its shared memory: beyond 48 KiB the host has to permit it, "
        "by cudaFuncAttributeMaxDynamicSharedMemorySize.",
        severity="warning",
    ),
    "device-runtime": fault(
        "-", "A kernel asks the device runtime for what is not modelled.", "The message names it: leave it out."
    ),
    "trap": fault(
        "9.7.19.4, trap",
        "The kernel executed trap.",
        "Find the assertion that failed.",
        when(
            r"grid\.sync\(\)",
            "Launch with cudaLaunchCooperativeKernel, or with cudaLaunchAttributeCooperative set to 1: <<<>>> gives a "
            "grid nothing to meet at.",
        ),
    ),
    "internal": fault("-", "The machine itself is at fault.", "Report it with the PTX."),
    "assert": fault("9.7.12.5, call", "A device-side assert failed. The message has its place.", "Read the assertion."),
    "printf": Rule(
        "9.7.12.5, call",
        "The kernel printed this; each further line of the same place is one of the details.",
        "Nothing, or remove the printf.",
        severity="warning",
    ),
    "printf-format": fault(
        "9.7.12.5, call", "printf with a conversion that is not known.", "Use the conversions of CUDA's printf."
    ),
}
