"""What crosses between the judge and an adapter's process: a line of JSON, then arrays as raw bytes; never a pickle.

Neither end believes the other's sizes: a line, the arrays' number and their bytes are bounded before any is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_LINE: Final = 16 << 20  # bytes
MOST_ARRAYS: Final = 1024
MOST_BYTES: Final = 32 << 30  # of all arrays of a message
MOST_NAME: Final = 200  # characters
READS: Final = "--reads"  # the last argument of an adapter's process that listens to what it reads
_KIND = re.compile(r"[<>|=]?[biufcV][1-9]\d{0,3}")  # of numbers and raw bytes: an object would be a pickle
_MOST_DIMENSIONS: Final = 32

Arrays = Mapping[str, "NDArray[Any]"]


class AdapterFrameError(Exception):
    """What came is no message; the text says why."""


class MessageSource(Protocol):
    """Where messages come from."""

    def line(self, most: int) -> bytes:
        """Up to and with the next newline, or `most` bytes; less at the end."""

    def into(self, view: memoryview) -> None:
        """Fills `view`. FrameError at the end."""


class FileSource:
    """A file as a source, read without a limit of time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def line(self, most: int) -> bytes:
        return self._file.readline(most)

    def into(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            count = self._file.readinto(view[at:])  # type: ignore[attr-defined]
            if not count:
                raise AdapterFrameError("it ends within an array")
            at += count


def pieces(message: Mapping[str, Any], arrays: Arrays) -> Iterator[bytes | memoryview]:
    """A message as it is written. TypeError for an array of what is no number."""
    import numpy as np

    listed = []
    for name, array in arrays.items():
        kind = array.dtype.str if array.dtype.fields is None else f"|V{array.dtype.itemsize}"
        if array.dtype.hasobject or not _KIND.fullmatch(kind):
            raise TypeError(f"{name} is an array of {array.dtype}, which is no number")
        listed.append([name, kind, list(array.shape)])
    yield json.dumps({**message, "arrays": listed}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    for array in arrays.values():
        if array.nbytes:
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def received(
    source: MessageSource, most_bytes: int = MOST_BYTES
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """The next message, with arrays of `most_bytes` together; None at the end. FrameError for what is none."""
    line = source.line(MOST_LINE)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise AdapterFrameError(f"a line has no end, or more than {MOST_LINE} bytes")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AdapterFrameError(f"{line[:60]!r} is no JSON") from error
    if not isinstance(message, dict):
        raise AdapterFrameError(f"{line[:60]!r} is no object")
    return message, _read(source, message.pop("arrays", []), most_bytes)


def _read(source: MessageSource, listed: Any, room: int) -> dict[str, NDArray[Any]]:
    if not isinstance(listed, list) or len(listed) > MOST_ARRAYS:
        raise AdapterFrameError(f"its arrays are no list of at most {MOST_ARRAYS}")
    if not listed:
        return {}
    import numpy as np

    made: dict[str, NDArray[Any]] = {}
    most = room
    for item in listed:
        name, dtype, shape = _header(item)
        room -= math.prod(shape) * dtype.itemsize
        if room < 0:
            raise AdapterFrameError(f"its arrays have more than {most} bytes")
        if name in made:
            raise AdapterFrameError(f"it has two arrays named {name}")
        made[name] = np.empty(shape, dtype)
        if made[name].nbytes:
            source.into(made[name].reshape(-1).view(np.uint8).data)
    return made


def _header(item: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    import numpy as np

    if not isinstance(item, list) or len(item) != 3:
        raise AdapterFrameError("an array has no name, type and shape")
    name, kind, shape = item
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise AdapterFrameError("an array's name is no printable word")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise AdapterFrameError(f"array {name} is of {kind!r}, which is no number")
    try:
        dtype = np.dtype(kind)
    except TypeError as error:
        raise AdapterFrameError(f"array {name} is of {kind!r}, which is no number") from error
    whole = isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS
    if not whole or any(type(size) is not int or not 0 <= size <= MOST_BYTES for size in shape):
        raise AdapterFrameError(f"array {name} has no shape")
    return name, dtype, tuple(shape)
