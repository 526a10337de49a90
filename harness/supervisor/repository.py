"""The host's bare repository and the worktree of a run: exactly one commit, proved before anything is built."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from fmha.harness.supervisor import listing
from fmha.harness.supervisor import tree as trees
from fmha.harness.supervisor.rundir import HostError
from fmha.harness.worker.processes.groups import run_group

GIT_SECONDS = 120.0
FETCH_SECONDS = 600.0
MOST_HAVES = 256
_PIPE_BYTES = 1 << 20  # what git has ahead of who reads it: else each waits for the other every 64 KiB
LEAST_FREE_BYTES = 1 << 20  # with less nothing that git writes fits
_SSH = "GIT_SSH_COMMAND"
_SENT = "refs/fmha/commits"
# What a configuration of the host, or of the repository itself, must not decide.
_EXACT = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false", "-c", "core.quotePath=false",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "safe.directory=*",
    "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "-c", "core.symlinks=true",
    "-c", "transfer.fsckObjects=true", "-c", "fetch.fsckObjects=true", "-c", "receive.fsckObjects=true",
    "-c", "submodule.recurse=false", "-c", "fetch.recurseSubmodules=false",
)  # fmt: skip
# Of the account and of the machine none is read, but by `fetch`: it has the proxies and the keys.
_NOBODYS = {
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": "", "HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null",
}  # fmt: skip
_PROTOCOLS = "file:git:http:https:ssh"  # what the host may fetch over; others start programs (ext::, fd::, helpers)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LISTED: dict[tuple[Path, str], trees.Entries] = {}  # by repository and commit
_LISTING = threading.Lock()  # whoever asks while somebody does waits for that answer
_STRAY = ("info/attributes", "info/exclude", "info/grafts", "info/sparse-checkout")  # a template may have brought them


class Repository:
    """`repository.git` in the working folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "repository.git"

    def ensure(self) -> None:
        """Makes the repository where there is none yet, and removes files that an aborted git left."""
        if not (self.path / "HEAD").is_file():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._git("init", "-q", "--bare", "--", str(self.path), at=self.path.parent)
        for name in _STRAY:
            (self.path / name).unlink(missing_ok=True)

    def has(self, sha: str) -> bool:
        """Whether the commit has been received whole: its ref is made only after its objects have been checked."""
        return self._succeeds("rev-parse", "--verify", "--quiet", f"{_SENT}/{_name(sha)}^{{commit}}")

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

    def receive(self, commits: Sequence[str], pack: BinaryIO) -> None:
        """Takes a pack and checks that it brings the commits."""
        command = ["git", *_EXACT, "index-pack", "--stdin", "--fix-thin", "--strict"]
        try:
            done = subprocess.run(
                command, cwd=self.path, env=self._environment(), stdin=pack, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=FETCH_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise HostError(f"git index-pack took longer than {FETCH_SECONDS:g} s on the host") from None
        if done.returncode != 0:
            raise HostError(f"the pack was not taken: {self._reason(done.stdout)}")
        for sha in commits:
            self.keep(sha)

    def fetch(self, url: str, ref: str, sha: str) -> None:
        """Fetches `ref` from the shared remote and checks that it brings the commit."""
        self._git(
            "fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", url,
            f"+{ref}:refs/fmha/fetched/{_name(sha)}", seconds=FETCH_SECONDS, own=False,
        )  # fmt: skip
        if not self._succeeds("cat-file", "-e", f"{_name(sha)}^{{commit}}"):
            raise HostError(
                f"commit {sha} is not at the host: its remote has no such commit on {ref}",
                "see which repository the host fetches from (fetch_url), or set sync: direct",
            )
        self.keep(sha)

    def keep(self, sha: str) -> None:
        """Makes the commit's ref, provided that everything it needs is there."""
        if not self._succeeds("rev-list", "--objects", "--quiet", _name(sha), "--not", f"--glob={_SENT}"):
            raise HostError(f"commit {sha} is not at the host as a whole", "set sync: direct")
        self._git("update-ref", "--no-deref", f"{_SENT}/{_name(sha)}", sha)

    def check_out(self, sha: str, tree: Path, like: Path | None = None) -> None:
        """A worktree of its own at exactly `sha`: it was empty, and has what `sha` names by content. Nothing is written
        of one whose tree could lead out of it. `like` is another, from which is taken what is the same."""
        entries = self._entries(sha)
        links = {path: entry for path, entry in entries.items() if entry.mode == trees.LINK}
        ordered = {**links, **entries}
        known = trees.alike(ordered, like) if like is not None else {}
        with contextlib.closing(self._contents(ordered, known)) as contents:  # git is ahead of the worktree
            texts = dict(zip(links, itertools.islice(contents, len(links)), strict=True))
            trees.refuse(entries, texts)
            self._git("worktree", "add", "-q", "--no-checkout", "--detach", "--force", "--", str(tree), sha)
            trees.write(ordered, itertools.chain(texts.values(), contents), tree, known)

    def prove(self, sha: str, tree: Path) -> None:
        """Raises HostError unless every file of the worktree has the contents that `sha` has, and none was added."""
        entries = self._entries(sha)
        if changed := trees.differences(entries, tree, lambda paths: self._ignored(paths, tree)):
            raise HostError(
                f"the worktree on the host was changed: {trees.named(changed)}", "nothing on a host is edited"
            )

    def _entries(self, sha: str) -> trees.Entries:
        """What git lists of a commit, which it is asked once: what it would say after a run may be another's word."""
        with _LISTING:
            if (self.path, sha) not in _LISTED:
                _LISTED[self.path, sha] = self._listed(sha)
            return _LISTED[self.path, sha]

    def _listed(self, sha: str) -> trees.Entries:
        found = self._listing("ls-tree", "-r", "-t", "-z", "--full-tree", "--end-of-options", _name(sha))
        facts = (entry.partition(b"\t") for entry in found)
        return trees.listed((path, trees.TreeEntry(*_mode_and_blob(words))) for words, _, path in facts)

    def _contents(
        self, entries: Mapping[bytes, trees.TreeEntry], known: Mapping[bytes, bytes]
    ) -> Generator[bytes, None, None]:
        """The blobs in the order of the entries: those that are known, and the others as soon as git has unpacked
        them."""
        asked = {path: entry for path, entry in entries.items() if path not in known}
        with contextlib.closing(self._unpacked(asked) if asked else _nothing()) as unpacked:
            for path in entries:
                yield known[path] if path in known else next(unpacked)
            for _ in unpacked:  # whether git has come to its end well
                pass

    def _unpacked(self, entries: Mapping[bytes, trees.TreeEntry]) -> Generator[bytes, None, None]:
        with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as said:
            names.write("".join(f"{entry.blob}\n" for entry in entries.values()).encode())
            names.seek(0)
            command = ["git", *_EXACT, "cat-file", "--batch"]
            with subprocess.Popen(
                command, cwd=self.path, env=self._environment(), stdin=names, stdout=subprocess.PIPE, stderr=said
            ) as git:
                assert git.stdout is not None
                with contextlib.suppress(OSError):  # an account has only so many large pipes
                    fcntl.fcntl(git.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                limit = threading.Timer(GIT_SECONDS, git.kill)
                limit.start()
                whole = True
                try:
                    for path, entry in entries.items():
                        head = git.stdout.readline()
                        _, _, size = head.partition(b" blob ")
                        length = int(size) if size.strip().isdigit() else -1  # a submodule is none of our objects
                        trees.refuse_length(path, entry, length)
                        data = git.stdout.read(length + 1)
                        whole = head.endswith(b"\n") and len(data) == length + 1
                        if not whole:
                            break
                        yield data[:-1]
                finally:
                    limit.cancel()
            if git.returncode != 0 or not whole:
                said.seek(0)
                raise HostError(f"git cat-file failed on the host: {self._reason(said.read())}")

    def _ignored(self, paths: list[bytes], tree: Path) -> set[bytes]:
        """Those that the .gitignore files of the worktree name."""
        names = b"".join(path + b"\0" for path in paths)
        listed = self._pipe(["check-ignore", "--no-index", "--stdin", "-z"], names, tree=tree, good=(0, 1))
        return {path for path in listed.split(b"\0") if path}

    def remove(self, tree: Path) -> None:
        """Removes a worktree, whatever state it is in."""
        self._succeeds("worktree", "remove", "--force", "--force", "--", str(tree))

    def prune(self) -> None:
        """Forgets worktrees that are gone, and drops objects that nothing needs, but for young ones: uploads
        have no ref yet."""
        self._git("worktree", "prune")
        self._git("gc", "--quiet", "--prune=2.hours.ago", seconds=FETCH_SECONDS)

    def forget(self, sha: str) -> None:
        """Deletes the references by which a commit was sent or fetched."""
        self._succeeds("update-ref", "-d", f"{_SENT}/{_name(sha)}")
        self._succeeds("update-ref", "-d", f"refs/fmha/fetched/{_name(sha)}")

    def blobs(self, sha: str, suffix: str) -> list[tuple[str, str]]:
        """Object id and path of every file of the commit whose name ends so."""
        end = os.fsencode(suffix)
        found = ((path, entry) for path, entry in self._entries(sha).items() if path.endswith(end))
        return [(entry.blob, os.fsdecode(path)) for path, entry in found if entry.mode != trees.LINK]

    def has_file(self, sha: str, path: str) -> bool:
        """Whether the commit has a file at that path."""
        return os.fsencode(path) in self._entries(sha)

    def approve(self, sha: str) -> None:
        """Keeps the commit for good: later ones are compared with it."""
        self._git("update-ref", f"refs/fmha/approved/{_name(sha)}", sha)

    def changed(self, old: str, new: str, paths: Sequence[str]) -> list[str]:
        """Names at `paths` that differ between two commits."""
        found = self._listing(
            "diff", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "-z", "--end-of-options",
            _name(old), _name(new), "--", *paths,
        )  # fmt: skip
        return [os.fsdecode(name) for name in found]

    def _listing(self, *arguments: str) -> list[bytes]:
        """What git prints with -z, item by item; no more than any commit needs."""
        command, variables = ["git", *_EXACT, *arguments], self._environment()
        try:
            return listing.names_of(command, cwd=self.path, environment=variables, seconds=GIT_SECONDS)
        except listing.ListingError as error:
            why = f": {self._reason(error.said)}" if error.said else ""
            raise HostError(f"git {arguments[0]} {error.what} on the host{why}") from None
        except FileNotFoundError as error:
            raise _missing(error) from error

    def _git(self, *arguments: str, at: Path | None = None, seconds: float = GIT_SECONDS, own: bool = True) -> str:
        """What git prints. It reads no configuration but ours, or the account's too if not `own`."""
        command, variables = ["git", *_EXACT, *arguments], self._environment(own=own)
        try:
            completed = run_group(command, cwd=at or self.path, limit_seconds=seconds, env=variables)
        except FileNotFoundError as error:
            raise _missing(error) from error
        if completed.timed_out:
            raise HostError(f"git {arguments[0]} took longer than {seconds:g} s on the host")
        if completed.returncode != 0:
            raise HostError(f"git {arguments[0]} failed on the host: {self._reason(completed.output.encode())}")
        return completed.output

    def _succeeds(self, *arguments: str) -> bool:
        command = ["git", *_EXACT, *arguments]
        try:
            completed = run_group(command, cwd=self.path, limit_seconds=GIT_SECONDS, env=self._environment())
        except FileNotFoundError as error:
            raise _missing(error) from error
        return completed.returncode == 0 and not completed.timed_out

    def _pipe(
        self, arguments: Sequence[str], text: bytes = b"", *, tree: Path | None = None, good: Sequence[int] = (0,)
    ) -> bytes:
        """The very bytes that git prints, `text` on its standard input."""
        variables = self._environment()
        if tree:
            variables |= {"GIT_WORK_TREE": str(tree), "GIT_LITERAL_PATHSPECS": "0"}  # names all the same: no patterns
        try:
            done = subprocess.run(
                ["git", *_EXACT, *arguments], cwd=tree or self.path, env=variables, input=text, capture_output=True,
                timeout=GIT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise HostError(f"git {arguments[0]} took longer than {GIT_SECONDS:g} s on the host") from None
        if done.returncode not in good:
            raise HostError(f"git {arguments[0]} failed on the host: {self._reason(done.stderr)}")
        return done.stdout

    def _reason(self, output: bytes) -> str:
        """What git says, and what it leaves out of `unable to write file`."""
        full = shutil.disk_usage(self.path).free < LEAST_FREE_BYTES
        return f"{_last_line(output)}{', and the disk is full' if full else ''}"

    def _environment(self, *, own: bool = True) -> dict[str, str]:
        """Paths are names, not patterns; git never asks for a password; its words are English; and it looks for no
        other repository than ours."""
        kept = {name: value for name, value in os.environ.items() if name == _SSH or not name.startswith("GIT_")}
        words = {"GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        words |= {"GIT_ALLOW_PROTOCOL": _PROTOCOLS, "GIT_PROTOCOL_FROM_USER": "0"}
        ours = {"GIT_DIR": str(self.path), "GIT_NO_REPLACE_OBJECTS": "1"}
        return kept | words | ours | (_NOBODYS if own else {})


def _nothing() -> Generator[bytes, None, None]:
    yield from ()


def _name(sha: str) -> str:
    """The name of a commit, and nothing that git could take for an option or for another revision."""
    if not _COMMIT.fullmatch(sha):
        raise HostError(f"{sha[:80]!r} is no commit, which is 40 hexadecimal digits", usage=True)
    return sha


def _missing(error: FileNotFoundError) -> HostError:
    """git is not there; a folder that is not there is none of that."""
    if error.filename != "git":
        return HostError(f"{error.filename}: {error.strerror}", "see fmha doctor")
    return HostError("there is no git on the PATH of a login of the host", "install git there; see fmha doctor --host")


def _mode_and_blob(words: bytes) -> tuple[str, str]:
    mode, _, blob = words.decode("ascii").split()
    return mode, blob


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))]
    return (fatal or lines or ["no reason given"])[0]
