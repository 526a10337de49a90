"""The host's bare repository and the worktree of a run: exactly one commit, proved before anything is built."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.supervisor.rundir import HostError
from harness.worker.process import run_group

GIT_SECONDS = 120.0
FETCH_SECONDS = 600.0
MOST_HAVES = 256
MOST_NAMED = 10
_SSH = "GIT_SSH_COMMAND"
_SENT = "refs/fmha/commits"
_HEAD = "# branch.oid "
# The host's own settings may name hooks, filters or line endings; none of them may touch a tree that is to be exact.
_EXACT = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null", "-c", "gc.auto=0", "-c", "advice.detachedHead=false",
)  # fmt: skip


class Repository:
    """`repository.git` in the working folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "repository.git"

    def ensure(self) -> None:
        if not (self.path / "HEAD").is_file():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._git("init", "-q", "--bare", "--", str(self.path), at=self.path.parent)

    def has(self, sha: str) -> bool:
        """Whether the commit has been received whole: its ref is made only after its objects have been checked."""
        return self._succeeds("rev-parse", "--verify", "--quiet", f"{_SENT}/{sha}^{{commit}}")

    def adopt(self, sha: str) -> bool:
        """Whether the commit is here whole; one that came with another that builds on it gets its ref."""
        if not self.has(sha):
            with contextlib.suppress(HostError):
                self.keep(sha)
        return self.has(sha)

    def haves(self) -> list[str]:
        """Commits received before, newest first, that a pack may build on."""
        count = f"--count={MOST_HAVES}"
        return self._git("for-each-ref", count, "--sort=-creatordate", "--format=%(objectname)", _SENT).split()

    def receive(self, commits: Sequence[str], feed: Callable[[], bytes]) -> None:
        """Takes a pack, `feed` returning its pieces and nothing at its end, and checks that it brings the commits."""
        command = ["git", *_EXACT, "index-pack", "--stdin", "--fix-thin", "--strict"]
        process = subprocess.Popen(
            command, cwd=self.path, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdin is not None
        try:
            while piece := feed():
                process.stdin.write(piece)
        except BrokenPipeError:
            while feed():
                pass
        finally:
            try:
                output, _ = process.communicate(timeout=GIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
        if process.returncode != 0:
            raise HostError(f"the pack was not taken: {_last_line(output)}")
        for sha in commits:
            self.keep(sha)

    def fetch(self, url: str, ref: str, sha: str) -> None:
        """Fetches `ref` from the shared remote and checks that it brings the commit."""
        self._git(
            "fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", url,
            f"+{ref}:refs/fmha/fetched/{sha}", seconds=FETCH_SECONDS,
        )  # fmt: skip
        if not self._succeeds("cat-file", "-e", f"{sha}^{{commit}}"):
            raise HostError(
                f"commit {sha} is not at the host: its remote has no such commit on {ref}",
                "see which repository the host fetches from (fetch_url), or set sync: direct",
            )
        self.keep(sha)

    def keep(self, sha: str) -> None:
        """Makes the commit's ref, provided that everything it needs is there."""
        if not self._succeeds("rev-list", "--objects", "--quiet", sha, "--not", f"--glob={_SENT}"):
            raise HostError(f"commit {sha} is not at the host as a whole", "set sync: direct")
        self._git("update-ref", f"{_SENT}/{sha}", sha)

    def check_out(self, sha: str, tree: Path) -> None:
        """A worktree of its own at exactly `sha`."""
        self._git("worktree", "add", "-q", "--detach", "--force", "--", str(tree), sha)
        self.prove(sha, tree)

    def prove(self, sha: str, tree: Path) -> None:
        """Raises HostError unless HEAD of the worktree is `sha` and no file differs or has been added."""
        how = ("--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames")
        entries = [entry for entry in self._git("status", *how, at=tree).split("\0") if entry]
        head = next((entry.removeprefix(_HEAD) for entry in entries if entry.startswith(_HEAD)), "at no commit")
        if head != sha:
            raise HostError(f"the worktree is at {head}, not at {sha}")
        if changed := [_path(entry) for entry in entries if not entry.startswith("# ")]:
            raise HostError(f"the worktree on the host was changed: {_named(changed)}", "nothing on a host is edited")

    def remove(self, tree: Path) -> None:
        """Removes a worktree, whatever state it is in."""
        self._succeeds("worktree", "remove", "--force", "--force", "--", str(tree))

    def prune(self) -> None:
        """Forgets worktrees that are gone, and drops objects that nothing needs, but for young ones: uploads
        have no ref yet."""
        self._git("worktree", "prune")
        self._git("gc", "--quiet", "--prune=2.hours.ago", seconds=FETCH_SECONDS)

    def forget(self, sha: str) -> None:
        self._succeeds("update-ref", "-d", f"{_SENT}/{sha}")
        self._succeeds("update-ref", "-d", f"refs/fmha/fetched/{sha}")

    def blobs(self, sha: str, suffix: str) -> list[tuple[str, str]]:
        """Object id and path of every file of the commit whose name ends so."""
        listing = self._git("ls-tree", "-r", "-z", "--full-tree", sha)
        entries = (entry.partition("\t") for entry in listing.split("\0") if entry.endswith(suffix))
        return [(facts.split()[2], path) for facts, _, path in entries]

    def fingerprint(self, sha: str, paths: Sequence[str]) -> str:
        """sha256 over what the commit has at `paths`: modes, object ids and names."""
        listing = self._git("ls-tree", "-r", "-z", "--full-tree", sha, "--", *paths)
        return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()

    def changed(self, old: str, new: str, paths: Sequence[str]) -> list[str]:
        """Names at `paths` that differ between two commits."""
        listing = self._git("diff", "--name-only", "--no-renames", "-z", old, new, "--", *paths)
        return [name for name in listing.split("\0") if name]

    def _git(self, *arguments: str, at: Path | None = None, seconds: float = GIT_SECONDS) -> str:
        command = ["git", *_EXACT, *arguments]
        completed = run_group(command, cwd=at or self.path, limit_seconds=seconds, env=_environment())
        if completed.timed_out:
            raise HostError(f"git {arguments[0]} took longer than {seconds:g} s on the host")
        if completed.returncode != 0:
            raise HostError(f"git {arguments[0]} failed on the host: {_last_line(completed.output.encode())}")
        return completed.output

    def _succeeds(self, *arguments: str) -> bool:
        completed = run_group(
            ["git", *_EXACT, *arguments], cwd=self.path, limit_seconds=GIT_SECONDS, env=_environment()
        )
        return completed.returncode == 0 and not completed.timed_out


def _environment() -> dict[str, str]:
    """Paths are names, not patterns; git never asks for a password; and its words are English."""
    kept = {name: value for name, value in os.environ.items() if name == _SSH or not name.startswith("GIT_")}
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _path(entry: str) -> str:
    """The path in an entry of `git status --porcelain=v2`; how many fields stand before it depends on its kind."""
    return entry.split(" ", {"1": 8, "u": 10}.get(entry[0], 1))[-1]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:MOST_NAMED]))
    return shown + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))]
    return (fatal or lines or ["no reason given"])[0]
