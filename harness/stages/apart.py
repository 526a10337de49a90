"""The judge apart from the judged: a commit is judged by the harness and the matrix.yaml of another one, `--judge REF`.

The judge is the harness that runs, in the checkout that it is asked about. Where the one that is asked for is another,
its files are laid out in a folder of the account's with an interpreter that finds them first, and the command starts
again there. From the judged commit come the kernels and what launches them (harness/worker/planner/sides.py), and
nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fmha.harness import account
from fmha.harness.config import MATRIX_FILE, interpret, load
from fmha.harness.errors import ConfigError, FmhaError, InfrastructureError, UserError
from fmha.harness.git import begun, git, resolve_commit
from fmha.harness.judge import core_digest
from fmha.harness.judge.identity import (
    CORE,
    KERNEL_SIDE,
    MATRIX,
    installed_root,
    installed_sources,
    is_judge,
    is_kernel_side,
    sources,
)
from fmha.harness.kernel_side.abi import HEADERS
from fmha.harness.stages.laid_out import give_name, laid_out, refuse_links

OWN = "own"  # `--judge own`: the commit's, or the one that is installed
PACKAGE = "fmha"  # a folder with links to the two that are its content
PARTS = (
    PACKAGE,
    "harness",
    "emulator",
    MATRIX_FILE,
    *HEADERS,
    "results/baselines",
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
CORE_SECONDS = 1800.0
_CORE_FILE = "emulator/_core*.so"
_SITES = ("site-packages", "dist-packages")  # what Python calls the folders of what is installed
JUDGES = "FMHA_JUDGES_BY"  # in the environment of a process that was started to judge: its commit
_ROOTS = (PACKAGE, "harness", "emulator", MATRIX_FILE)
# What decides nothing and is imported by nobody. Whatever else lies in a tree, Python may find: it is on a host's path.
_JUDGED = ("kernel", "docs", "tests", "results")
_REST = (".", *(f":(top,exclude){name}" for name in _JUDGED))
_BRANCHES = ("refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/heads/main", "refs/heads/master")


@dataclass(frozen=True, slots=True)
class JudgeApart:
    """The judge of a run that is another commit's than what is judged.

    `tree` has its files, `root` is the checkout that is judged. `changed` are the files of the judge that the judged
    commit has otherwise; `accepted` is the reason why that is well, None where nobody gave one. `beside` are files of
    the rest of the harness that the commit has otherwise: they did not run, and so decided nothing.
    """

    commit: str
    tree: Path
    root: Path
    changed: tuple[str, ...] = ()
    accepted: str | None = None
    beside: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the commit changes its own judge and nobody has accepted that."""
        return bool(self.changed) and self.accepted is None


def default_ref(root: Path, commit: str = "HEAD") -> str | None:
    """The merge base with the default branch; None where there is no such branch."""
    listed = git(root, "for-each-ref", "--format=%(refname) %(objecttype) %(objectname)", *_BRANCHES)
    found = {name: sha for name, kind, sha in map(str.split, listed.stdout.splitlines()) if kind == "commit"}
    for name in _BRANCHES:
        if name in found:
            base = git(root, "merge-base", found[name], commit)
            return base.stdout.strip() if base.returncode == 0 else None
    return None


def judge_differs(root: Path, commit: str) -> bool:
    """Whether the checkout has any file of the harness otherwise than the commit, by git's word alone."""
    names = _otherwise(root, commit, _ROOTS)
    return names != [MATRIX] or _judges_otherwise(root, commit) if names else False


def alike(root: Path, commit: str) -> str | None:
    """The commit that `commit` has in common with the default branch, if both have the same files, one by one, but for
    kernels and what nobody imports: a `sitecustomize.py` beside the harness is as good as a harness of one's own."""
    base = default_ref(root, commit)
    if base is None:
        return None
    same = git(root, "diff", "--quiet", "--no-ext-diff", base, commit, "--", *_REST)
    return base if same.returncode == 0 else None


def _otherwise(root: Path, commit: str, paths: Sequence[str]) -> list[str]:
    """The files below `paths` that the checkout has otherwise than the commit, untracked ones too."""
    untracked = begun(root, "ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    listing, added = git(root, "diff", "--name-only", "-z", commit, "--", *paths), untracked()
    if listing.returncode != 0 or added.returncode != 0:
        raise InfrastructureError(
            f"git does not say what differs from {commit[:12]}", where=str(root), next_step="git status says why"
        )
    return [name for name in (listing.stdout + added.stdout).split("\0") if name]


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


def find(root: Path, ref: str, accepted: str | None, arguments: Sequence[str]) -> JudgeApart | int:
    """The judge that `ref` names for the checkout at `root`, or the exit code of this command as it carried it out.

    `arguments` are those of the command, for the judge's harness to be started with. Raises UserError for what is no
    commit or has no judge, InfrastructureError when one cannot be laid out.
    """
    commit = resolve_commit(root, ref)
    if commit is None:
        raise UserError(f"--judge: {ref!r} is no commit", where=str(root), next_step="git fetch, or name another")
    if (head := resolve_commit(root, "HEAD")) is not None:
        refuse_links(root, head)  # before anything of the checkout is read
    tree = _judge_of(root, commit)
    judge, mine = sources(tree), installed_sources()
    if judge != mine:
        if os.environ.get(JUDGES) == commit:  # or it would start itself again, without end
            raise InfrastructureError(
                f"the process that is to judge by {commit[:12]} has another {_differing(judge, mine)[0]}, for one",
                where=str(installed_root()),
                next_step=f"remove {tree.parent} and try again",
            )
        python = _interpreter(root, tree, judge[CORE])
        # Bytecode is kept apart: beside the sources it would have to be held against git as they are.
        started = {JUDGES: commit, "PYTHONPYCACHEPREFIX": str(account.folder("bytecode", outside=root))}
        command = [str(python), "-P", "-m", PACKAGE, *_with_judge(arguments, commit)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | started
        return subprocess.run(command, cwd=Path.cwd(), env=environment, check=False).returncode
    judged = sources(root) if (root / "harness").is_dir() else mine  # a checkout of kernels alone has none
    differing = _differing(judge, judged)
    changed = [name for name in differing if is_judge(name)]
    if not _same_matrix(root, tree):
        changed.append(MATRIX)
    beside = tuple(name for name in differing if not is_judge(name) and not is_kernel_side(name))
    return JudgeApart(commit, tree, root, tuple(sorted(changed)), accepted, beside)


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def launches_otherwise(judge: JudgeApart) -> bool:
    """Whether the checkout has another kernel's side than the judge, or by git's word anything otherwise that Python
    could find there. Else the judge's own code, which is the same, launches in one process."""
    if judge.changed or judge.beside or _otherwise(judge.root, judge.commit, _REST):
        return True
    own = sources(judge.root) if (judge.root / "harness").is_dir() else {}
    differing = [name for name in _differing(own, sources(judge.tree)) if name.startswith(f"{KERNEL_SIDE}/")]
    return bool(differing) or any(_bytes(judge.root / name) != _bytes(judge.tree / name) for name in HEADERS)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _same_matrix(root: Path, tree: Path) -> bool:
    try:
        return load(root).judged_sha256 == load(tree).judged_sha256
    except FmhaError:
        return False


def _judge_of(root: Path, commit: str) -> Path:
    """The judge's files at a commit."""
    names = [name for name in PARTS if git(root, "cat-file", "-e", f"{commit}:{name}").returncode == 0]
    if "harness" not in names:
        raise UserError(f"--judge: commit {commit[:12]} has no harness", next_step="name a later one")
    tree = laid_out(root, commit, "judge", names, beside=_CORE_FILE)
    if not (tree / "harness" / "judge" / "identity.py").is_file():
        what = f"--judge: commit {commit[:12]} is of before the judge was a folder"
        raise UserError(what, next_step="name a later one")
    return tree


def _interpreter(root: Path, tree: Path, core: str) -> Path:
    """An interpreter that finds the modules of `tree` before any other, with its emulator's core beside them."""
    if [core_digest.of_module(path) for path in tree.glob(_CORE_FILE)] != [core]:
        for old in tree.glob(_CORE_FILE):
            old.unlink()
        built = _core(root, tree, core)
        copied = shutil.copy2(built, tree / "emulator" / f".{built.name}.{os.getpid()}")
        Path(copied).replace(tree / "emulator" / built.name)
    home = tree.with_name("interpreter")
    if not home.is_dir():
        made = home.with_name(f"{home.name}.{os.getpid()}")
        import venv  # here, for no other command needs it

        venv.create(made, with_pip=False, symlinks=True)
        give_name(made, home)
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    # Named in a .pth of their own, the packages' own .pth files are not read: an editable installation's would win.
    # Those of sys.path: an interpreter that was made here itself has its packages elsewhere than sysconfig says.
    # What PYTHONPATH names comes behind the judge's: in the environment it would come first.
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    mine = dict.fromkeys([str(tree), *(path for path in sys.path if Path(path).name in _SITES), *named])
    written = packages / f".judge.pth.{os.getpid()}"
    written.write_text("\n".join(mine) + "\n", encoding="utf-8")
    written.replace(packages / "judge.pth")
    return home / "bin" / "python"


def _core(root: Path, tree: Path, digest: str) -> Path:
    """The core compiled from the sources of that digest: the installed one if it is, else one that is compiled now."""
    if core_digest.of_installed() == digest:
        return core_digest.installed()
    kept = account.folder("cores", outside=root) / digest
    pattern = f"{PACKAGE}/{_CORE_FILE}"
    if not any(core_digest.of_module(path) == digest for path in kept.glob(pattern)):
        print("fmha: compiling the judge's emulator, once for these sources", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-P",  # or a pip.py of the checkout in which this stands would be run
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "--no-input",
            "--no-deps",
        ]
        made = kept.with_name(f"{kept.name}.{os.getpid()}")
        with tempfile.TemporaryDirectory(prefix=".core-", dir=kept.parent) as folder:  # which is built in, and written
            copied = shutil.copytree(tree, Path(folder) / "tree", symlinks=True)
            command += ["--no-build-isolation", "--target", str(made), str(copied)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=CORE_SECONDS, check=False, cwd=folder
            )
        if done.returncode != 0:
            words = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
            raise InfrastructureError(f"the judge's emulator does not compile: {words[-1]}", where=str(tree))
        shutil.rmtree(kept, ignore_errors=True)
        give_name(made, kept)
    return next(kept.glob(pattern))


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
