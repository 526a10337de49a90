"""Kernels of a tree of sources as PTX, each compiled once and kept by the content of what it is made of."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmha.harness.contract.protocol import BuildResult, Variant
from fmha.harness.kernel_side.recipe import flags
from fmha.harness.worker.compilers import cache
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.compilers.sources import hash_sources

BUILD_SECONDS: Final = 300.0
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_PLACE = re.compile(r"(?:\.loc\s+|inlined_at\s+)(\d+)\s+(\d+)")
_DEBUG = re.compile(r"^\s*(\.loc|\.file)\b.*$|//.*$", re.MULTILINE)

# What the kernels of an architecture are made of: a change of the other one's says nothing of them.
SOURCES: Final = {
    "sm_100a": ("kernel/common", "kernel/include", "kernel/sm100"),
    "sm_90a": ("kernel/common", "kernel/include", "kernel/sm90"),
}


class BuildFailedError(Exception):
    """nvcc refuses a variant; its first words about it."""


@dataclass(frozen=True, slots=True)
class BuiltMutant:
    """A variant's PTX, the files under `kernel` that nvcc read for it, and the seconds that it took."""

    ptx: Path
    reads: frozenset[str]
    seconds: float

    def result(self, variant: Variant) -> BuildResult:
        """As the harness has it; no cubin, since the emulator is the judge."""
        return BuildResult(variant, str(self.ptx), "", None, "", "", (), 0.0, cached=False)


def compile_ptx(root: Path, variant: Variant, target: Path) -> frozenset[str]:
    """Makes the PTX of the sources under `root`, as the harness makes it; the files under `kernel` that nvcc read.
    BuildFailedError."""
    listed = target.with_suffix(".d")
    made = ("-ptx", "-o", str(target), "-MD", "-MF", str(listed))
    command = [str(find_nvcc().path), *flags(variant), *made, variant.source]
    try:
        ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise BuildFailedError("nvcc does not end") from None
    if "nvcc fatal" in ran.stderr:
        raise RuntimeError(f"{variant.name}: {ran.stderr.strip()}")  # of the command, not of the sources
    if ran.returncode != 0:
        lines = ran.stderr.splitlines()
        said = [line for line in lines if "error" in line] or lines or ["nvcc fails"]
        raise BuildFailedError(said[0])
    names = listed.read_text(encoding="utf-8").replace("\\\n", " ").split()
    listed.unlink()
    return frozenset(name.partition("kernel/")[2] for name in names if name.startswith(("kernel/", f"{root}/kernel/")))


def built(kept: Path, root: Path, variant: Variant) -> BuiltMutant:
    """That of the sources under `root`, from the folder `kept` where it was built before. BuildFailedError."""
    facts = (variant.name, find_nvcc().version, *flags(variant), hash_sources(root, SOURCES[variant.arch]))
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    entry, file = kept / cache.name_of(variant.name, key, key), f"{variant.name}.ptx"
    manifest = cache.lookup(entry, key)
    if manifest is None:
        with cache.workspace(kept) as folder:
            (folder / "kept").mkdir()
            start = time.monotonic()
            reads = compile_ptx(root, variant, folder / "kept" / file)
            said = {"reads": sorted(reads), "seconds": time.monotonic() - start}
            manifest = cache.publish(folder / "kept", entry, key, said)
    return BuiltMutant(entry / file, frozenset(manifest["reads"]), manifest["seconds"])


def build_all(kept: Path, root: Path, variants: Iterable[Variant], jobs: int) -> None:
    """Those of `variants` that `kept` lacks, side by side: cases that begin together would each compile all of them.
    BuildFailedError."""
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(functools.partial(built, kept, root), variants))


def code(ptx: Path) -> str:
    """PTX without comments, places and debug sections: what of it is executed."""
    return re.sub(r"\s+", " ", _DEBUG.sub("", ptx.read_text(encoding="utf-8").partition("\t.section")[0]))


@functools.lru_cache(maxsize=128)
def lines_of(ptx: Path) -> dict[str, frozenset[int]]:
    """The lines, by file under `kernel`, that something in the code was compiled from."""
    text = ptx.read_text(encoding="utf-8")
    files = {number: name.rpartition("kernel/")[2] for number, name in _FILE.findall(text) if "kernel/" in name}
    found: dict[str, set[int]] = {}
    for number, line in _PLACE.findall(text):
        if number in files:
            found.setdefault(files[number], set()).add(int(line))
    return {file: frozenset(lines) for file, lines in found.items()}
