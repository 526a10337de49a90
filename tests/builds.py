"""Our kernels as the harness builds them: each by the first test that asks for it, for all workers of a run.

A checkout keeps them from one run to the next, in its build folder: an entry is named by all that decides its content,
and is whole or none (fmha.harness.worker.compilers.cache). Whoever has not changed a kernel compiles none again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from fmha.harness.contract.protocol import BuildResult
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.compilers.build import build_variants

_NAMED = {variant.name: variant for variant in VARIANTS}


class Builds(Mapping[str, BuildResult]):
    """By the variant's name. Who asks for all of them compiles all of them, which takes minutes. `kept` is where those
    of an earlier run are, and where these will be."""

    def __init__(self, repository: Path, folder: Path, kept: Path) -> None:
        self._repository = repository
        self._folder = folder
        self._kept = kept
        self._made: dict[str, BuildResult] = {}

    def __getitem__(self, name: str) -> BuildResult:
        if name not in self._made:
            variant = _NAMED[name]
            self._folder.mkdir(exist_ok=True)
            with (self._folder.parent / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                (result,) = build_variants(self._repository, [variant], self._folder, 300.0, 1, lambda line: None)
                assert not result.error, result.error
                keep(Path(result.ptx).parent, name, self._kept)
            self._made[name] = result
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMED)

    def __len__(self) -> int:
        return len(_NAMED)


def bring(kept: Path, folder: Path) -> None:
    """Puts what an earlier run has kept where this one builds: once, whichever worker comes first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "kept.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists() and kept.is_dir():
            shutil.copytree(kept, folder, ignore=shutil.ignore_patterns(".*"))


def keep(entry: Path, variant: str, kept: Path) -> None:
    """Keeps an entry of the build cache, the only one of its variant. A checkout that cannot be written keeps none."""
    if (kept / entry.name).exists():
        return
    with contextlib.suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=kept) as place:
            shutil.copytree(entry, Path(place) / entry.name)
            for other in kept.glob(f"{variant}-*"):
                shutil.rmtree(other, ignore_errors=True)
            os.rename(Path(place) / entry.name, kept / entry.name)


class Artifacts(Mapping[str, Path]):
    """The PTX of each."""

    def __init__(self, builds: Builds) -> None:
        self._builds = builds

    def __getitem__(self, name: str) -> Path:
        return Path(self._builds[name].ptx)

    def __iter__(self) -> Iterator[str]:
        return iter(self._builds)

    def __len__(self) -> int:
        return len(self._builds)
