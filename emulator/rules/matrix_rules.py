"""Rules of the matrix instructions of a warp and of a warpgroup."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault

MATRIX: Mapping[str, Rule] = {
    "partial-warp": fault(
        "9.7.14, Warp Level Matrix Multiply-Accumulate; 9.7.15, wgmma",
        "A part of a warp executes a matrix instruction, which needs all 32 lanes.",
        "Move it out of the divergent code, or make its condition the same in all lanes of a warp.",
    ),
    "scale-selector": fault(
        "9.7.14.3, Block Scaling for mma.sync",
        "The byte or the threads that hold the scales of a block-scaled mma are none of those that the ISA allows, or "
        "differ between lanes: undefined behaviour.",
        "Use the same constants in all lanes: byte 0 to 3, 0 or 2, or 0, for one, two or four scales a row; thread 0 "
        "or 1 for A, 0 to 3 for B.",
    ),
    "wgmma-partial-warpgroup": fault(
        "9.7.15.1, Warpgroup",
        "wgmma in a warp whose warpgroup has fewer than four warps.",
        "Launch a multiple of 128 threads.",
    ),
    "wgmma-divergent": fault(
        "9.7.15.5.2, wgmma.mma_async",
        "The warps of a warpgroup execute different wgmma instructions.",
        "Branch by warpgroup, so that its four warps execute the same ones in the same order.",
    ),
    "wgmma-sync-divergent": Rule(
        "9.7.15.7, wgmma.fence, wgmma.commit_group, wgmma.wait_group",
        "The warps of a warpgroup execute different wgmma.fence, commit_group, wait_group or mma_async instructions: "
        ".aligned asks for the same one in all four, even where another would do the same.",
        "Branch on what is the same in the whole warpgroup: a vote of each warp is not.",
    ),
    "wgmma-nonuniform": fault(
        "9.7.15.5.2, wgmma.mma_async",
        "A descriptor or scale-d differs between the lanes of a warp, or between the warps of a warpgroup.",
        "Compute it from values that are the same in the whole warpgroup.",
    ),
    "wgmma-missing-fence": Rule(
        "9.7.15.7.1, wgmma.fence",
        "Another instruction accessed an accumulator, or a register of A, with no wgmma.fence between that and the "
        "wgmma.",
        "wgmma.fence before the first wgmma, and again after its registers were accessed; a chain of wgmmas with one "
        "accumulator shape needs none in between.",
    ),
    "wgmma-register-in-flight": Rule(
        "9.7.15.7.3, wgmma.wait_group",
        "A register is accessed while a wgmma may still use it.",
        "wgmma.commit_group after the wgmma, and a wgmma.wait_group that covers it before the access.",
    ),
}
