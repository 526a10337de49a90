"""Our kernels as the harness builds them: each by the first test that asks for it, for all workers of a run."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from pathlib import Path

from fmha.harness.contract.protocol import BuildResult
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.compilers.build import build_variants

_NAMED = {variant.name: variant for variant in VARIANTS}


class Builds(Mapping[str, BuildResult]):
    """By the variant's name. Who asks for all of them compiles all of them, which takes minutes."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self._repository = repository
        self._folder = folder
        self._made: dict[str, BuildResult] = {}

    def __getitem__(self, name: str) -> BuildResult:
        if name not in self._made:
            variant = _NAMED[name]
            self._folder.mkdir(exist_ok=True)
            with (self._folder.parent / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                (result,) = build_variants(self._repository, [variant], self._folder, 300.0, 1, lambda line: None)
            assert not result.error, result.error
            self._made[name] = result
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMED)

    def __len__(self) -> int:
        return len(_NAMED)


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
