"""Reads matrix.yaml. Every problem is one line that names the file, the line and the field."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fmha.harness.config.document import FileSection, MatrixFile
from fmha.harness.config.model import Matrix
from fmha.harness.config.ours import guard_of, ours_of
from fmha.harness.config.own import own_hosts
from fmha.harness.config.peers import peers_of
from fmha.harness.config.suites import refuse_too_many
from fmha.harness.config.validation import conforming, mapping
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.judge.configuration import OURS

MATRIX_FILE = "matrix.yaml"
MOST_BYTES = 1 << 20  # of the file: who reads it may have it from a stranger


def load(root: Path, *, own: bool = True) -> Matrix:
    """Read `matrix.yaml` in `root`, and over its hosts one's `own`. Raises UserError when a file cannot be read,
    ConfigError when it is wrong."""
    path = root / MATRIX_FILE
    try:
        with path.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            next_step="run fmha in a checkout that has a matrix.yaml",
        ) from error
    if len(raw) > MOST_BYTES:
        raise ConfigError([f"{MATRIX_FILE}:1: has more than {MOST_BYTES} bytes"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{MATRIX_FILE}:{line}: broken YAML: not UTF-8"]) from error
    sha256 = hashlib.sha256(raw).hexdigest()
    file, matrix = _read(text, MATRIX_FILE, sha256, lambda: root)
    if not own:
        return matrix
    mine = own_hosts({name: section.model_dump(exclude_unset=True) for name, section in file.hosts.items()})
    return replace(matrix, hosts={**matrix.hosts, **mine})


def interpret(text: str, name: str, sha256: str, root: Callable[[], Path] = Path.cwd) -> Matrix:
    """The text of a matrix file as a Matrix; `root`, which is asked where the text names kernels, is where they are.
    Raises ConfigError with one line a problem."""
    return _read(text, name, sha256, root)[1]


def _read(text: str, name: str, sha256: str, root: Callable[[], Path]) -> tuple[FileSection, Matrix]:
    if (found := _ours(text, name, sha256)) is not None:
        return found
    from fmha.harness.config.own_kernels import kernels_matrix

    return kernels_matrix(mapping(text, name), sha256, root())


@functools.lru_cache(maxsize=4)  # a command asks for its matrix more than once
def _ours(text: str, name: str, sha256: str) -> tuple[FileSection, Matrix] | None:
    """None for a file that names its kernels: what it means is not in its text alone."""
    document = mapping(text, name)
    refuse_too_many(document)
    if "kernels" in document.data:
        return None
    file = conforming(MatrixFile, document.data, document)
    return file, _matrix(file, sha256)


def _matrix(file: MatrixFile, sha256: str) -> Matrix:
    random = {name: drawn for name, suite in file.suites.items() if (drawn := suite.drawn())}
    matrix = Matrix(
        default_suite=",".join(file.default_suites),
        seed=file.seed,
        suites={name: tuple(suite.configurations()) for name, suite in file.suites.items() if name not in random},
        random_suites=random,
        guard=guard_of(file.guard, file.gates),
        limits=file.limits.limits(),
        hosts={name: host.settings(name) for name, host in file.hosts.items()},
        sha256=sha256,
        kernels={OURS: (ours := ours_of(file.gates)), **peers_of(ours)},
    )
    return replace(matrix, suites={name: matrix.ordered(items) for name, items in matrix.suites.items()})
