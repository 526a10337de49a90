"""Environments of the host: one a lock file, built once, used by every run whose commit has the same one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fmha.harness.supervisor import processes
from fmha.harness.supervisor.rundir import HostError, read_json, write_json
from fmha.harness.worker.processes.groups import describe_exit, run_group

STAMP = "complete"
OVERLAY = "tree"
MOST_LAST = 50
_LAST = "last.json"  # the environment that a recipe has come to
NOTE_SECONDS = 3.0  # between two notes of what a setup command says
SAME_NOTE_SECONDS = 30.0  # the same while it says nothing new
END_SECONDS = 1.0  # between SIGTERM and SIGKILL for what a set-up has left behind
REMOVALS = 3
_SHOWN = 300
_LINE_END = re.compile(rb"[\r\n]")
_ERROR = re.compile(r"(fatal )?error:", re.IGNORECASE)


@dataclass(frozen=True)
class Recipe:
    """How an environment is made: a shell command run in the worktree, and the files and variables that decide what it
    makes. Not so `secrets`, variables as well: no environment is made anew because a token has been."""

    setup: str
    files: tuple[str, ...]
    variables: Mapping[str, str]
    limit_seconds: float
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Environment:
    """`python` is its interpreter; `built` says that the setup command was run just now."""

    python: Path
    built: bool

    @property
    def home(self) -> Path:
        """The environment's folder."""
        return self.python.parents[1]

    def condemned(self) -> bool:
        """Whether it is not what the setup command has made of it; then it is built again by the next who asks."""
        stamp = self.home / STAMP
        with contextlib.suppress(OSError):
            noted = stamp.read_text(encoding="ascii")
            if noted and noted != _state(self.home):
                stamp.unlink()
                return True
        return False


@contextlib.contextmanager
def environment(
    folder: Path, recipe: Recipe, tree: Path, log: Path, tell: Callable[[str], None]
) -> Iterator[Environment]:
    """The environment for `tree`, built when it is not there yet, and kept from being cleaned away while it is used.

    The setup command finds the directory that it is to fill in FMHA_ENVIRONMENT, `bin/python` in it being what counts.
    Raises HostError.
    """
    home = folder / "environments"
    home.mkdir(parents=True, exist_ok=True)
    path = home / _key(recipe, tree)
    built = False
    lock = os.open(home / f"{path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _locked(lock, fcntl.LOCK_SH, "waiting for another run, which builds the environment", tell)
        if not _usable(path):
            _locked(lock, fcntl.LOCK_EX, "waiting for other runs with the environment, which has to be built", tell)
            if not _usable(path):
                tell("building the environment, once for this lock file")
                _build(path, recipe, tree, log, tell)
                built = True
            fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(path / STAMP)
        _remember(home, recipe, path.name)
        _overlay(path / OVERLAY, tree)
        yield Environment(path / "bin" / "python", built)
    finally:
        os.close(lock)


def expected(folder: Path, recipe: Recipe) -> Path | None:
    """The interpreter that the last run with such a recipe had, whatever files this one has: a guess."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        path = folder / "environments" / str(read_json(folder / "environments" / _LAST).get(_asked(recipe)))
        if path.parent.name == "environments" and _usable(path):
            return path / "bin" / "python"
    return None


def _remember(home: Path, recipe: Recipe, name: str) -> None:
    last: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        last = dict(read_json(home / _LAST))
    if last.get(_asked(recipe)) != name:
        kept = dict(list(last.items())[-MOST_LAST:])
        with contextlib.suppress(OSError):  # it is a guess that is missed then
            write_json(home / _LAST, kept | {_asked(recipe): name}, durable=False)


def _asked(recipe: Recipe) -> str:
    """A digest of what a recipe says without its files."""
    text = json.dumps([recipe.setup, recipe.files, sorted(recipe.variables.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def _locked(lock: int, how: int, why: str, tell: Callable[[str], None]) -> None:
    """Takes the lock, and says `why` it waits if it has to."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        tell(why)
        fcntl.flock(lock, how)


def _usable(path: Path) -> bool:
    """Whether it was finished and has its interpreter still."""
    return (path / STAMP).exists() and os.access(path / "bin" / "python", os.X_OK)


def _state(path: Path) -> str:
    """A digest of the names, sizes and modes of its files, but for bytecode, which comes as modules are imported."""
    found = []
    for folder, folders, names_here in os.walk(path):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names_here:
            if (folder, name) != (str(path), STAMP):
                state = os.lstat(os.path.join(folder, name))
                found.append([os.path.relpath(os.path.join(folder, name), path), state.st_size, state.st_mode])
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()


def _key(recipe: Recipe, tree: Path) -> str:
    """Everything that decides the content: the command, its variables, and names and bytes of the files it reads."""
    variables = {"PATH": os.environ.get("PATH", ""), **recipe.variables}
    digest = hashlib.sha256(json.dumps([2, recipe.setup, sorted(variables.items())]).encode())
    for pattern in recipe.files:
        for path in sorted(_matching(tree, pattern)):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(tree)}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
            digest.update(data)
    return digest.hexdigest()[:32]


def _matching(tree: Path, pattern: str) -> list[Path]:
    return [path for path in tree.glob(pattern) if path.is_file() and not path.is_symlink()]


class _Account:
    """What a setup command says: each line is in the log as soon as it is said, the last ones are told now and then.
    Neither has a secret."""

    def __init__(self, log: Path, secrets: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._log = log
        self._tell = tell
        self._secrets = [(os.fsencode(value), f"[{name}]".encode()) for name, value in secrets.items()]
        self._pending = b""
        self._began = self._told = time.monotonic()
        self._last = self._said = ""

    def heard(self, data: bytes) -> None:
        *lines, self._pending = _LINE_END.split(self._pending + data)
        if lines:
            self._write(b"".join(line + b"\n" for line in lines))
            self._last = next((text for line in reversed(lines) if (text := self.clean(line))), self._last)
        now = time.monotonic()
        if now - self._told >= (NOTE_SECONDS if self._last != self._said else SAME_NOTE_SECONDS):
            self._tell(f"environment, {now - self._began:.0f} s: {self._last or 'it has said nothing yet'}")
            self._told, self._said = now, self._last

    def end(self) -> None:
        """Writes the last line, which may have no end."""
        self._write(self._pending)

    def clean(self, text: bytes) -> str:
        """A line without secrets, as much as is shown of it."""
        return self._hidden(text).decode("utf-8", "replace").strip()[:_SHOWN]

    def _hidden(self, text: bytes) -> bytes:
        for value, name in self._secrets:
            text = text.replace(value, name)
        return text

    def _write(self, data: bytes) -> None:
        with self._log.open("ab") as file:
            file.write(self._hidden(data))


def _build(path: Path, recipe: Recipe, tree: Path, log: Path, tell: Callable[[str], None]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(exist_ok=True)
    account = _Account(log, recipe.secrets, tell)
    try:
        done = run_group(
            ["/bin/sh", "-c", recipe.setup],
            cwd=tree,
            limit_seconds=recipe.limit_seconds,
            env=os.environ | recipe.variables | {**recipe.secrets, "FMHA_ENVIRONMENT": str(path)},
            heard=account.heard,
        )
        account.end()
        if done.timed_out:
            raise HostError(f"the environment was not built within {recipe.limit_seconds:g} s", "see fmha logs")
        if done.returncode != 0:
            lines = [line.strip() for line in done.output.splitlines() if line.strip()] or [""]
            telling = account.clean(next((line for line in lines if _ERROR.match(line)), lines[-1]).encode())
            how = describe_exit(done.returncode)
            raise HostError(f"the environment was not built ({how}): {telling}", "see fmha logs")
        if not os.access(path / "bin" / "python", os.X_OK):
            raise HostError("the setup command made no bin/python in $FMHA_ENVIRONMENT", "correct environment.setup")
        (path / STAMP).write_text(_state(path), encoding="ascii")
    except BaseException:
        _remove(path)
        raise


def _remove(path: Path) -> None:
    """Takes away what is half made, and whoever still writes there first: a process of the set-up that has got away
    into a session of its own would put back what is removed."""
    if run := os.environ.get(processes.MARK):
        processes.end(run, END_SECONDS)
    for _ in range(REMOVALS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return


def _overlay(overlay: Path, tree: Path) -> None:
    """Links what the environment has for inside a checkout, such as a compiled extension, into the worktree.

    Only what git ignores passes the proof that comes after.
    """
    for path in sorted(overlay.rglob("*")):
        target = tree / path.relative_to(overlay)
        if path.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)


def names(folder: Path) -> Sequence[Path]:
    """The environments of a working folder."""
    return [path for path in sorted((folder / "environments").glob("*")) if path.is_dir()]


def last_used(path: Path) -> float:
    """When a run has last used an environment; 0 where it was never finished."""
    try:
        return (path / STAMP).stat().st_mtime
    except OSError:
        return 0.0


@contextlib.contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Whether nobody uses the environment; nobody will while the context lasts."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)
