"""Our kernels as the harness builds them: each by the first test that asks for it, for all workers of a run.

A checkout keeps them from one run to the next, in its build folder, and after a run that passed whatever else the tests
have built: an entry is named by all that decides its content, and is whole or none
(fmha.harness.worker.compilers.cache). Whoever has not changed a kernel compiles none again. Tests that are about
building have a cache of their own.
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
from fmha.harness.worker.compilers import cache
from fmha.harness.worker.compilers.build_kernels import build_variants

CACHES = ("builds", "mutants")  # the build caches that the tests of a run share, below its folder
MOST_BYTES = 512 << 20  # that a checkout keeps
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
                keep(Path(result.ptx).parent, self._kept)
            self._made[name] = result
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMED)

    def __len__(self) -> int:
        return len(_NAMED)


def bring(kept: Path, folder: Path) -> None:
    """Puts what an earlier run has kept where this one builds: once, whichever worker comes first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists() and kept.is_dir():
            with contextlib.suppress(shutil.Error):  # another run may take an entry away; half of one is no entry
                shutil.copytree(kept, folder, ignore=shutil.ignore_patterns(".*"))


def keep(entry: Path, kept: Path) -> None:
    """Keeps an entry of a build cache, and when it was used. A checkout that cannot be written keeps none."""
    with contextlib.suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
        if not (kept / entry.name).exists():
            with tempfile.TemporaryDirectory(prefix=".", dir=kept) as place:
                shutil.copytree(entry, Path(place) / entry.name)
                os.rename(Path(place) / entry.name, kept / entry.name)
        used = entry.stat()
        os.utime(kept / entry.name, ns=(used.st_atime_ns, used.st_mtime_ns))


def keep_all(folder: Path, kept: Path, most_bytes: int = MOST_BYTES) -> None:
    """Keeps every entry of a build cache, but in all not more than `most_bytes`: those that were used last."""
    for manifest in folder.glob(f"*-*-*/{cache.MANIFEST}"):
        keep(manifest.parent, kept)
    with contextlib.suppress(OSError):
        cache.trim(kept, most_bytes, 0.0)


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
