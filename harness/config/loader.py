"""Reads matrix.yaml. Every problem is one line that names the file, the line and the field."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmha.harness.config import matrix_cache
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.own_settings import VARIABLE, hosts_file

if TYPE_CHECKING:
    from fmha.harness.config.matrix_model import Matrix

MATRIX_FILE = "matrix.yaml"
MOST_BYTES = 1 << 20  # of the file: who reads it may have it from a stranger


def load(root: Path, *, own: bool = True) -> Matrix:
    """Read `matrix.yaml` in `root`, and over its hosts one's `own`. Raises UserError when a file cannot be read,
    ConfigError when it is wrong."""
    path = root / MATRIX_FILE
    try:
        raw = _bytes(path)
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            next_step="run fmha in a checkout that has a matrix.yaml",
        ) from error
    if len(raw) > MOST_BYTES:
        raise ConfigError([f"{MATRIX_FILE}:1: has more than {MOST_BYTES} bytes"])
    return _known(root, raw, own, matrix_cache.name_of(raw, _own_bytes() if own else None)) or _anew(root, raw, own)


def kept_hosts(root: Path) -> Mapping[str, Any] | None:
    """The settings of the hosts as plain data, if the file has been read before; nothing else is loaded for it."""
    with contextlib.suppress(OSError):
        if (
            found := matrix_cache.plain(root, matrix_cache.name_of(_bytes(root / MATRIX_FILE), _own_bytes()))
        ) is not None:
            return matrix_cache.hosts_of(found)
    return None


def _bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MOST_BYTES + 1)


@functools.lru_cache(maxsize=4)  # a command asks for its matrix more than once
def _known(root: Path, raw: bytes, own: bool, name: str) -> Matrix | None:
    """None for a file that names its kernels: what it means is not in its text alone."""
    if (found := matrix_cache.take(root, name)) is not None:
        return found
    from fmha.harness.config.reading import ours

    if ours(_text(raw), MATRIX_FILE, _digest(raw)) is None:
        return None
    matrix_cache.keep(root, name, matrix := _anew(root, raw, own))
    return matrix


def _anew(root: Path, raw: bytes, own: bool) -> Matrix:
    from fmha.harness.config.reading import read, with_own

    file, matrix = read(_text(raw), MATRIX_FILE, _digest(raw), lambda: root)
    return with_own(file, matrix) if own else matrix


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{MATRIX_FILE}:{line}: broken YAML: not UTF-8"]) from error


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _own_bytes() -> bytes:
    """One's own hosts as they are written; nothing where there is no file. Whoever reads it says what is wrong."""
    path = hosts_file()
    try:
        return path.read_bytes() if path else b""
    except OSError as error:
        return f"{VARIABLE in os.environ} {error}".encode()


def interpret(text: str, name: str, sha256: str, root: Callable[[], Path] = Path.cwd) -> Matrix:
    """The text of a matrix file as a Matrix; `root`, which is asked where the text names kernels, is where they are.
    Raises ConfigError with one line a problem."""
    from fmha.harness.config.reading import read

    return read(text, name, sha256, root)[1]
