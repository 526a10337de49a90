"""How programs are built by nvcc, and what a run of one leaves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PTX_OF = "-gencode=arch=compute_{0},code=compute_{0}"
NVCC = ("nvcc", "-std=c++17", "-lineinfo")


def built(folder: Path, source: Path, *flags: str) -> Path:
    """The program that nvcc makes of a source; libcudart is shared unless the flags say otherwise."""
    made = folder / source.stem
    runtime = () if any(flag.startswith("-cudart") for flag in flags) else ("-cudart", "shared")
    done = subprocess.run([*NVCC, *runtime, *flags, "-o", made, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of `fmha emulate --` has left: its exit code, what the program and the last lines of the report said
    on standard output, and what was said on standard error."""

    code: int
    out: list[str]
    err: str


Emulate = Callable[..., Told]
