"""What a shell may offer for the value of an option or an argument: suites, hosts, runs, configurations, kinds.

Each is given what has been typed so far and returns what begins with it. Nothing is asked of a host. Where there is no
checkout, or its matrix.yaml is wrong, there is nothing to offer: completing is not the place to say so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmha.harness.archive.index import Index
    from fmha.harness.config.matrix_model import Matrix

Complete = Callable[[str], list[str]]


def _offered(names: Callable[[], Iterable[str]]) -> Complete:
    """Of what `names` returns, what begins with the text. With commas in the text, what may follow the last one."""

    def complete(incomplete: str) -> list[str]:
        from fmha.harness.errors import FmhaError

        before, comma, last = incomplete.rpartition(",")
        with contextlib.suppress(FmhaError, OSError):
            return [before + comma + name for name in dict.fromkeys(names()) if name.startswith(last)]
        return []

    complete.__doc__ = names.__doc__  # no more of it: Typer looks at what parameters it has
    return complete


def _matrix() -> Matrix:
    from fmha.harness.config import load
    from fmha.harness.stages.preflight import project_of

    return load(project_of(Path.cwd()))


def _index() -> contextlib.AbstractContextManager[Index]:
    from fmha.harness.archive.index import Index
    from fmha.harness.stages.preflight import home_of

    return Index(home_of(Path.cwd()) / "results")


@_offered
def suites() -> Iterable[str]:
    """Those of matrix.yaml, and `all`."""
    return (*_matrix().suite_names, "all")


@_offered
def hosts() -> Iterable[str]:
    """Those of matrix.yaml and of one's own file."""
    return _matrix().hosts


@_offered
def filters() -> Iterable[str]:
    """The keys that a filter may have here; of kernels with an adapter none, for no program is run to complete."""
    kernels = (kernel for kernel in _matrix().kernels.values() if not kernel.where)
    return dict.fromkeys(f"{key}=" for kernel in kernels for key in kernel.keys)


@_offered
def kernels() -> Iterable[str]:
    """Those of matrix.yaml, and what is called in place of ours."""
    return _matrix().kernels


@_offered
def configurations() -> Iterable[str]:
    """All of the suites of matrix.yaml that are written down. Where there is an adapter, which would have to be run to
    know them, those of the archive."""
    matrix = _matrix()
    if not matrix.places:
        return (item.id for suite in matrix.suites.values() for item in suite)
    with _index() as index:
        return index.configurations()


def launches(incomplete: str) -> list[str]:
    """Configurations, and the files that a launch may be named by: PTX, scripts and programs; folders on the way."""
    folder, slash, last = incomplete.rpartition("/")
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder or slash or ".").iterdir()):
            named = path.suffix in (".ptx", ".cubin", ".py") or (path.is_file() and os.access(path, os.X_OK))
            if path.name.startswith(last) and not path.name.startswith(".") and (named or path.is_dir()):
                found.append(f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}")
    return [*configurations(incomplete), *found]


@_offered
def archived() -> Iterable[str]:
    """The configurations that the archive has numbers of."""
    with _index() as index:
        return index.configurations()


@_offered
def records() -> Iterable[str]:
    """The runs of the archive, the newest first, and the baselines."""
    from fmha.harness.archive.folder import BASELINES

    with _index() as index:
        runs = [row.name.split(".json")[0] for row in index.runs()]
        folder = index.folder
    return ("latest", *(f"baseline:{path.stem}" for path in sorted((folder / BASELINES).glob("*.json"))), *runs)


@_offered
def runs() -> Iterable[str]:
    """The runs that this checkout started on hosts elsewhere."""
    from fmha.harness.hosts import ledger
    from fmha.harness.stages.preflight import git_root

    return ledger.runs(git_root(Path.cwd()))


@_offered
def kinds() -> Iterable[str]:
    """The kinds of what gets worse."""
    from fmha.harness.judge.comparison.comparison import Kind

    return (kind.value for kind in Kind)


@_offered
def schedules() -> Iterable[str]:
    """The schedules that have a name."""
    from fmha.harness.judge.schedules import NAMES

    return NAMES
