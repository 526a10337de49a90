"""The emulator's end of the socket to a program: requests of fields in, a status and fields out. `runtime/wire.hpp` has
the format and is the other end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final

Field = int | bytes
_NAME: Final = 16
_HEAD: Final = struct.Struct(f"<{_NAME}sQ")


class Fields:
    """What a request holds, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def integer(self) -> int:
        """The next 8 bytes, unsigned."""
        (value,) = struct.unpack_from("<Q", self._data, self._at)
        self._at += 8
        return int(value)

    def signed(self) -> int:
        """The next 8 bytes, in two's complement."""
        value = self.integer()
        return value - (value >> 63 << 64)

    def dims(self) -> tuple[int, int, int]:
        """Three integers: x, y, z."""
        return self.integer(), self.integer(), self.integer()

    def integers(self) -> list[int]:
        """A count, and so many integers."""
        return [self.integer() for _ in range(self.integer())]

    def data(self) -> bytes:
        """A size, and so many bytes."""
        size = self.integer()
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def text(self) -> str:
        """Bytes as UTF-8, with a mark for what is none."""
        return self.data().decode(errors="replace")


def packed(fields: Sequence[Field]) -> bytes:
    """Fields as the library reads them: 8 bytes an integer, bytes behind their size."""
    parts = []
    for field in fields:
        if isinstance(field, int):
            parts.append(struct.pack("<Q", field))
        else:
            parts += [struct.pack("<Q", len(field)), field]
    return b"".join(parts)


def serve(connection: socket.socket, answer: Callable[[str, Fields], tuple[int, Sequence[Field]]]) -> None:
    """Answers requests until the program closes its end. `answer` takes a name and fields, and gives a status and
    fields."""
    with connection:
        while head := _receive(connection, _HEAD.size):
            name, size = _HEAD.unpack(head)
            body = _receive(connection, size)
            if body is None:
                return
            status, fields = answer(name.rstrip(b"\0").decode(), Fields(body))
            out = packed(fields)
            try:
                connection.sendall(struct.pack("<qQ", status, len(out)) + out)
            except OSError:
                return


def _receive(connection: socket.socket, size: int) -> bytes | None:
    """None when the other end has gone."""
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        try:
            got = connection.recv_into(view[at:])
        except OSError:
            return None
        if not got:
            return None
        at += got
    return bytes(data)
