"""Reads matrix.yaml. Every problem is one line that names the file, the line and the field."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path

from fmha.harness.config.document import FileSection, MatrixFile
from fmha.harness.config.model import Guard, Matrix, RandomSuite
from fmha.harness.config.own import own_hosts
from fmha.harness.config.validation import conforming, mapping
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.worker.protocol import Configuration

MATRIX_FILE = "matrix.yaml"


def load(root: Path, *, own: bool = True) -> Matrix:
    """Read `matrix.yaml` in `root`, and over its hosts one's `own`. Raises UserError when a file cannot be read,
    ConfigError when it is wrong."""
    path = root / MATRIX_FILE
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            next_step="run fmha in a checkout that has a matrix.yaml",
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{MATRIX_FILE}:{line}: broken YAML: not UTF-8"]) from error
    sha256 = hashlib.sha256(raw).hexdigest()
    file, matrix = _read(text, MATRIX_FILE, sha256, root)
    if not own:
        return matrix
    mine = own_hosts({name: section.model_dump(exclude_unset=True) for name, section in file.hosts.items()})
    return replace(matrix, hosts={**matrix.hosts, **mine})


def interpret(text: str, name: str, sha256: str, root: Path | None = None) -> Matrix:
    """The text of a matrix file as a Matrix; kernels that it names are below `root`. Raises ConfigError with one line a
    problem."""
    return _read(text, name, sha256, root or Path.cwd())[1]


def _read(text: str, name: str, sha256: str, root: Path) -> tuple[FileSection, Matrix]:
    if (found := _attention(text, name, sha256)) is not None:
        return found
    from fmha.harness.config.own_kernels import OwnMatrixFile, own_matrix

    document = mapping(text, name)
    own = conforming(OwnMatrixFile, document.data, document)
    return own, own_matrix(own, document, sha256, root)


@functools.lru_cache(maxsize=4)  # a command asks for its matrix more than once
def _attention(text: str, name: str, sha256: str) -> tuple[FileSection, Matrix] | None:
    """None for kernels of one's own: what such a file means is not in its text alone."""
    document = mapping(text, name)
    if "kernels" in document.data:
        return None
    file = conforming(MatrixFile, document.data, document)
    return file, _matrix(file, sha256)


def _matrix(file: MatrixFile, sha256: str) -> Matrix:
    guard_dim, fallback, gates = file.guard.head_dim, file.guard.fallback, file.gates
    matrix = Matrix(
        default_suite=",".join(file.default_suites),
        seed=file.seed,
        suites={name: tuple(suite.configurations()) for name, suite in file.suites.items() if not suite.random},
        random_suites={
            name: RandomSuite(suite.random.space(), suite.random.cases)
            for name, suite in file.suites.items()
            if suite.random
        },
        thresholds=gates.default_thresholds(),
        guard=Guard(guard_dim, Configuration(guard_dim, fallback.t, fallback.s_k), gates.thresholds(gates.guard)),
        bf16=gates.thresholds(gates.bf16),
        extreme=gates.thresholds(gates.extreme),
        steps=gates.thresholds(gates.steps),
        resources=gates.most_resources(),
        biases=gates.most_bias(),
        limits=file.limits.limits(),
        hosts={name: host.settings(name) for name, host in file.hosts.items()},
        sha256=sha256,
    )
    return replace(matrix, suites={name: matrix.ordered(items) for name, items in matrix.suites.items()})
