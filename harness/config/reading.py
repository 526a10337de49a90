"""The text of matrix.yaml as a Matrix: what load does where no reading of that text is kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fmha.harness.config.matrix_document import FileSection, MatrixFile
from fmha.harness.config.matrix_model import Matrix
from fmha.harness.config.ours import guard_of, ours_of
from fmha.harness.config.own_hosts import own_hosts
from fmha.harness.config.peer_kernels import peers_of
from fmha.harness.config.suites import refuse_too_many
from fmha.harness.config.validation import conforming, mapping
from fmha.harness.judge.configuration import OURS


def read(text: str, name: str, sha256: str, root: Callable[[], Path]) -> tuple[FileSection, Matrix]:
    """The file and what it means; `root`, which is asked where it names kernels, is where they are. Raises ConfigError
    with one line a problem."""
    if (found := ours(text, name, sha256)) is not None:
        return found
    from fmha.harness.config.own_kernels import kernels_matrix

    return kernels_matrix(mapping(text, name), sha256, root())


@functools.lru_cache(maxsize=4)  # a command asks for its matrix more than once
def ours(text: str, name: str, sha256: str) -> tuple[FileSection, Matrix] | None:
    """None for a file that names its kernels: what it means is not in its text alone."""
    document = mapping(text, name)
    refuse_too_many(document)
    if "kernels" in document.data:
        return None
    file = conforming(MatrixFile, document.data, document)
    return file, _matrix(file, sha256)


def with_own(file: FileSection, matrix: Matrix) -> Matrix:
    """The matrix with one's own hosts over those of the file. Raises UserError, ConfigError."""
    mine = own_hosts({name: section.model_dump(exclude_unset=True) for name, section in file.hosts.items()})
    return replace(matrix, hosts={**matrix.hosts, **mine})


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
        kernels={OURS: (held := ours_of(file.gates)), **peers_of(held)},
    )
    return replace(matrix, suites={name: matrix.ordered(items) for name, items in matrix.suites.items()})
