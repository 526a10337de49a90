"""The kernels and the matrix.yaml that an installed fmha brings along, for use where there is no checkout."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from fmha.harness import account
from fmha.harness.errors import InfrastructureError

_PACKAGE = Path(__file__).resolve().parent
_BROUGHT = _PACKAGE / "project"  # a wheel has it; CMakeLists.txt puts it there
_MARK = "matrix.yaml"


def brought() -> bool:
    """Whether this fmha was installed with kernels, which an editable one finds in its checkout instead."""
    return (_BROUGHT / _MARK).is_file()


def documents() -> Path:
    """The folder of the documentation: the checkout's, or what a wheel brings of it."""
    return (_BROUGHT if brought() else _PACKAGE.parent) / "docs"


def version() -> str:
    """Of the installed distribution."""
    from importlib import metadata  # here: a checkout does not ask

    return metadata.version("fmha")


def unpacked() -> Path:
    """A copy, in the account's folder, of the kernel/ and matrix.yaml that fmha brings. One that is there is used.
    Raises InfrastructureError when it cannot be made."""
    home = account.folder("project") / _digest()
    if (home / _MARK).is_file():
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as temporary:
            part = Path(temporary) / "project"
            shutil.copytree(_BROUGHT, part)
            with contextlib.suppress(FileExistsError, NotADirectoryError):  # another run was faster
                os.rename(part, home)
    except OSError as error:
        if not (home / _MARK).is_file():
            raise InfrastructureError(
                f"cannot unpack the kernels: {error.strerror}",
                where=str(home),
                next_step=f"set {account.VARIABLE} to another folder",
            ) from error
    return home


def sources() -> Path:
    """Where this fmha's own kernels can be built: its checkout, else a copy in the user's cache of what it brought."""
    if not brought():
        return _PACKAGE.parent
    return unpacked()


@functools.cache
def _digest() -> str:
    """Of names and bytes, so that another version is another folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in _BROUGHT.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(_BROUGHT).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return f"{version()}-{digest.hexdigest()[:16]}"
