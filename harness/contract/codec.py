"""Protocol objects to JSON and back, with every field checked on the way in.

NaN and the infinities have no JSON: they travel as "nan", "inf" and "-inf" where a float is declared, and as
{"float": "nan"} where anything may stand.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import numbers
import types
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from fmha.harness.contract.protocol import Event, Job

T = TypeVar("T")
JOB_SCHEMA = 2
_TAG = "float"
_NONFINITE = {"nan", "inf", "-inf"}


class CodecError(ValueError):
    """What was read is not what the protocol says; the message names the field."""


def write_job(job: Job, path: Path) -> None:
    """Writes `job` as JSON."""
    path.write_text(json.dumps(encode(job), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_job(path: Path) -> Job:
    """Reads a job file; CodecError when it is not one."""
    job = decode(Job, _parse(path.read_bytes()), "job")
    if job.schema != JOB_SCHEMA:
        raise CodecError(f"job.schema: this worker reads {JOB_SCHEMA}, not {job.schema}")
    names = Counter(configuration.id for configuration in job.configurations)
    if duplicates := sorted(name for name, count in names.items() if count > 1):
        raise CodecError(f"job.configurations: more than once: {', '.join(duplicates)}")
    return job


def event_to_line(event: Event) -> bytes:
    """One line of JSON with its newline."""
    return json.dumps(encode(event), allow_nan=False, separators=(",", ":")).encode() + b"\n"


def event_from_line(line: bytes) -> Event:
    """The event of one line; CodecError when it is anything else."""
    return decode(Event, _parse(line), "event")


def encode(value: Any) -> Any:
    """Plain JSON data of a dataclass, or of anything one may hold; NumPy's scalars become Python's."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds = _hints(type(value))
        return {
            name: _encode_field(kinds[name], item)
            for name, item in ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        }
    if isinstance(value, Mapping):
        return {str(name): encode(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else {_TAG: str(float(value))}
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")


def fields_given(value: Any) -> dict[str, Any]:
    """The fields of a dataclass but those at their defaults, which a commit or a judge of before may not know."""
    said = dataclasses.asdict(value)
    return {item.name: said[item.name] for item in dataclasses.fields(value) if said[item.name] != item.default}


def decode(kind: type[T], data: Any, where: str) -> T:
    """An instance of the dataclass `kind` from JSON data; `where` is the path that errors name."""
    if not isinstance(data, dict):
        raise CodecError(f"{where}: expected an object, found {_name(data)}")
    hints = _hints(typing.cast(typing.Hashable, kind))
    if unknown := sorted(data.keys() - hints.keys()):
        raise CodecError(f"{where}.{unknown[0]}: unknown field")
    values = {name: _decode_value(hints[name], item, f"{where}.{name}") for name, item in data.items()}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise CodecError(f"{where}.{field.name}: missing")
    return kind(**values)


def _decode_value(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return _decode_any(data)
    if dataclasses.is_dataclass(kind):
        return decode(typing.cast(type[Any], kind), data, where)
    if origin in (typing.Union, types.UnionType):
        kinds = tuple(kind for kind in arguments if kind is not types.NoneType)
        if data is None and len(kinds) < len(arguments):
            return None
        return _decode_value(kinds[0], data, where) if len(kinds) == 1 else _decode_one_of(kinds, data, where)
    if origin is Literal:
        if data not in arguments:
            raise CodecError(f"{where}: expected one of {', '.join(arguments)}, found {data!r}")
        return data
    if origin is tuple:
        return _decode_tuple(arguments, data, where)
    if origin is Sequence:
        return _decode_tuple((*arguments, ...), data, where)
    if origin is dict:
        if not isinstance(data, dict):
            raise CodecError(f"{where}: expected an object, found {_name(data)}")
        return {name: _decode_any(item) for name, item in data.items()}
    return _decode_scalar(kind, data, where)


def _decode_one_of(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    """As the one of several scalars that it is, or of several dataclasses that has the fields; else as the first."""
    if isinstance(data, dict):
        fitting = (kind for kind in kinds if data.keys() <= _hints(kind).keys())
    else:
        fitting = (kind for kind in kinds if type(data) is kind)
    return _decode_value(next(fitting, kinds[0]), data, where)


def _decode_tuple(arguments: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise CodecError(f"{where}: expected a list, found {_name(data)}")
    kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else list(arguments)
    if len(kinds) != len(data):
        raise CodecError(f"{where}: expected {len(kinds)} items, found {len(data)}")
    pairs = zip(kinds, data, strict=True)
    return tuple(_decode_value(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))


def _decode_scalar(kind: type[Any], data: Any, where: str) -> Any:
    if kind is float:
        if data in _NONFINITE if isinstance(data, str) else type(data) in (int, float):
            return float(data)
    elif type(data) is kind:  # exactly: True is no integer here
        return data
    raise CodecError(f"{where}: expected {kind.__name__}, found {data!r:.80}")


def _decode_any(data: Any) -> Any:
    if isinstance(data, dict):
        if data.keys() == {_TAG} and data[_TAG] in _NONFINITE:
            return float(data[_TAG])
        return {name: _decode_any(item) for name, item in data.items()}
    return [_decode_any(item) for item in data] if isinstance(data, list) else data


def _encode_field(kind: Any, value: Any) -> Any:
    if kind is float:
        return _encode_float(value)
    if kind == float | None:
        return None if value is None else _encode_float(value)
    if kind == tuple[float, ...]:
        return [_encode_float(item) for item in value]
    return encode(value)


def _encode_float(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


@functools.cache
def _hints(kind: typing.Hashable) -> dict[str, Any]:
    """The types of a dataclass's fields, of which typing compiles every one anew when it is asked."""
    return typing.get_type_hints(kind)


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from error


def _name(data: Any) -> str:
    return "null" if data is None else type(data).__name__
