"""Modelled times of commits: what `fmha roofline --archive` keeps beside the records, and the trends show.

No verdict depends on them. A file has the times of one commit on one GPU by one model: `modelled/SHA-GPU-MODEL.json` in
the folder of the archive. Times of two models are never compared: each model is a line of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fmha.harness import archive
from fmha.harness.errors import UserError
from fmha.harness.judge.identity import installed_root

FOLDER = "modelled"
FIGURE = "modelled_time"
SCHEMA = "fmha-modelled/1"
_MODEL = ("emulator/timing", "emulator/core/timing")  # what decides a modelled time, beside the kernel
_DIGITS = 8  # of the model's sha256
_NAME = re.compile(r"[0-9a-f]{12}-[a-z0-9]+-[0-9a-f]{8}\.json")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a call by configuration, as modelled. `within` is the model's own error, in words."""

    sha: str
    gpu: str  # as `fmha roofline --gpu` takes it
    model: str
    within: str
    recorded: str  # ISO 8601
    seconds: Mapping[str, float]
    axes: Mapping[str, Mapping[str, int | str]]

    @property
    def line(self) -> str:
        """The line of the site that these times are on."""
        return f"modelled {self.gpu}, model {self.model}"


def model() -> str:
    """The start of the sha256 of what decides a modelled time, but for the kernel and what the emulator executes."""
    digest = hashlib.sha256()
    for folder in _MODEL:
        for path in sorted((installed_root() / folder).iterdir()):
            if path.suffix in (".py", ".yaml", ".cpp", ".hpp"):
                digest.update(f"{folder}/{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:_DIGITS]


def keep(results: Path, times: Times) -> Path:
    """Adds times to those that are kept of their commit, GPU and model. Raises InfrastructureError."""
    path = results / FOLDER / f"{times.sha[:12]}-{times.gpu}-{times.model}.json"
    before = _read(path) if path.is_file() else None
    seconds = {**(before.seconds if before else {}), **times.seconds}
    axes = {**(before.axes if before else {}), **times.axes}
    plain = {"schema": SCHEMA} | asdict(times) | {"seconds": dict(sorted(seconds.items())), "axes": axes}
    archive.replace(f"{json.dumps(plain, indent=1)}\n".encode(), path)
    return path


def kept(results: Path) -> tuple[list[Times], dict[str, str]]:
    """All times that are kept, and what is wrong with files that hold none, by name."""
    found, wrong = [], {}
    for path in _files(results):
        try:
            found.append(_read(path))
        except UserError as error:
            wrong[f"{FOLDER}/{path.name}"] = error.what
    return sorted(found, key=lambda item: (item.recorded, item.line)), wrong


def now() -> str:
    """The time, UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def _files(results: Path) -> Iterator[Path]:
    folder = results / FOLDER
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def _read(path: Path) -> Times:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        words = {name: str(data[name]) for name in ("sha", "gpu", "model", "within", "recorded")}
        seconds = {str(name): float(value) for name, value in data["seconds"].items()}
        axes = {str(name): dict(values) for name, values in data["axes"].items() if name in seconds}
        if seconds.keys() != axes.keys() or not all(value > 0 for value in seconds.values()):
            raise ValueError("a time or its parameters are missing")
        return Times(**words, seconds=seconds, axes=axes)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"holds no modelled times: {error}", where=str(path)) from error
