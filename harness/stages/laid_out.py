"""The files of a commit in a folder of the account's, written from git's objects and held against them at each use."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fmha.harness import account
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.git import GIT_SECONDS, environment
from fmha.harness.supervisor import tree as trees
from fmha.harness.supervisor.listing import ListingError, names_of
from fmha.harness.supervisor.rundir import HostError


def laid_out(root: Path, commit: str, part: str, names: Sequence[str] = (), beside: str = "") -> Path:
    """The folder `part` of a commit, with all of its files or those of some names, and nothing else but what `beside`,
    a pattern, matches.

    What is there already is held against git's objects, and written anew where it differs. Raises UserError for a
    commit with what no folder should have, InfrastructureError when it cannot be written.
    """
    entries = _entries(root, commit, names)
    tree = account.folder("commits", outside=root) / commit / part

    def ignored(paths: list[bytes]) -> set[bytes]:
        return {path for path in paths if fnmatchcase(os.fsdecode(path), beside)}

    try:
        if tree.is_dir() and not trees.differences(entries, tree, ignored):
            return tree
        tree.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".laid-out-", dir=tree.parent) as folder:
            made = Path(folder) / "tree"
            made.mkdir()
            with _as_user_error(commit):
                trees.write(entries, _contents(root, entries), made)
            with contextlib.suppress(FileNotFoundError):
                tree.rename(Path(folder) / "old")
            give_name(made, tree)
    except OSError as error:
        raise InfrastructureError(f"cannot lay out commit {commit[:12]}: {error.strerror}", where=str(tree)) from error
    return tree


def give_name(made: Path, target: Path) -> None:
    """Gives a complete folder its name, unless another process was first: none ever finds half of one there."""
    try:
        made.rename(target)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not target.is_dir():
            raise


def _entries(root: Path, commit: str, names: Sequence[str]) -> trees.Entries:
    """The commit's files of these names, none of which leads out of it or is what no tree may have."""
    with _as_user_error(commit):
        lines = _listing(root, "-t", commit, "--", *names)
        parted = (line.partition(b"\t") for line in lines)
        found = trees.listed((path, trees.TreeEntry(*facts.decode().split()[::2])) for facts, _, path in parted)
        links = {path: entry for path, entry in found.items() if entry.mode == trees.LINK}
        trees.refuse(found, dict(zip(links, _contents(root, links), strict=True)))
    return found


def refuse_links(root: Path, commit: str) -> None:
    """Raises UserError for a commit with links that lead out of it: whoever reads a file of its checkout would read
    another one, or a device without end. What else no tree should have is for the host that gets it to say."""
    with _as_user_error(commit):
        lines = (line for line in _listing(root, commit) if line.startswith(f"{trees.LINK} ".encode()))
        parted = (line.partition(b"\t") for line in lines)
        links = {path: trees.TreeEntry(*facts.decode().split()[::2]) for facts, _, path in parted}
        trees.refuse(links, dict(zip(links, _contents(root, links), strict=True)))


def _listing(root: Path, *arguments: str) -> list[bytes]:
    """What git lists of a commit with all that is below its folders."""
    command = ["git", "-c", "safe.bareRepository=explicit", "ls-tree", "-r", "-z", "--full-tree", *arguments]
    try:
        return names_of(command, cwd=root, environment=environment(), seconds=GIT_SECONDS)
    except ListingError as error:
        words = error.said.decode(errors="replace").strip().splitlines()
        raise InfrastructureError(
            f"git ls-tree {error.what}{f': {words[0]}' if words else ''}", where=str(root)
        ) from None


@contextlib.contextmanager
def _as_user_error(commit: str) -> Iterator[None]:
    try:
        yield
    except HostError as error:
        raise UserError(error.what, where=f"commit {commit[:12]}", next_step=error.next_step) from error


def _contents(root: Path, entries: trees.Entries) -> Iterator[bytes]:
    """Of each entry in turn, by one git for all of them."""
    with subprocess.Popen(
        ["git", "cat-file", "--batch"], cwd=root, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for path, entry in entries.items():
            with contextlib.suppress(BrokenPipeError):  # git's answer, which is then none, says so
                process.stdin.write(f"{entry.blob}\n".encode())
                process.stdin.flush()
            words = process.stdout.readline().split()
            if len(words) != 3 or words[1] != b"blob":
                what = f"git has no content of {os.fsdecode(path)}"
                raise InfrastructureError(what, where=str(root), next_step="git fsck")
            trees.refuse_length(path, entry, int(words[2]))
            yield process.stdout.read(int(words[2]))
            process.stdout.read(1)
        process.stdin.close()
