"""The kernels of another commit, by its own word, to be timed beside ours: asked for in the sandbox, and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fmha.harness.contract.codec import CodecError, decode, encode
from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side.params import LAYOUT
from fmha.harness.worker.compilers.enclosed import outside, refused
from fmha.harness.worker.planner.process import ANSWER_SECONDS, MOST_BYTES, KernelSideError, check, enclosed
from fmha.harness.worker.processes.groups import describe_exit, last_words, run_group


class OfferError(Exception):
    """The commit's kernels cannot be launched from here; the message says why."""


def offered(tree: Path) -> tuple[Variant, ...]:
    """The variants of the commit that `tree` is a checkout of. Raises OfferError."""
    try:
        command, environment = enclosed(tree, "fmha.harness.kernel_side.offer", "offer.py")
    except KernelSideError as error:
        raise OfferError(str(error)) from error
    done = run_group(command, cwd=tree / "harness", env=environment, limit_seconds=ANSWER_SECONDS)
    if done.returncode or done.timed_out or len(done.output) > MOST_BYTES:
        words = last_words(done.output.encode()) or describe_exit(done.returncode)
        raise OfferError(f"its harness does not say how its kernels are launched: {words}")
    try:
        offer: dict[str, Any] = json.loads(done.output.strip().rpartition("\n")[2])
        layout, variants = offer["layout"], tuple(decode(Variant, item, "variant") for item in offer["variants"])
        for variant in variants:
            check(variant, variant.arch)
    except (CodecError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OfferError(f"what its harness says of its kernels cannot be used: {error}") from error
    if layout != encode(LAYOUT):
        raise OfferError("its kernels take another parameter struct")
    for variant in variants:
        for folder, path in outside(tree, variant.flags).items():
            raise OfferError(refused(folder, path))
    return variants
