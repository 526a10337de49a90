"""The exact commit, on this side: what is refused, what is pushed, what is packed."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fmha.harness.config import RemoteSettings
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.git import environment, git
from fmha.harness.hosts import secrets
from fmha.harness.hosts.carrier import LineError
from fmha.harness.supervisor.listing import ListingError, names_of
from fmha.harness.supervisor.rundir import HostError

GIT_SECONDS = 60.0
PUSH_SECONDS = 600.0
MOST_NAMED = 10
_PIECE = 1 << 16
_SNAPSHOT_AUTHOR = (("NAME", "fmha"), ("EMAIL", "fmha@localhost"))
# Over HTTP a name alone may be a token; over SSH it is an account.
_CREDENTIAL = re.compile(r"^(?:[a-z][a-z0-9+.-]*://[^/@]*:[^/@]*@|https?://[^/@]+@)", re.IGNORECASE)
Tell = Callable[[str], None]  # says what must be read before it happens
_USER = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class JudgedCommit:
    """The commit that a run judges. `branch` is None on a detached HEAD and for a snapshot."""

    sha: str
    branch: str | None


@dataclass(frozen=True, slots=True)
class CommitSource:
    """How the host gets a commit: `url` and `ref` to fetch, empty when the client sends it; `direct` if it may."""

    url: str
    ref: str
    direct: bool


def snapshot(root: Path, tell: Tell) -> str:
    """Commits the working tree as it is, and returns the commit. Says which files it takes that are in no commit yet.

    Left out is what git ignores, and of the files that git does not know yet what looks like a secret. One in a file
    that it knows cannot be left out, so it is refused. The commit gets a ref below refs/fmha/snapshots; branch, index
    and files stay as they are.
    """
    with tempfile.TemporaryDirectory(prefix="fmha-index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(root, "read-tree", "HEAD", more=index)
        listed = _git(root, "ls-files", "--others", "--exclude-standard", "-z", more=index)
        taken, left_out = _sifted(root, [name for name in listed.split("\0") if name])
        _git(root, "add", "--update", "--", ":/", more=index)
        _git(root, "update-index", "--add", "-z", "--stdin", text="".join(f"{name}\0" for name in taken), more=index)
        _refuse_secrets(root, index)
        tree = _git(root, "write-tree", more=index).strip()
    if taken:
        tell(f"the snapshot takes {_counted(taken, 'untracked file')}")
    if left_out:
        tell(f"the snapshot leaves out {_counted(left_out, 'file')}: name it in .gitignore, or commit it if it is none")
    head = _git(root, "rev-parse", "HEAD").strip()
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _SNAPSHOT_AUTHOR}
    sha = _git(root, "commit-tree", tree, "-p", head, "-m", f"snapshot of the working tree on {head}", more=who).strip()
    _git(root, "update-ref", f"refs/fmha/snapshots/{sha}", sha)
    return sha


def _sifted(root: Path, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The untracked files that a snapshot takes, and those that it leaves out, these with the reason."""
    taken, left_out = [], []
    for name in names:
        if name.endswith("/"):
            left_out.append(f"{name!r} (a repository of its own)")
        elif secrets.by_name(name):
            left_out.append(f"{name!r} (a name for secrets)")
        elif what := secrets.by_content(_beginning(root / name)):
            left_out.append(f"{name!r} (has {what})")
        else:
            taken.append(name)
    return taken, left_out


def _beginning(path: Path) -> bytes:
    """What a file begins with; nothing of a link, whose text is all that a commit holds of it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(secrets.LARGEST_BYTES)


def _refuse_secrets(root: Path, index: Mapping[str, str]) -> None:
    """Refuses a change that puts a secret into a file that is in the commit."""
    changed = _git(root, "diff", "--cached", "--name-only", "--no-renames", "--diff-filter=M", "-z", "HEAD", more=index)
    for name in filter(None, changed.split("\0")):
        what = secrets.by_content(_beginning(root / name))
        if what and secrets.by_content(_git(root, "show", f"HEAD:{name}").encode("utf-8", "surrogateescape")) != what:
            raise UserError(
                f"{name!r} has {what} that the commit has not, and a snapshot would hold it",
                next_step="take it out of the file, or commit it if it is none",
            )


def _counted(names: Sequence[str], noun: str) -> str:
    shown = ", ".join(name if name.startswith(("'", '"')) else repr(name) for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''}: {shown}{more}"


def refuse_dirty(files: Sequence[str]) -> None:
    """A run elsewhere judges a commit, so files that are in none are refused."""
    if files:
        named = ", ".join(map(repr, files[:MOST_NAMED]))
        more = f" and {len(files) - MOST_NAMED} more" if len(files) > MOST_NAMED else ""
        raise UserError(f"the tree differs from the commit: {named}{more}", next_step="commit, or run with --snapshot")


def check(root: Path, sha: str) -> None:
    """Refuses commits that a plain worktree of theirs would not hold whole."""
    entries = [os.fsdecode(entry).partition("\t") for entry in _listed(root, sha)]
    modules = [name for facts, _, name in entries if facts.startswith("160000 ")]
    if modules:
        raise UserError(
            f"the commit has submodules, which no run gets: {', '.join(map(repr, modules[:MOST_NAMED]))}",
            next_step="copy what the kernel needs into the project",
        )
    for facts, _, name in entries:
        if name.rpartition("/")[2] == ".gitattributes":
            text = _git(root, "cat-file", "blob", facts.split()[2])
            if any("filter=lfs" in line.split("#")[0] for line in text.splitlines()):
                raise UserError(
                    f"the commit keeps files in Git LFS ({name!r}), which a run's worktree does not get",
                    next_step="take them out of LFS",
                )


def _listed(root: Path, sha: str) -> list[bytes]:
    """What git lists of a commit. Raises UserError for more than any commit needs."""
    try:
        return names_of(
            ["git", "-c", "safe.bareRepository=explicit", "ls-tree", "-r", "-z", "--full-tree", sha],
            cwd=root, environment=environment(), seconds=GIT_SECONDS,
        )  # fmt: skip
    except ListingError as error:
        words = _said(error.said.decode(errors="replace"))
        raise InfrastructureError(f"git ls-tree {error.what}: {words}", where=str(root)) from None
    except HostError as error:
        raise UserError(error.what, where=f"commit {sha[:12]}", next_step=error.next_step) from error


def publish(root: Path, commit: JudgedCommit, settings: RemoteSettings, tell: Tell) -> CommitSource:
    """Says how the host gets the commit; with `sync: remote` it is pushed to the shared remote if it is not there yet.

    `auto` pushes nothing: the host fetches what has been pushed already, from a remote that it may be told of, and is
    sent the rest. What is pushed, and where, is said before.
    """
    if settings.sync == "direct":
        return _direct(root)
    auto = settings.sync == "auto"
    remotes = _git(root, "remote").splitlines()
    if settings.remote not in remotes:
        if auto:
            return _direct(root)
        raise UserError(
            f"git knows no remote {settings.remote!r}; it has {', '.join(remotes) or 'none'}",
            next_step="set remote, or sync: direct",
        )
    url = settings.fetch_url or _git(root, "remote", "get-url", "--", settings.remote).strip()
    if _CREDENTIAL.match(url):
        if auto:
            return _direct(root)
        raise UserError(
            f"the URL of {settings.remote!r} holds a password or a token, which no host is told",
            next_step="take it out of the URL, set fetch_url, or set sync: direct",
        )
    ref = _pushed(root, settings.remote, commit)
    if auto and ref is None:
        return _direct(root)
    if ref is None:
        ref = f"refs/heads/{commit.branch}" if commit.branch else f"refs/fmha/commits/{commit.sha}"
        _push(root, settings.remote, commit.sha, ref, tell)
    if not settings.fetch_url and os.path.exists(url):
        url = os.path.abspath(os.path.join(root, url))
    return CommitSource(url, ref, auto and not _shallow(root))


def _pushed(root: Path, remote: str, commit: JudgedCommit) -> str | None:
    """A branch of the remote that has the commit, as far as is known here; its own one if that has."""
    ours = f"refs/remotes/{remote}/"
    listed = _git(root, "for-each-ref", "--contains", commit.sha, "--format=%(refname)", ours).splitlines()
    branches = [name.removeprefix(ours) for name in listed if name != f"{ours}HEAD"]
    branch = commit.branch if commit.branch in branches else next(iter(branches), None)
    return f"refs/heads/{branch}" if branch else None


class Pack:
    """A pack that brings commits to a repository that has others. It is made once, however often it has to be sent;
    then `bytes` is its size and `digest` its sha256."""

    def __init__(self, root: Path, commits: Sequence[str]) -> None:
        self._root = root
        self._commits = commits
        self._file: IO[bytes] | None = None
        self._built_on: frozenset[str] = frozenset()
        self.bytes = 0
        self.digest = ""

    def make(self, haves: Sequence[str]) -> None:
        """Anew only when it was built on a commit that is not among `haves` any more."""
        if self._file is not None and self._built_on <= set(haves):
            return
        known = "".join(f"{have}\n" for have in haves)
        listed = _git(self._root, "cat-file", "--batch-check=%(objectname) %(objecttype)", text=known)
        self._built_on = frozenset(line.split()[0] for line in listed.splitlines() if line.endswith(" commit"))
        wanted = "".join([*(f"{sha}\n" for sha in self._commits), *(f"^{have}\n" for have in sorted(self._built_on))])
        self.close()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`, after the last connection
        # One thread: the same objects are then the same bytes, and another process can go on where this one stopped.
        command = ["git", "-c", "pack.threads=1", "pack-objects", "--revs", "--thin", "--stdout", "--quiet"]
        done = subprocess.run(
            [*command, "--delta-base-offset"], cwd=self._root, env=environment(), input=wanted.encode(),
            stdout=self._file, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise InfrastructureError(
                "git pack-objects failed", where=str(self._root), next_step="git fsck may tell why"
            )
        self.bytes = self._file.tell()
        self._file.seek(0)
        self.digest = hashlib.file_digest(self._file, "sha256").hexdigest()

    def pieces(self, start: int) -> Iterator[bytes]:
        """From byte `start` on."""
        assert self._file is not None
        self._file.seek(start)
        while piece := self._file.read(_PIECE):
            yield piece

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _direct(root: Path) -> CommitSource:
    if _shallow(root):
        raise UserError(
            "a shallow clone cannot send a commit", next_step="git fetch --unshallow, or push it and set sync: remote"
        )
    return CommitSource("", "", True)


def _shallow(root: Path) -> bool:
    return _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"


def _push(root: Path, remote: str, sha: str, ref: str, tell: Tell) -> None:
    """Pushes the commit and nothing else, whatever push.followTags and the like would add."""
    urls = _git(root, "remote", "get-url", "--push", "--all", "--", remote).split()
    tell(f"pushing commit {sha[:12]} to {remote} ({', '.join(_USER.sub('', url) for url in urls)}) as {ref}")
    only = ("--no-follow-tags", "--recurse-submodules=no")
    done = git(root, "push", "--porcelain", *only, "--", remote, f"{sha}:{ref}", seconds=PUSH_SECONDS)
    if done.returncode == 0:
        return
    rejected = [line for line in done.stdout.splitlines() if line.startswith("!\t")]
    if rejected:
        reason = rejected[0].split("\t")[-1]
        words = [line.removeprefix("remote: ").strip() for line in done.stderr.splitlines() if "remote: " in line]
        raise UserError(
            f"the push of {ref} to {remote!r} was rejected: {' '.join([reason, *filter(None, words[:2])])}",
            next_step="fetch and rebase, push to another branch, or set sync: direct",
        )
    raise LineError(f"git push to {remote!r} failed: {_said(done.stderr)}")


def _git(root: Path, *arguments: str, more: Mapping[str, str] | None = None, text: str = "") -> str:
    """What git prints; names that are no UTF-8 survive."""
    done = git(root, *arguments, seconds=GIT_SECONDS, text=text, more=more, errors="surrogateescape")
    if done.returncode != 0:
        raise InfrastructureError(f"git {arguments[0]} failed: {_said(done.stderr)}", where=str(root))
    return done.stdout


def _said(stderr: str) -> str:
    """The line that says most; git repeats URLs, and what stands before their host may be secret."""
    lines = [_USER.sub("", line.strip()) for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("fatal:", "error:"))), (lines or ["no reason given"])[-1])
