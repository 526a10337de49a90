"""CUDA that tests compile for themselves, once for a checkout: what nvcc has made is taken again as long as it would
read the same.

Kernels of the project are built by the harness (builds.py). These are files of tests, by a command of their own. What
they include of the system and of the toolkit is as good as the compilers, which are known by their files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fmha.harness.worker.compilers.build_inputs import listed
from fmha.harness.worker.compilers.nvcc import find_nvcc

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "test-kernels" / "compiled"
_READ = "read.json"


def nvcc(out: Path, source: Path, *arguments: str, kept: Path = KEPT) -> Path:
    """`out`, which nvcc makes of `source` with these arguments, further sources among them. A source outside of the
    checkout must not be compiled with line numbers, which are of files that are gone when it is taken again.

    :raises AssertionError: With the compiler's words.
    """
    assert source.is_relative_to(ROOT) or "-lineinfo" not in arguments
    words = [word.replace(str(out.parent), "OUT").replace(str(ROOT), "ROOT") for word in arguments]
    asked = json.dumps([_label(source, out), out.name, *words, _compilers()])
    entry = kept / f"{out.stem}-{hashlib.sha256(asked.encode()).hexdigest()[:20]}"
    with contextlib.suppress(OSError, ValueError):
        read: dict[str, str] = json.loads((entry / _READ).read_text(encoding="utf-8"))
        if all(_digest(_placed(label, out)) == digest for label, digest in read.items()):
            shutil.copy(entry / out.name, out)
            return out
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "read.d"
        command: list[str | Path] = [find_nvcc().path, *arguments, "-MD", "-MF", listing, "-o", out, source]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout
        found = {Path(path) for path in listed(listing.read_text(encoding="utf-8", errors="surrogateescape"))}
    system = (Path("/usr"), find_nvcc().path.resolve().parents[1])
    own = {source, *(Path(word) for word in arguments if word.endswith(".cu"))}
    own |= {path for path in found if not any(map(path.resolve().is_relative_to, system))}
    _keep(out, {_label(path, out): _digest(path) for path in own}, entry)
    return out


def _keep(out: Path, read: dict[str, str], entry: Path) -> None:
    """In place of what an earlier state of the sources has left. A checkout that cannot be written keeps nothing."""
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=entry.parent) as place:
            made = Path(place) / "made"
            made.mkdir()
            shutil.copy(out, made / out.name)
            (made / _READ).write_text(json.dumps(read), encoding="utf-8")
            shutil.rmtree(entry, ignore_errors=True)
            made.rename(entry)


def _label(path: Path, out: Path) -> str:
    """Which file it is, for every checkout and every run."""
    if path.is_relative_to(out.parent):
        return f"OUT/{path.relative_to(out.parent)}"
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _placed(label: str, out: Path) -> Path:
    return out.parent / label.removeprefix("OUT/") if label.startswith("OUT/") else ROOT / label


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _compilers() -> list[Any]:
    """Which they are, and what is said to them besides."""
    host = shutil.which("g++")
    programs = [path.resolve() for path in (find_nvcc().path, *([Path(host)] if host else []))]
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in programs]
    return [facts, sorted((name, value) for name, value in os.environ.items() if name.startswith("NVCC_"))]
