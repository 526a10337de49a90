"""Rules of warps: convergence, branches, calls, registers."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault

WARPS: Mapping[str, Rule] = {
    "nonconvergent-aligned": fault(
        "9.7.13.1, bar, barrier; every .aligned instruction",
        "An .aligned instruction is executed by a part of a warp.",
        "Move it out of the divergent code, or make its condition the same in all lanes of a warp.",
    ),
    "membermask": fault(
        "9.7.13, the .sync instructions; 9.7.9.6, shfl.sync",
        "A lane executes a .sync instruction with a member mask that does not name it.",
        "Give every lane the mask of all that execute the instruction.",
    ),
    "membermask-absent": Rule(
        "9.7.13, the .sync instructions; 9.7.9.6, shfl.sync",
        "Lanes wait at a .sync instruction for a lane that their member mask names, and that lane has gone on without "
        "executing it under the same mask.",
        "Name the lanes that execute the instruction: __ballot_sync of the condition, before the branch. Or move the "
        "instruction out of the branch.",
        lenient=False,
    ),
    "lane-alone": Rule(
        "8.8, Release and Acquire Patterns; 8.9.5, Causality order",
        "A part of a warp fences, arrives or waits, and memory that other lanes of the warp have written or go on to "
        "read is taken to be ordered by it: a lane's fence, release and acquire are its own.",
        "__syncwarp() before the lane that arrives or releases, and after the lane that waits; a proxy fence in every "
        "lane that has written, before that.",
        lenient=False,
    ),
    "shfl-inactive-lane": Rule(
        "9.7.9.6, shfl.sync",
        "A lane reads from a lane that does not take part: the value is undefined.",
        "Give the shuffle a width (its last argument) that keeps every lane within those of the mask: 16 where 16 "
        "neighbours exchange values. Or name all lanes that are read in the mask, and have them execute it.",
        lenient=False,
    ),
    "branch-index": fault(
        "9.7.12.4, brx.idx", "The index is not below the number of targets.", "Test the index before the branch."
    ),
    "indirect-call": fault(
        "9.7.12.5, call",
        "A call through an address that is that of no function with the prototype.",
        "Look for where the address comes from; it may be uninitialised.",
    ),
    "setmaxnreg": fault(
        "9.7.19.5, setmaxnreg",
        "setmaxnreg.dec to more registers than the warp has.",
        "Decrease to at most the kernel's number of registers a thread; .inc goes up.",
    ),
    "setmaxnreg-divergent": Rule(
        "9.7.19.5, setmaxnreg",
        "The warps of a warpgroup execute different setmaxnreg instructions.",
        "Branch by warpgroup, so that its four warps execute the same ones in the same order.",
    ),
}
