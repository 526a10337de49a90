"""Where fmha keeps what it makes for itself: a folder of the account's, outside of every checkout.

Nothing in it comes with a commit. It is the account's alone, or it is refused: who can write there decides what is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from fmha.harness.errors import InfrastructureError, UserError

VARIABLE = "FMHA_CACHE"  # names another folder
OWN = ".fmha"  # of a checkout
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def folder(name: str, outside: Path | None = None) -> Path:
    """The folder `name` of the account's, made if it is not there. Raises InfrastructureError for one that another
    account can write, or that lies in the checkout `outside`."""
    found = _top() / name
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (_top(), found):
            _refuse_others(path)
    except OSError as error:
        raise InfrastructureError(
            f"fmha cannot keep what it makes: {error.strerror}",
            where=str(found),
            next_step=f"set {VARIABLE} to a folder of your own",
        ) from error
    if outside is not None and found.resolve().is_relative_to(outside.resolve()):
        raise InfrastructureError(
            "fmha's own folder lies in the checkout, where a commit could bring its content",
            where=str(found),
            next_step=f"set {VARIABLE} to a folder elsewhere",
        )
    return found


def take(path: Path) -> bytes | None:
    """What `keep` wrote to a file; None where that is not there, or damaged."""
    with contextlib.suppress(OSError):
        head, _, data = path.read_bytes().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() == head:
            return data
    return None


def keep(path: Path, data: bytes, most: int) -> None:
    """Writes a file whole, behind a digest of it, and leaves the latest `most` of its folder. Raises OSError."""
    import tempfile  # here: as a rule nothing is to be written, and a command waits for its imports

    descriptor, part = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    for old in sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)[most:]:
        old.unlink(missing_ok=True)


def in_checkout(root: Path, name: str) -> Path:
    """`.fmha/name` of a checkout, for what is written there and read by nobody who judges. Raises UserError where it is
    a link, or lies behind one: a commit can bring one that leads anywhere."""
    return no_link(no_link(root / OWN) / name)


def made_in_checkout(root: Path, name: str) -> Path:
    """The same, made where it is not there. Git sees nothing of `.fmha`, whatever the checkout's own .gitignore says:
    what is written there makes no tree differ from its commit."""
    folder = in_checkout(root, name)
    folder.mkdir(parents=True, exist_ok=True)
    ignore = no_link(no_link(root / OWN) / ".gitignore")
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return folder


def no_link(path: Path) -> Path:
    """`path`, unless it is a link. Raises UserError for one."""
    if path.is_symlink():
        what = "fmha writes below this folder, and it is a link"
        raise UserError(what, where=str(path), next_step="remove it: a commit may have brought it")
    return path


def _top() -> Path:
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if Path(caches).is_absolute() else Path.home() / ".cache") / "fmha"


def _refuse_others(path: Path) -> None:
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise InfrastructureError(
            "another account could write fmha's own folder, or it is a link",
            where=str(path),
            next_step=f"chmod go-w it if it is yours, or set {VARIABLE} to another",
        )
