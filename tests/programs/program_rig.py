"""How programs are built by nvcc, and what a run of one leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.compiled import ROOT, nvcc

PTX_OF = "-gencode=arch=compute_{0},code=compute_{0}"


def built(folder: Path, source: Path, *flags: str) -> Path:
    """The program that nvcc makes of a source, with its lines where that is in the checkout; libcudart is shared unless
    the flags say otherwise."""
    runtime = () if any(flag.startswith("-cudart") for flag in flags) else ("-cudart", "shared")
    lines = ["-lineinfo"] if source.is_relative_to(ROOT) else []
    return nvcc(folder / source.stem, source, "-std=c++17", *lines, *runtime, *flags)


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of `fmha emulate --` has left: its exit code, what the program and the last lines of the report said
    on standard output, and what was said on standard error."""

    code: int
    out: list[str]
    err: str


Emulate = Callable[..., Told]
