"""Watch: after every save, the guard, then the head_dims whose compiled code changed; of one's own kernels, all."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from watchfiles import watch as changes_of

from fmha.harness.archive import RunRecord
from fmha.harness.config import MATRIX_FILE, load
from fmha.harness.errors import ExitCode, FmhaError, InterruptionError
from fmha.harness.stages.build import Builds, build
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import Request, execute, prepare
from fmha.harness.worker.protocol import BuildResult

Show = Callable[[RunRecord, Path | None], None]
Complain = Callable[[FmhaError], None]

# What `-lineinfo` puts into PTX: a line added to a comment moves it and changes no code.
_LINE_INFO = (".loc", ".file", ".section", "//", ".b8", ".b32", ".b64")


class Watcher:
    """Runs rounds in a checkout. Their records go to `.fmha/watch`: an edit under way is no evidence."""

    def __init__(self, request: Request, root: Path, observer: Observer, show: Show) -> None:
        self._request = dataclasses.replace(request, results=root / ".fmha" / "watch")
        self._observer = observer
        self._show = show
        self._code: dict[str, str] = {}

    def round(self) -> ExitCode:
        """Run the guard; when it holds, what else was touched since the last round. Raises what `execute` does."""
        settings = prepare(self._request).matrix
        guard = settings.guard.head_dim
        if guard is None:
            return execute(self._request, self._observer, self._show)
        code = self._run([guard])
        if code is ExitCode.GATE_FAILED:
            return code
        touched = self._touched() - {guard}
        return self._run(sorted(touched)) if touched else code

    def _run(self, head_dims: Sequence[int]) -> ExitCode:
        chosen = "hd=" + "|".join(map(str, head_dims))
        request = dataclasses.replace(self._request, filters=(*self._request.filters, chosen))
        return execute(request, self._observer, self._show)

    def _touched(self) -> set[int]:
        """The head_dims of variants whose code is not that of the last round; none in the first."""
        prepared = prepare(self._request)
        self._observer.stage("build", f"{len(prepared.plan.variants)} variants, to see what was touched")
        builds: Builds = build(prepared.plan, prepared.host, prepared.matrix.limits, self._observer)
        before, self._code = self._code, {name: code_of(result) for name, result in builds.items()}
        if not before:
            return set()
        changed = (result.variant.head_dim for name, result in builds.items() if self._code[name] != before.get(name))
        return {head_dim for head_dim in changed if head_dim is not None}


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
    """The hash of a variant's PTX without its line information; of the error when it did not build."""
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
