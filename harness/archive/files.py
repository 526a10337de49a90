"""Run records as files: written whole or not at all, validated when read."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.archive.record import SCHEMA_VERSION, RunRecord
from harness.errors import InfrastructureError, UserError


def dumps(record: RunRecord) -> str:
    """The record as its file holds it, with a newline at the end."""
    text = json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")


def prepare(directory: Path) -> None:
    """Create the directory and prove that a file can be made in it. Raises InfrastructureError."""
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".probe-", dir=directory)
        os.close(descriptor)
        os.unlink(name)


def write(record: RunRecord, directory: Path, name: str | None = None) -> Path:
    """Archive a record and return its path, `<utc>-<sha>-<host>.json`, with `-2` and so on when that is taken.

    The file appears whole, under a name that no other file had, or not at all. A record with a `name` of its own, that
    of its run, is archived once: when the name is taken, that file is it. Raises InfrastructureError.
    """
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".record-", suffix=".tmp", dir=directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o644)
                file.write(dumps(record))
                file.flush()
                os.fsync(descriptor)
            path = _publish(temporary, directory, name or _stem(record), once=name is not None)
        finally:
            os.unlink(temporary)
        _sync(directory)
    return path


def read(path: Path) -> RunRecord:
    """The record in a file. Raises UserError when it cannot be read or is no record of a version known here."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, parse_constant=_refuse)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not JSON: {error}", where=str(path)) from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(
            f"has schema version {version}, newer than {SCHEMA_VERSION}", where=str(path), next_step="update fmha"
        )
    try:
        return RunRecord.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"is no run record: {field}: {first['msg']}", where=str(path)) from error


def schema() -> str:
    """The JSON Schema of a record, as checked in beside this module."""
    definition = RunRecord.model_json_schema(mode="serialization")
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **definition}
    return json.dumps(document, indent=1) + "\n"


def _stem(record: RunRecord) -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "_", record.host.name)
    return f"{record.started:%Y%m%dT%H%M%SZ}-{record.commit.sha[:12]}-{host}"


def _publish(temporary: str, directory: Path, stem: str, *, once: bool) -> Path:
    """Give the file its name. A hard link, unlike a rename, never replaces what another run has put there."""
    for number in itertools.count(1):
        path = directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
            return path
        if once:
            return path
    raise AssertionError("itertools.count ended")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot archive: {error.strerror}",
            where=str(directory),
            next_step="free space or name another folder with --results",
        ) from error


def _refuse(token: str) -> Any:
    raise ValueError(f"{token} is no JSON number")
