"""Watch: after every save, the guard, then the configurations whose compiled code or adapter changed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from watchfiles import watch as changes_of

from fmha.harness import account
from fmha.harness.archive import RunRecord
from fmha.harness.config import MATRIX_FILE, load
from fmha.harness.contract.protocol import BuildResult
from fmha.harness.errors import ExitCode, FmhaError, InterruptionError
from fmha.harness.stages.build import Builds, build
from fmha.harness.stages.outcome import Observer, Step
from fmha.harness.stages.pipeline import PreparedRun, Request, execute, prepare

Show = Callable[[RunRecord, Path | None], None]
Complain = Callable[[FmhaError], None]

# What `-lineinfo` puts into PTX: a line added to a comment moves it and changes no code.
_LINE_INFO = (".loc", ".file", ".section", "//", ".b8", ".b32", ".b64")


class Watcher:
    """Runs rounds in a checkout. Their records go to `.fmha/watch`: an edit under way is no evidence."""

    def __init__(self, request: Request, root: Path, observer: Observer, show: Show) -> None:
        self._request = dataclasses.replace(request, results=account.in_checkout(root, "watch"))
        self._observer = observer
        self._show = show
        self._known: Mapping[str, object] | None = None  # what each configuration runs; None before the first round

    def round(self) -> ExitCode:
        """Run the guard; when it holds, what else was touched since the last round. Raises what `execute` does."""
        prepared = prepare(self._request)
        code = self._run(prepared.plan.guard)
        touched = self._touched(prepared) if code is not ExitCode.GATE_FAILED else []
        return self._run(touched) if touched else code

    def _run(self, steps: Sequence[Step]) -> ExitCode:
        cases = [step.configuration.id for step in steps]
        return execute(dataclasses.replace(self._request, filters=(), cases=cases), self._observer, self._show)

    def _touched(self, prepared: PreparedRun) -> list[Step]:
        """What is not the guard's and has other code, or another adapter, than in the last round; in the first
        nothing."""
        plan, kernels = prepared.plan, prepared.matrix.kernels
        self._observer.stage("build", f"{len(plan.variants)} variants, to see what was touched")
        builds: Builds = build(plan, prepared.host, prepared.matrix.limits, self._observer)
        codes = {name: code_of(result) for name, result in builds.items()}
        before, now = self._known, {}
        for step in plan.rest:
            if step.variant:
                item = step.configuration
                now[item.id] = (codes[step.variant.name], *kernels[item.kernel].files.values())
        self._known = now
        if before is None:
            return []
        return [step for step in plan.rest if now.get(step.configuration.id) != before.get(step.configuration.id)]


def watched(root: Path) -> tuple[str, ...]:
    """The files and folders below `root` that decide what is built, matrix.yaml among them; where that cannot be read
    yet, kernel/."""
    try:
        names = [name for kernel in load(root, own=False).kernels.values() for name in kernel.watched]
    except FmhaError:
        names = ["kernel"]
    return (MATRIX_FILE, *dict.fromkeys(names))


def watch(watcher: Watcher, root: Path, names: Sequence[str], complain: Complain) -> None:
    """Rounds until interrupted: one now, and one after every save to what `names` name below `root`."""
    try:
        _guarded(watcher, complain)
        for _ in saves(root, names):
            _guarded(watcher, complain)
    except (KeyboardInterrupt, InterruptionError):
        return


def saves(root: Path, names: Sequence[str] = (MATRIX_FILE, "kernel")) -> Iterator[None]:
    """One item for the saves of each moment. Folders are looked up again every time, for those that were added."""
    paths = [root / name for name in names]
    while True:
        folders = {path.parent for path in paths if path.is_file()}
        folders |= {folder for path in paths for folder in (path, *path.rglob("*")) if folder.is_dir()}
        next(changes_of(*folders, watch_filter=lambda _, path: _matters(paths, path), recursive=False))
        yield


def code_of(result: BuildResult) -> str:
    """The hash of a variant's PTX without its line information; of the error when it did not build. A peer has none."""
    if not result.variant.source:
        return ""
    if result.error is not None:
        return hashlib.sha256(result.error.encode()).hexdigest()
    lines = (line.strip() for line in Path(result.ptx).read_text(encoding="utf-8").splitlines())
    code = "\n".join(line for line in lines if not line.startswith(_LINE_INFO))
    return hashlib.sha256(code.encode()).hexdigest()


def _matters(paths: Sequence[Path], path: str) -> bool:
    name = Path(path)
    if name.name.startswith(".") or name.name.endswith("~"):  # an editor's own files
        return False
    return any(name.is_relative_to(known) for known in paths)


def _guarded(watcher: Watcher, complain: Complain) -> None:
    """A round whose errors are told: half an edit is no reason to end."""
    try:
        watcher.round()
    except InterruptionError:
        raise
    except FmhaError as error:
        complain(error)
