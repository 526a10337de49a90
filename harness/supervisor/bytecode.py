"""Python's bytecode, kept by content: a run's worktree is new each time, and would have all of it compiled again.

A pyc says of itself which source it was compiled from, and nobody can tell whether that is so. So none is taken from a
worktree, where whatever a run starts could have written it. The supervisor compiles a proved worktree's sources before
anything of the commit has run, in an interpreter of the environment that loads nothing but the standard library. It
notes the SHA-256 of each pyc, and a pyc is used again only if it still has that. A worktree gets copies: a link would
lead a run to what others use. The folder is in no grant of a sandbox (enclosure.py); without one, whoever has the
account could write here as well as into the sources of the agent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import HostError, read_json, write_json
from fmha.harness.worker.processes.groups import run_group

FOLDER = "bytecode"
OURS = ("emulator/", "fmha/", "harness/")  # where the modules of a run are; what else is imported is compiled then
COMPILE_SECONDS = 120.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MANIFEST = "manifest.json"
# Prints the tag of the interpreter; compiles what it is told: a pyc that is checked against its source's hash each.
_COMPILER = """
import json, os, py_compile, sys
print(sys.implementation.cache_tag, flush=True)
for source, target in json.load(sys.stdin):
    try:
        py_compile.compile(source, target, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    except (py_compile.PyCompileError, OSError, ValueError, RecursionError, MemoryError):
        pass
"""


@dataclass(frozen=True)
class KeptBytecode:
    """Bytecode of a commit's modules, for an interpreter with that `tag`: by blob, of `sources`, blobs and paths."""

    tag: str
    sources: Sequence[tuple[str, str]]
    data: Mapping[str, bytes]

    @property
    def whole(self) -> bool:
        """Whether every file's bytecode is there."""
        return all(blob in self.data for blob, _ in self.sources)

    def modules(self) -> Iterator[tuple[str, str, bool, bytes]]:
        """Name, file below the worktree, whether it is a package, and bytecode of each module of fmha."""
        for blob, path in self.sources:
            file = path if path.startswith("fmha/") else f"fmha/{path}"  # a folder with links to the other two
            name = file.removesuffix(".py").replace("/", ".")
            yield name.removesuffix(".__init__"), file, name.endswith(".__init__"), self.data[blob]

    def write(self, tree: Path) -> None:
        """Into a worktree, each file at once: somebody may be importing there."""
        made = set()
        for blob, path in self.sources:
            if blob in self.data:
                above, _, name = path.rpartition("/")
                folder = f"{tree}/{above}/__pycache__"
                if folder not in made:
                    made.add(folder)
                    os.makedirs(folder, exist_ok=True)
                _write(f"{folder}/{name.removesuffix('.py')}.{self.tag}.pyc", self.data[blob])


def known(folder: Path, sha: str, python: Path, wanted: Callable[[str], bool]) -> KeptBytecode | None:
    """The bytecode of those of the commit's modules whose paths are `wanted`, if all of it is there for that
    interpreter."""
    with contextlib.suppress(OSError, HostError), _locked(folder / FOLDER) as home:
        found = _taken(folder, home, _read(home), sha, python, wanted)
        return found if found.tag and found.whole else None
    return None


def provide(
    folder: Path, tree: Path, sha: str, python: Path, wanted: Callable[[str], bool] = lambda path: True
) -> None:
    """Brings the bytecode of those of the commit's modules whose paths are `wanted` into its worktree, which has just
    been proved; compiles what is not there yet for the interpreter `python`. What is not brought is compiled when it is
    imported."""
    with contextlib.suppress(OSError, HostError), _locked(folder / FOLDER) as home:
        manifest = _read(home)
        found = _taken(folder, home, manifest, sha, python, wanted)
        if missing := {blob: path for blob, path in found.sources if blob not in found.data}:
            tag, made = _compiled(tree, missing, python)
            found = KeptBytecode(tag, found.sources, {**found.data, **made})
            manifest["interpreters"][_interpreter(python)] = tag
            for blob, data in made.items():
                manifest["files"][f"{blob}.{tag}"] = hashlib.sha256(data).hexdigest()
                _write(f"{home}/{blob}.{tag}.pyc", data)
            write_json(home / _MANIFEST, manifest, durable=False)
        found.write(tree)


def _taken(
    folder: Path,
    home: Path,
    manifest: dict[str, Any],
    sha: str,
    python: Path,
    wanted: Callable[[str], bool] = lambda path: True,
) -> KeptBytecode:
    """What is there of it."""
    tag = manifest["interpreters"].get(_interpreter(python)) or ""
    sources = [(blob, path) for blob, path in Repository(folder).blobs(sha, ".py") if path.startswith(OURS)]
    sources = [(blob, path) for blob, path in sources if wanted(path)]
    found = {blob: _proved(home, f"{blob}.{tag}", manifest) for blob, _ in sources if tag}
    return KeptBytecode(tag, sources, {blob: data for blob, data in found.items() if data is not None})


def _proved(home: Path, name: str, manifest: dict[str, Any]) -> bytes | None:
    """What is kept under that name, if it is what was written there."""
    try:
        with open(f"{home}/{name}.pyc", "rb", buffering=0) as file:
            data = file.readall()
    except FileNotFoundError:
        return None
    return data if hashlib.sha256(data).hexdigest() == manifest["files"].get(name) else None


def _compiled(tree: Path, missing: dict[str, str], python: Path) -> tuple[str, dict[str, bytes]]:
    """The interpreter's tag, and what its compiler makes of the sources, by blob. Raises HostError if it does not
    run: whoever starts the runner says so as well."""
    with tempfile.TemporaryDirectory(prefix="fmha-compile-") as scratch:
        wish = Path(scratch) / "wish.json"
        wish.write_text(json.dumps([[str(tree / path), f"{scratch}/{blob}.pyc"] for blob, path in missing.items()]))
        command = ["/bin/sh", "-c", 'exec "$0" -IS -c "$1" <"$2"', str(python), _COMPILER, str(wish)]
        done = run_group(command, cwd=Path("/"), limit_seconds=COMPILE_SECONDS)
        tag, _, said = done.output.partition("\n")
        if done.returncode != 0 or not tag.isprintable() or not tag or "/" in tag:
            raise HostError(f"{python} compiles nothing: {said[:200]}")
        made = {blob: Path(scratch) / f"{blob}.pyc" for blob in missing}
        return tag, {blob: path.read_bytes() for blob, path in made.items() if path.is_file()}


def _interpreter(python: Path) -> str:
    """Which interpreter that is, as far as can be told without starting it."""
    path = Path(shutil.which(python) or python).resolve()
    state = path.stat()
    return f"{path}:{state.st_ino}:{state.st_size}:{state.st_mtime_ns}"


def _read(home: Path) -> dict[str, Any]:
    """The manifest; an empty one where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        manifest = read_json(home / _MANIFEST)
        if isinstance(manifest, dict) and all(
            isinstance(manifest.get(name), dict) for name in ("interpreters", "files")
        ):
            return manifest
    return {"interpreters": {}, "files": {}}


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[Path]:
    """One run at a time looks and adds."""
    home.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home
    finally:
        os.close(lock)


def _write(target: str, data: bytes) -> None:
    """At once, under a name that no other process of ours takes; one that was killed may have left it."""
    name = f"{target}.{os.getpid()}"
    try:
        descriptor = os.open(name, _NEW, 0o600)
    except FileExistsError:
        os.unlink(name)
        descriptor = os.open(name, _NEW, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        os.rename(name, target)
    except BaseException:
        os.unlink(name)
        raise
