"""Init: what a repository needs to have a kernel of its own judged, taken from an example that runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.stages.install_source import place

_EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples"
# Each with the extras of fmha that it takes to run it.
EXAMPLES: Final[Mapping[str, str]] = {
    "rmsnorm": "nvcc",  # a CTA a row, a sum over shared memory
    "gemm": "nvcc",  # tiles on mma.sync
    "triton": "nvcc,triton",  # attention, compiled by Triton
    "cute": "nvcc,cute",  # tiles on mma.sync, compiled by CuTe DSL
}
# Beside the examples what a user has: a problem with its answer, or a kernel.
EXTRAS: Final[Mapping[str, str]] = {**EXAMPLES, "problem": "nvcc,torch", "kernel": "nvcc", "jit": "nvcc,triton"}
ARCHS: Final = ("sm_80", "sm_90a", "sm_100a")
WORKFLOWS: Final[Mapping[str, str]] = {
    "github": ".github/workflows/fmha.yml",
    "gitea": ".gitea/workflows/fmha.yml",
    "none": "",
}
_FROM: Final = '${FMHA:?is not set}"'  # in the workflow: where the job gets fmha from
IGNORED: Final = (".fmha/", "/results/*.json", "/results/.*", "/results/*.html", "/results/modelled/", "__pycache__/")


@dataclass(frozen=True, slots=True)
class InitChoice:
    """By the names of EXAMPLES, ARCHS and WORKFLOWS."""

    example: str = "rmsnorm"
    arch: str = "sm_90a"
    ci: str = "github"


def initialise(root: Path, choice: InitChoice, begun: Mapping[str, str] | None = None) -> list[str]:
    """Writes the files into the repository at `root`, `begun` in place of the example's, and says their names.
    Raises UserError, with nothing written, where one of them is there already; InfrastructureError when one cannot be
    written."""
    files = _files(choice, begun)
    if present := [name for name in files if (root / name).exists()]:
        raise UserError(
            f"{', '.join(present)} is there already", where=str(root), next_step="move it away, or write by hand"
        )
    try:
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return [*files, *([".gitignore"] if _ignore(root / ".gitignore") else [])]
    except OSError as error:
        raise InfrastructureError(f"cannot be written: {error.strerror}", where=str(error.filename)) from error


def _files(choice: InitChoice, begun: Mapping[str, str] | None) -> dict[str, str]:
    home = _EXAMPLES / choice.example
    names = sorted(os.listdir(home)) if begun is None else []
    files = dict(begun or {}) | {name: (home / name).read_text(encoding="utf-8") for name in names if name[0] != "_"}
    files["matrix.yaml"] = files["matrix.yaml"].replace("arch: sm_90a", f"arch: {choice.arch}")
    if workflow := WORKFLOWS[choice.ci]:
        text = (_EXAMPLES / "ci" / "fmha.yml").read_text(encoding="utf-8")
        text = text.replace("--extras nvcc", f"--extras {EXTRAS[choice.example]}")
        if here := place():  # what is installed here can be installed there
            text = re.sub(r"(?m)^ *FMHA: .*\n", "", text).replace('"fmha @', "'fmha @").replace(_FROM, f"{here}'")
        files[workflow] = text
    return files


def _ignore(path: Path) -> bool:
    """Adds the lines that are missing; whether there were any."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    missing = [line for line in IGNORED if line not in text.splitlines()]
    if missing:
        start = text if not text or text.endswith("\n") else f"{text}\n"
        path.write_text(start + "".join(f"{line}\n" for line in missing), encoding="utf-8")
    return bool(missing)
