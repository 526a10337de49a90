"""The files of a commit on disk: written as they are in it, and proved by their contents.

git's own checkout changes files where somebody's configuration, attributes or locale say so: line endings, filters,
links as plain files, expanded keywords. Here a file is the bytes of its blob and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.supervisor.rundir import HostError

MOST_NAMED = 10
MOST_ALIKE = 64 << 20  # bytes that are taken from another tree, and held until they are written
MOST_LINK = 4096  # bytes of a path, in linux/limits.h
PLAIN, EXECUTABLE, LINK, FOLDER = "100644", "100755", "120000", "040000"
_MODULE = "160000"
_MADE_BY_HAND = "git itself makes no such commit: see who has made it"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_STEPS = 4096  # of a link through others
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])  # by HFS+
_USUAL = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # a name that nobody takes for git's
_NOT_OURS = frozenset({b".git"})  # at the root: git's own note of which worktree this is


@dataclass(frozen=True)
class TreeEntry:
    """A file of a commit: its mode and the id of its blob, as git has them."""

    mode: str
    blob: str


Entries = Mapping[bytes, TreeEntry]


def listed(found: Iterable[tuple[bytes, TreeEntry]]) -> dict[bytes, TreeEntry]:
    """The files of a tree that git has listed with its folders. Raises HostError for a tree that no folder can hold:
    two entries of one name, something below a file or a link, a name that is none, or one of git's own."""
    entries: dict[bytes, TreeEntry] = {}
    folders: set[bytes] = set()
    for path, entry in found:
        above, _, name = path.rpartition(b"/")
        if _forbidden(name):  # as those above it were, each a folder of this list
            raise HostError(f"the commit has a file that no tree may have: {os.fsdecode(path)!r}")
        if path in entries or path in folders:
            raise HostError(f"the commit has two entries of one name: {os.fsdecode(path)!r}", _MADE_BY_HAND)
        if above and above not in folders:
            raise HostError(f"the commit has a file below what is no folder: {os.fsdecode(path)!r}", _MADE_BY_HAND)
        if entry.mode == FOLDER:
            folders.add(path)
        elif entry.mode in (PLAIN, EXECUTABLE, LINK):
            entries[path] = entry
        elif entry.mode == _MODULE:
            raise HostError(f"the commit has {os.fsdecode(path)!r} as a submodule, which no run gets")
        else:
            raise HostError(f"the commit has {os.fsdecode(path)!r} with mode {entry.mode}", _MADE_BY_HAND)
    return entries


def refuse_length(path: bytes, entry: TreeEntry, size: int) -> None:
    """Raises HostError for a link whose text is longer than the kernel lets any be: nobody reads it to find out where
    it leads. A commit can have one of many gigabytes, in a pack of a few."""
    if entry.mode == LINK and size > MOST_LINK:
        raise HostError(f"the commit has a link of {size} bytes, {os.fsdecode(path)!r}", _MADE_BY_HAND)


def refuse(entries: Entries, texts: Mapping[bytes, bytes]) -> None:
    """Raises HostError for links that lead out of the tree; `texts` is what each of them says."""
    out = [path for path in texts if _leads_out(path, texts)]
    if out:
        raise HostError(f"the commit has links that lead out of it: {named(out)}", "copy what they lead to")


def _leads_out(link: bytes, texts: Mapping[bytes, bytes]) -> bool:
    """Follows a link as the kernel would in a tree that has these links and no others. What is not in the tree may be
    made later, and is taken for a folder; a link that comes back to itself leads nowhere."""
    here = link.split(b"/")[:-1]
    ahead = texts[link].split(b"/")[::-1]
    if texts[link].startswith(b"/"):
        return True
    for _ in range(_MOST_STEPS):
        if not ahead:
            return False
        part = ahead.pop()
        if part in (b"", b"."):
            continue
        if part == b"..":
            if not here:
                return True
            here.pop()
            continue
        here.append(part)
        if (text := texts.get(b"/".join(here))) is not None:
            if text.startswith(b"/"):
                return True
            here.pop()
            ahead += text.split(b"/")[::-1]
    return False


def _forbidden(name: bytes) -> bool:
    """No name of a file, or one that some file system takes for `.git`: by case, by what HFS+ ignores, by how NTFS
    shortens it and drops what is at its end."""
    if _USUAL.fullmatch(name):
        return False
    if name in (b"", b".", b".."):
        return True
    parts = os.fsdecode(name).translate(_IGNORED).casefold().split("\\")
    return any(re.fullmatch(r"\.git|git~[0-9]+", part.split(":")[0].rstrip(". ")) for part in parts)


def alike(entries: Entries, tree: Path) -> dict[bytes, bytes]:
    """What another tree has of the contents that `entries` name, by path, each proved by its name: of two commits most
    files are the same, and git unpacks one in twice the time that it takes to read it."""
    root, found, left = os.fsencode(tree), {}, MOST_ALIKE
    for path, entry in entries.items():
        try:
            data = os.readlink(root + b"/" + path) if entry.mode == LINK else _plain(root + b"/" + path, left)[1]
        except OSError:
            continue
        if name_of_blob(data, entry.blob) == entry.blob:
            found[path] = data
            left -= len(data)
    return found


def write(entries: Entries, blobs: Iterable[bytes], tree: Path, proved: Container[bytes] = ()) -> None:
    """Writes the files of `entries`, whose contents are `blobs` in the same order, into the folder `tree`. Raises
    HostError for contents that are not those which an entry names; those at the paths `proved` have been looked at.

    `entries` come from `listed`, and `refuse` has let their links pass. Nothing may be there yet. Each file is made in
    the open folder that it is in, under a name that is one component, and links are made after everything else: there
    is nothing that a path could be led through. That is what openat2(2) promises with RESOLVE_BENEATH and
    RESOLVE_NO_SYMLINKS, on kernels and machines that do not have it as well; git's own checkout would decide by its
    configuration and by attributes what it writes.
    """
    links = []
    with _Folders(tree) as folders:
        if there := [name for name in os.listdir(os.fsencode(tree)) if name not in _NOT_OURS]:
            raise HostError(
                f"files are there already where the commit is to be written: {named(there)}", "see who writes there"
            )
        for (path, entry), data in zip(entries.items(), blobs, strict=True):
            if path not in proved and name_of_blob(data, entry.blob) != entry.blob:
                raise HostError(f"git has other contents of {os.fsdecode(path)!r} than the commit names", "git fsck")
            if entry.mode == LINK:
                links.append((path, data))
                continue
            above, _, name = path.rpartition(b"/")
            mode = 0o777 if entry.mode == EXECUTABLE else 0o666
            descriptor = os.open(name, _NEW, mode, dir_fd=folders.opened(above))
            try:
                _write(descriptor, data)
            finally:
                os.close(descriptor)
        for path, text in links:
            above, _, name = path.rpartition(b"/")
            os.symlink(text, name, dir_fd=folders.opened(above))


class _Folders:
    """The folders of a tree, each made and opened in the one above it and never through a link."""

    def __init__(self, tree: Path) -> None:
        self._open: list[tuple[bytes, int]] = [(b"", os.open(tree, _FOLDER))]  # the root, and on to the one in use

    def __enter__(self) -> _Folders:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop()[1])

    def opened(self, path: bytes) -> int:
        """The descriptor of a folder, which lasts until the next is asked for."""
        wanted = path.split(b"/") if path else []
        common = 0
        while common < min(len(wanted), len(self._open) - 1) and self._open[common + 1][0] == wanted[common]:
            common += 1
        while len(self._open) - 1 > common:
            os.close(self._open.pop()[1])
        for name in wanted[common:]:
            above = self._open[-1][1]
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            self._open.append((name, os.open(name, _FOLDER, dir_fd=above)))
        return self._open[-1][1]


def _write(descriptor: int, data: bytes) -> None:
    """All of it: one call writes 2 GiB at the most, and on a full disk what still fits."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def differences(entries: Entries, tree: Path, ignored: Callable[[list[bytes]], set[bytes]]) -> list[bytes]:
    """The files of `tree` that are not as in `entries`: changed, gone, or there without being in it or `ignored`."""
    root = os.fsencode(tree)
    different = [path for path, entry in entries.items() if not _same(root + b"/" + path, entry)]
    added = [path for path in _files(root) if path not in entries]
    return different + (sorted(set(added) - ignored(added)) if added else [])


def named(paths: list[bytes]) -> str:
    """Paths in words, the first of them by name."""
    shown = ", ".join(repr(os.fsdecode(path)) for path in paths[:MOST_NAMED])
    return shown + (f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else "")


def _same(path: bytes, entry: TreeEntry) -> bool:
    """Whether mode and contents are those of the entry; the id of a blob is the digest of both its size and bytes."""
    try:
        if entry.mode == LINK:
            return name_of_blob(os.readlink(path), entry.blob) == entry.blob
        mode, data = _plain(path)
    except OSError:
        return False
    executable = bool(mode & stat.S_IXUSR)
    return executable == (entry.mode == EXECUTABLE) and name_of_blob(data, entry.blob) == entry.blob


def _plain(path: bytes, most: float = math.inf) -> tuple[int, bytes]:
    """Mode and contents of a plain file. OSError for anything else, which nobody waits for, and for more than `most`
    bytes."""
    descriptor = os.open(path, _READ)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fsdecode(path))
        return found.st_mode, _read(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    """All of a file that had `size` bytes a moment ago."""
    pieces = []
    while piece := os.read(descriptor, size + 1):
        pieces.append(piece)
        size = max(size - len(piece), _PIECE)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def name_of_blob(data: bytes, like: str) -> str:
    """What git calls a blob with that content, by the algorithm that has made the name `like`."""
    algorithm = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return algorithm(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _files(root: bytes) -> list[bytes]:
    """Everything below `root` that is no folder, by its path from there."""
    found, folders = [], [b""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = folder + b"/" + entry.name if folder else entry.name
                if path in _NOT_OURS:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    found.append(path)
    return found
