"""The judge apart from the judged: a commit is judged by the harness and the matrix.yaml of another one, `--judge REF`.

The judge is the harness that runs, in the checkout that it is asked about. Where the one that is asked for is another,
its files are laid out below `.fmha/judges` with an interpreter that finds them first, and the command starts again
there. From the judged commit come the kernels and what launches them (harness/worker/apart.py), and nothing else.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.config import MATRIX_FILE, interpret, load
from fmha.harness.errors import ConfigError, FmhaError, InfrastructureError, UserError
from fmha.harness.git import git, resolve_commit
from fmha.harness.judge.identity import CORE, KERNEL_SIDE, MATRIX, installed_root, is_judge, sources
from fmha.harness.kernel_side.params import SM90_TABLE

OWN = "own"  # `--judge own`: the commit's, or the one that is installed
PACKAGE = "fmha"  # a folder with links to the two that are its content
PARTS = (
    PACKAGE,
    "harness",
    "emulator",
    MATRIX_FILE,
    SM90_TABLE,
    "results/baselines",
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
CHECKOUT_SECONDS = 300.0
CORE_SECONDS = 1800.0
NEXT = "make install && .venv/bin/fmha run-matrix --judge own, in this checkout, says why"  # where it cannot run
OWN_SECONDS = 3600.0
_SITES = ("site-packages", "dist-packages")  # what Python calls the folders of what is installed
JUDGES = "FMHA_JUDGES_BY"  # in the environment of a process that was started to judge: its commit
_ROOTS = (PACKAGE, "harness", "emulator", MATRIX_FILE)
_BRANCHES = ("refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/heads/main", "refs/heads/master")


@dataclass(frozen=True, slots=True)
class Judge:
    """The judge of a run that is another commit's than what is judged.

    `tree` has its files, `root` is the checkout that is judged. `changed` are the files of the judge that the judged
    commit has otherwise; `accepted` is the reason why that is well, None where nobody gave one. `own` says what the
    commit's own judge answered; empty where the two are one.
    """

    commit: str
    tree: Path
    root: Path
    changed: tuple[str, ...] = ()
    accepted: str | None = None
    own: str = ""

    @property
    def refused(self) -> bool:
        """Whether the commit changes its own judge and nobody has accepted that."""
        return bool(self.changed) and self.accepted is None


def default_ref(root: Path) -> str | None:
    """The merge base with the default branch; None where there is no such branch."""
    for name in _BRANCHES:
        if (sha := resolve_commit(root, name)) is not None:
            base = git(root, "merge-base", sha, "HEAD")
            return base.stdout.strip() if base.returncode == 0 else None
    return None


def judge_differs(root: Path, commit: str) -> bool:
    """Whether the checkout has any file of the judge otherwise than the commit, by git's word alone."""
    listing = git(root, "diff", "--name-only", "-z", commit, "--", *_ROOTS)
    added = git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", *_ROOTS)
    names = [name for name in (listing.stdout + added.stdout).split("\0") if name]
    concerned = [name for name in names if is_judge(name) or name in KERNEL_SIDE]
    return concerned != [MATRIX] or _judges_otherwise(root, commit) if concerned else False


def _judges_otherwise(root: Path, commit: str) -> bool:
    """Whether matrix.yaml says something else than the commit's, hosts apart."""
    before = git(root, "show", f"{commit}:{MATRIX}")
    if before.returncode != 0:
        return True
    try:
        theirs = interpret(before.stdout, MATRIX, "", lambda: root)
    except ConfigError:
        return True
    return theirs.judged_sha256 != load(root, own=False).judged_sha256


def find(root: Path, ref: str, accepted: str | None, arguments: Sequence[str]) -> Judge | int:
    """The judge that `ref` names for the checkout at `root`, or the exit code of this command as it carried it out.

    `arguments` are those of the command, for the judge's harness and the commit's own to be started with. Raises
    UserError for what is no commit or has no judge, InfrastructureError when one cannot be laid out.
    """
    commit = resolve_commit(root, ref)
    if commit is None:
        raise UserError(f"--judge: {ref!r} is no commit", where=str(root), next_step="git fetch, or name another")
    tree = _judge_of(root, commit)
    judge, mine = sources(tree), sources(installed_root())
    if judge != mine:
        if os.environ.get(JUDGES) == commit:  # or it would start itself again, without end
            other = sorted(name for name in judge.keys() | mine.keys() if judge.get(name) != mine.get(name))
            raise InfrastructureError(
                f"the process that is to judge by {commit[:12]} has another harness, {other[0]} for one",
                where=str(installed_root()),
                next_step=f"remove {tree.parent} and try again",
            )
        python = _interpreter(root, tree, judge[CORE])
        command = [str(python), "-P", "-m", PACKAGE, *_with_judge(arguments, commit)]
        return subprocess.run(command, cwd=Path.cwd(), env=os.environ | {JUDGES: commit}, check=False).returncode
    judged = sources(root) if (root / "harness").is_dir() else mine  # a checkout of kernels alone has none
    changed = {name for name in judge.keys() | judged.keys() if judge.get(name) != judged.get(name)}
    if not _same_matrix(root, tree):
        changed.add(MATRIX)
    if not changed:
        return Judge(commit, tree, root, accepted=accepted)
    own = _own_answer(root, judged, _without_judge(arguments))
    return Judge(commit, tree, root, tuple(sorted(changed)), accepted, own)


def kernel_side_differs(judge: Judge) -> bool:
    """Whether the checkout launches otherwise: else the judge's own code, which is the same, does it in one process."""
    return bool(judge.changed) or any(_bytes(judge.root / name) != _bytes(judge.tree / name) for name in KERNEL_SIDE)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _same_matrix(root: Path, tree: Path) -> bool:
    try:
        return load(root).judged_sha256 == load(tree).judged_sha256
    except FmhaError:
        return False


def laid_out(root: Path, commit: str, names: Sequence[str] = ()) -> Path:
    """The files of a commit, all or those of some names. A commit never changes, so what is there is used again."""
    tree = root / ".fmha" / "judges" / commit[:16] / ("tree" if names else "whole")
    if tree.is_dir():
        return tree
    with tempfile.TemporaryDirectory(prefix=".judge-", dir=_folder(root)) as folder:
        packed = subprocess.run(
            ["git", "archive", "--format=tar", commit, "--", *names],
            cwd=root,
            capture_output=True,
            timeout=CHECKOUT_SECONDS,
            check=False,
        )
        if packed.returncode != 0:
            raise InfrastructureError(f"git archive failed: {packed.stderr.decode('utf-8', 'replace').strip()}")
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        _moved(Path(folder), tree)
    return tree


def _judge_of(root: Path, commit: str) -> Path:
    """The judge's files at a commit."""
    names = [name for name in PARTS if git(root, "cat-file", "-e", f"{commit}:{name}").returncode == 0]
    if "harness" not in names:
        raise UserError(f"--judge: commit {commit[:12]} has no harness", next_step="name a later one")
    tree = laid_out(root, commit, names)
    if not (tree / "harness" / "judge" / "identity.py").is_file():
        what = f"--judge: commit {commit[:12]} is of before the judge was a folder"
        raise UserError(what, next_step="name a later one")
    return tree


def _folder(root: Path) -> Path:
    folder = root / ".fmha" / "judges"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _moved(folder: Path, target: Path) -> None:
    """Gives a copy of what is complete its name, unless another process was first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(folder, made := target.with_name(f"{target.name}.{os.getpid()}"), symlinks=True)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise InfrastructureError(f"cannot lay out the judge: {error.strerror}", where=str(target)) from error
    _named(made, target)


def _named(made: Path, target: Path) -> None:
    """Gives a complete folder its name, unless another process was first: none ever finds half of one there."""
    try:
        made.rename(target)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        if not target.is_dir():
            raise InfrastructureError(f"cannot lay out the judge: {error.strerror}", where=str(target)) from error


def _interpreter(root: Path, tree: Path, core: str) -> Path:
    """An interpreter that finds the modules of `tree` before any other, with its emulator's core beside them."""
    if not any((tree / "emulator").glob("_core*.so")):
        built = _core(root, tree, core)
        copied = shutil.copy2(built, tree / "emulator" / f".{built.name}.{os.getpid()}")
        Path(copied).replace(tree / "emulator" / built.name)
    home = tree.with_name("interpreter")
    if not home.is_dir():
        made = home.with_name(f"{home.name}.{os.getpid()}")
        venv.create(made, with_pip=False, symlinks=True)
        packages = next((made / "lib").glob("python3*")) / "site-packages"
        # Named in a .pth of their own, the packages' own .pth files are not read: an editable installation's would win.
        # Those of sys.path: an interpreter that was made here itself has its packages elsewhere than sysconfig says.
        mine = dict.fromkeys([str(tree), *(path for path in sys.path if Path(path).name in _SITES)])
        (packages / "judge.pth").write_text("\n".join(mine) + "\n", encoding="utf-8")
        _named(made, home)
    return home / "bin" / "python"


def _core(root: Path, tree: Path, digest: str) -> Path:
    """The core compiled from the sources of that digest: the installed one if it is, else one that is compiled now."""
    installed = importlib.util.find_spec("fmha.emulator._core")
    if sources(installed_root())[CORE] == digest and installed is not None and installed.origin is not None:
        return Path(installed.origin)
    kept = _folder(root) / "cores" / digest[:16]
    if not any(kept.glob(f"{PACKAGE}/emulator/_core*.so")):
        print("fmha: compiling the judge's emulator, once for these sources", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "--no-input",
            "--no-deps",
        ]
        made = kept.with_name(f"{kept.name}.{os.getpid()}")
        command += ["--no-build-isolation", "--target", str(made), str(tree)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CORE_SECONDS, check=False)
        if done.returncode != 0:
            words = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
            raise InfrastructureError(f"the judge's emulator does not compile: {words[-1]}", where=str(tree))
        _named(made, kept)
    return next(kept.glob(f"{PACKAGE}/emulator/_core*.so"))


def _own_answer(root: Path, judged: dict[str, str], arguments: Sequence[str]) -> str:
    """What the commit's own judge says, in one line. It is shown and decides nothing, so its failures are words too."""
    try:
        with tempfile.TemporaryDirectory(prefix=".own-", dir=_folder(root)) as folder:
            tree = Path(folder) / "tree"
            for name in (PACKAGE, "harness", "emulator"):
                if (root / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "core")
                    shutil.copytree(root / name, tree / name, ignore=ignored, symlinks=True)
            if (root / SM90_TABLE).is_file():  # which the harness reads
                (tree / SM90_TABLE).parent.mkdir(parents=True)
                shutil.copy2(root / SM90_TABLE, tree / SM90_TABLE)
            if not (tree / "harness").is_dir():
                tree = installed_root()
                python = Path(sys.executable)
            else:
                python = _interpreter(root, tree, judged[CORE])
            command = [
                str(python),
                "-P",
                "-m",
                PACKAGE,
                *arguments,
                "--json",
                "--results",
                str(Path(folder) / "results"),
            ]
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=OWN_SECONDS, check=False)
            return _words(done)
    except (OSError, FmhaError, subprocess.SubprocessError) as error:
        return f"no answer: {error}; {NEXT}"


def _words(done: subprocess.CompletedProcess[str]) -> str:
    try:
        said = json.loads(done.stdout)
        verdict = said.get("words") or "{word} {passed} of {total}".format(**said["verdict"])
        return f"{verdict}, exit code {done.returncode}"
    except (ValueError, KeyError, AttributeError, TypeError):
        lines = done.stderr.strip().splitlines() or ["nothing"]
        return f"no answer, exit code {done.returncode}: {lines[-1]}; {NEXT}"


def _without_judge(arguments: Sequence[str]) -> list[str]:
    """The command without what says who judges and where the answer goes."""
    kept, skip = [], False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("--judge", "--accept-judge", "--results", "--junit"):
            skip = True
        elif word not in ("--json", "--quiet", "-q", "--verbose", "-v") and not word.startswith(
            ("--judge=", "--accept-judge=", "--results=", "--junit=")
        ):
            kept.append(word)
    return [*kept, "--judge", OWN, "--quiet"]


def _with_judge(arguments: Sequence[str], commit: str) -> list[str]:
    """The command with the judge's full name."""
    kept, skip = [], False
    for word in arguments:
        if skip:
            skip = False
        elif word == "--judge":
            skip = True
        elif not word.startswith("--judge="):
            kept.append(word)
    return [*kept, "--judge", commit]
