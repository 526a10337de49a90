"""Reads matrix.yaml. Every problem is one line that names the file, the line and the field."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.config.document import MatrixFile
from harness.config.model import Guard, HostSettings, Limits, Matrix
from harness.config.yaml_lines import Document, FieldPath, parse
from harness.errors import ConfigError, UserError
from harness.worker.protocol import Configuration

MATRIX_FILE = "matrix.yaml"


def load(root: Path) -> Matrix:
    """Read `matrix.yaml` in `root`. Raises UserError when it cannot be read, ConfigError when it is wrong."""
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
    return interpret(text, MATRIX_FILE, hashlib.sha256(raw).hexdigest())


def interpret(text: str, name: str, sha256: str) -> Matrix:
    """The text of a matrix file as a Matrix. Raises ConfigError with one line a problem."""
    document = parse(text, name)
    if not isinstance(document.data, dict):
        raise ConfigError([document.problem((), "the top level must be a mapping")])
    try:
        file = MatrixFile.model_validate(document.data)
    except ValidationError as error:
        problems = sorted((document.line(_path(detail)), _problem(detail, document)) for detail in error.errors())
        raise ConfigError([text for _, text in problems]) from error
    return _matrix(file, sha256)


def _matrix(file: MatrixFile, sha256: str) -> Matrix:
    guard_dim = file.guard.head_dim
    fallback = file.guard.fallback
    return Matrix(
        default_suite=file.default_suite,
        seed=file.seed,
        suites={
            name: tuple(sorted(suite.configurations(), key=lambda item: item.head_dim != guard_dim))
            for name, suite in file.suites.items()
        },
        thresholds=file.gates.default_thresholds(),
        guard=Guard(guard_dim, Configuration(guard_dim, fallback.t, fallback.s_k), file.gates.guard_thresholds()),
        limits=Limits(
            build_seconds=file.limits.build_seconds,
            silence_seconds=file.limits.configuration_silence_seconds,
            total_seconds=file.limits.configuration_total_seconds,
        ),
        hosts={name: HostSettings(name, host.kind, host.schedule) for name, host in file.hosts.items()},
        sha256=sha256,
    )


def _path(detail: ErrorDetails) -> FieldPath:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    return path + tuple(detail.get("ctx", {}).get("at", ()))


def _problem(detail: ErrorDetails, document: Document) -> str:
    return document.problem(_path(detail), _words(detail))


def _words(detail: ErrorDetails) -> str:
    """What is wrong, in the words of someone who edits the file."""
    kind, context, given = detail["type"], detail.get("ctx", {}), _shown(detail["input"])
    match kind:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "unknown key"
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {given}"
        case "greater_than":
            return f"must be more than {context['gt']}, not {given}"
        case "less_than_equal":
            return f"must be at most {context['le']}, not {given}"
        case "less_than":
            return f"must be less than {context['lt']}, not {given}"
        case "int_type":
            return f"must be a whole number, not {given}"
        case "float_type":
            return f"must be a number, not {given}"
        case "string_type":
            return f"must be text, not {given}"
        case "list_type":
            return f"must be a list, not {given}"
        case "dict_type" | "model_type":
            return f"must be a mapping, not {given}"
        case "literal_error":
            return f"must be {context['expected']}, not {given}"
        case "too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return f"{given} is no name: lower-case letters, digits, '-' and '_'"
        case _:
            return detail["msg"]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
