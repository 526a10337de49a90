"""Rules of a launch as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault

LAUNCH: Mapping[str, Rule] = {
    "deadlock": fault(
        "9.7.13.15, mbarrier",
        "No warp can go on and nothing asynchronous is pending. The report has a line for each waiting warp.",
        "Look for the arrival, or the bytes, that the barrier with pending ones is short of.",
    ),
    "livelock": fault(
        "9.7.13.15.16, mbarrier.test_wait",
        "For millions of instructions warps only polled: nothing arrived, completed or exited.",
        "As for a deadlock.",
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
    "trap": fault("9.7.19.4, trap", "The kernel executed trap.", "Find the assertion that failed."),
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
