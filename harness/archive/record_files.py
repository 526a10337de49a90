"""Run records as files: written whole or not at all, checked and validated when read."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fmha.harness.archive.folder import writing
from fmha.harness.archive.record import SCHEMA_VERSION, RunRecord
from fmha.harness.archive.upgrade import upgraded
from fmha.harness.errors import UserError

# Lists with one line an element: small files, and diffs that say which.
LINE_EACH = ("variants", "configurations", "limits")
UNCHECKED_VERSION = 1  # the last one without a checksum


def dumps(record: RunRecord) -> str:
    """The record as its file holds it, with its checksum and a newline at the end."""
    data = record.model_dump(mode="json")
    data["checksum"] = _checksum(data)
    text = "{\n" + ",\n".join(f'"{key}": {_laid_out(key, value)}' for key, value in data.items()) + "\n}\n"
    return text.encode("utf-8", "replace").decode("utf-8")


def write(record: RunRecord, directory: Path, name: str | None = None) -> Path:
    """Archive a record and return its path, `<utc>-<sha>-<host>.json`, with `-2` and so on when that is taken.

    The file appears whole, under a name that no other file had, or not at all. A record with a `name` of its own, that
    of its run, is archived once: when the name is taken, that file is it. Raises InfrastructureError.
    """
    with writing(directory):
        with _written(dumps(record).encode(), directory) as temporary:
            path = _publish(temporary, directory, name or _stem(record), once=name is not None)
        _sync(directory)
    return path


def replace(content: bytes, path: Path) -> None:
    """Put content under a name, over what was there: whole or not at all. Raises InfrastructureError."""
    with writing(path.parent):
        with _written(content, path.parent) as temporary:
            os.link(temporary, f"{temporary}.new")
            os.replace(f"{temporary}.new", path)
        _sync(path.parent)


def read(path: Path) -> RunRecord:
    """The record in a file, `.json` or `.json.gz`, of any version known here, as the current one.

    Raises UserError when it cannot be read, is no record, or is not what was written.
    """
    data = document(path)
    try:
        # From JSON again: strict validation takes an enum's or a date's text there only.
        return RunRecord.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"is no run record: {field}: {first['msg']}", where=str(path)) from error


def document(path: Path) -> Any:
    """What a file holds, as of the current version and with its checksum proved, but not held against the model: what
    reads thousands of files takes this, and answers for what is no record. Raises UserError as `read` does."""
    data = _parsed(path)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(
            f"has schema version {version}, newer than {SCHEMA_VERSION}", where=str(path), next_step="update fmha"
        )
    if isinstance(version, int) and version > UNCHECKED_VERSION and not _whole(data):
        raise UserError(
            "does not match its checksum: it was damaged or edited", where=str(path), next_step="restore or remove it"
        )
    return upgraded(data) if isinstance(version, int) else data


def schema() -> str:
    """The JSON Schema of a record, as checked in beside this module."""
    definition = RunRecord.model_json_schema(mode="serialization")
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **definition}
    return json.dumps(document, indent=1) + "\n"


def _parsed(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"is not whole: {error}", where=str(path)) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not JSON: {error}", where=str(path)) from error


def _whole(data: dict[str, Any]) -> bool:
    try:
        return bool(data.get("checksum") == _checksum(data))
    except ValueError:  # a number like 1e999, which no record was written with
        return False


def _checksum(data: dict[str, Any]) -> str:
    rest = {key: value for key, value in data.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8", "replace")).hexdigest()


def _laid_out(key: str, value: Any) -> str:
    if key in LINE_EACH:
        return "[\n" + ",\n".join(_plain(item) for item in value) + "\n]"
    return _plain(value)


def _plain(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _stem(record: RunRecord) -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "_", record.host.name)
    return f"{record.started:%Y%m%dT%H%M%SZ}-{record.commit.sha[:12]}-{host}"


@contextlib.contextmanager
def _written(content: bytes, directory: Path) -> Iterator[str]:
    """The name of a flushed file with this content in the directory, gone afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".record-", suffix=".tmp", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield name
    finally:
        os.unlink(name)


def _publish(temporary: str, directory: Path, stem: str, *, once: bool) -> Path:
    """Give the file its name. A hard link, unlike a rename, never replaces what another run has put there."""
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        if (packed := directory / f"{name}.json.gz").exists():  # compressed meanwhile: the name is taken all the same
            if once:
                return packed
            continue
        path = directory / f"{name}.json"
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


def _refuse(token: str) -> Any:
    raise ValueError(f"{token} is no JSON number")
