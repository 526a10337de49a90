"""Preflight: what git knows about the tree that is about to be judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fmha.harness import project
from fmha.harness.config import MATRIX_FILE
from fmha.harness.errors import UserError
from fmha.harness.git import begun, git, git_failure

NO_COMMIT = "0" * 40  # git's own name for no object


@dataclass(frozen=True, slots=True)
class GitFacts:
    """`branch` is None on a detached HEAD; `dirty_files` are paths that differ from the commit or are untracked.

    Outside of git the kernels and matrix.yaml are those that fmha brought: `installed` is its version, `root` a copy of
    them, the commit NO_COMMIT, and `folder` where it all began. `home` is where results go.
    """

    root: Path
    commit: str
    branch: str | None
    dirty_files: tuple[str, ...]
    folder: Path | None = None
    installed: str | None = None

    @property
    def home(self) -> Path:
        """Where matrix.yaml and results are: git's root, or the folder without git."""
        return self.folder or self.root


def git_facts(directory: Path) -> GitFacts:
    """Facts of the checkout that holds `directory`.

    Outside of one they are those of the project that fmha brought, if it did. Raises UserError where there is neither,
    or before the first commit, InfrastructureError when git is missing or fails.
    """
    asked = begun(directory, "status", "--porcelain=v1", "-z", "--untracked-files=normal")  # of the whole checkout
    try:
        facts = commit_facts(directory)
    finally:
        status = asked()
    if facts.installed is not None:
        return facts
    if status.returncode != 0:
        raise git_failure(status)
    return replace(facts, dirty_files=_paths(status.stdout))


def commit_facts(directory: Path) -> GitFacts:
    """As `git_facts`, but nobody has looked for files that differ from the commit: that takes longer than the rest."""
    if (found := _at_once(directory)) is not None:
        return found
    root = _git_root(directory)
    if root is None:
        if not project.brought():
            raise _outside(directory)
        return _installed(directory)
    head = git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head.returncode != 0:
        if project.brought() and not (root / MATRIX_FILE).exists():  # nothing here is judged but what fmha brought
            return _installed(directory)
        raise UserError("the checkout has no commit yet", where=str(root), next_step="commit first")
    branch = git(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    return GitFacts(root, head.stdout.strip(), branch.stdout.strip() or None, ())


def _at_once(directory: Path) -> GitFacts | None:
    """What one question to git answers in a checkout that has a commit; the other questions are for what is not so."""
    said = git(directory, "rev-parse", "--show-toplevel", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    *lines, commit, name = said.stdout.removesuffix("\n").split("\n") if said.stdout.count("\n") > 2 else ["", "", ""]
    root = "\n".join(lines)  # a folder may be named so
    if said.returncode != 0 or not root.startswith("/"):
        return None
    branch = name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
    return GitFacts(Path(root), commit, branch, ())


def _installed(directory: Path) -> GitFacts:
    return GitFacts(project.unpacked(), NO_COMMIT, None, (), directory, project.version())


def git_root(directory: Path) -> Path:
    """The checkout that holds `directory`. Raises UserError outside of one, InfrastructureError as `git_facts` does."""
    root = _git_root(directory)
    if root is None:
        raise _outside(directory)
    return root


def checkout_of(directory: Path) -> Path:
    """The checkout that holds `directory`, or itself outside of one."""
    return _git_root(directory) or directory


def project_of(directory: Path) -> Path:
    """Where the matrix.yaml is by which a name is meant here: the checkout that holds `directory`, or itself where git
    is not used; else fmha's own. No commit is needed: whoever looks reads files as they are."""
    root = _git_root(directory) or directory
    return root if (root / MATRIX_FILE).is_file() else project.sources()


def home_of(directory: Path) -> Path:
    """Where results are kept: in the checkout that holds `directory`, or in itself where fmha brought the kernels."""
    root = _git_root(directory)
    if root is None and not project.brought():
        raise _outside(directory)
    return root or directory


def _outside(directory: Path) -> UserError:
    return UserError("not in a git checkout", where=str(directory), next_step="run fmha inside the project")


def _git_root(directory: Path) -> Path | None:
    inside = git(directory, "rev-parse", "--show-toplevel")
    if inside.returncode != 0:
        if "not a git repository" in inside.stderr:
            return None
        raise git_failure(inside)
    root = Path(inside.stdout.removesuffix("\n"))
    if not root.is_absolute():
        raise UserError("no working tree here", where=str(directory), next_step="run fmha inside a checkout")
    return root


def _paths(porcelain: str) -> tuple[str, ...]:
    """Paths of `git status -z`; a rename or copy is followed by a field with its old name."""
    fields = iter(porcelain.split("\0"))
    paths = []
    for entry in fields:
        if not entry:
            continue
        paths.append(entry[3:])
        if "R" in entry[:2] or "C" in entry[:2]:
            next(fields, None)
    return tuple(paths)
