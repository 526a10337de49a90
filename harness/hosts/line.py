"""The client's side of the line to an agent: JSON lines both ways, with a time limit on every wait.

Whoever is at the other end may send for ever. So a silence is bounded, and a message is too: by its bytes, and in time
by a rate that the slowest line exceeds. One answer to one question has a deadline, whatever comes meanwhile.
"""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

from fmha.harness.errors import FmhaError, InfrastructureError, UserError
from fmha.harness.hosts.carrier import Carrier, LineError
from fmha.harness.hosts.messages import MOST_LINE_BYTES, message_of
from fmha.harness.hosts.shipment import preamble
from fmha.harness.supervisor import GREETING

ANSWER_SECONDS = 60.0
SYNC_SECONDS = 1200.0
MOST_CHATTER = 200  # lines that the account's start-up files may print before the agent speaks
MOST_CHATTER_BYTES = 1 << 20
LEAST_RATE = 256  # bytes a second of a message that is longer than LINE_SECONDS on its way
LINE_SECONDS = 60.0
PINGS = 4  # that fit into the silence after which a connection is lost
_WORDS = 300
_LOGIN = "log in by hand and see what the account's shell does"
_READS = "the account's start-up files, .bashrc or .profile, must not read standard input: see those on the host"
# What Python says when it is not our first line that it reads.
_EATEN = ("exec() arg 1 must be", "invalid syntax", "SyntaxError", "unexpected EOF", "IndentationError", "NameError")


class Line:
    """One session with an agent, which is taken for lost when not a byte has come for `silence` seconds."""

    def __init__(self, carrier: Carrier, where: str, silence: float, ahead: bytes | None = None) -> None:
        """`ahead` is what is left to send of the preamble, where some of it has been sent already."""
        self._carrier = carrier
        self._ahead = ahead
        self._where = where
        self._silence = silence
        self._pending = bytearray()
        self._looked = 0  # so much of `_pending` is known to have no end of a line
        self._spoke: float | None = None  # since when the agent has not heard of us, if it wants to

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, folder: str, request: Mapping[str, Any]) -> None:
        """Sends everything up to the request in one go, and waits for the agent to greet."""
        ahead = preamble(folder) if self._ahead is None else self._ahead
        self._carrier.write(ahead + _encoded({**request, "silence": self._silence}))
        chatter: list[bytes] = []
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(chatter) < MOST_CHATTER and sum(map(len, chatter)) < MOST_CHATTER_BYTES:
            try:
                line = self._read_line(ANSWER_SECONDS, deadline, MOST_CHATTER_BYTES)
            except LineError as error:
                raise self._unanswered(error, chatter) from error
            except InfrastructureError as error:
                raise InfrastructureError(f"no agent answers: {error.what}", where=self._where) from error
            if line.endswith(GREETING.encode()):  # a start-up file may have printed something without the end of a line
                return
            chatter.append(line)
        raise InfrastructureError(f"no agent answers; the host says {chatter[0][:_WORDS]!r}", where=self._where)

    def _unanswered(self, error: LineError, chatter: list[bytes]) -> FmhaError:
        """What the host said last, before it closed the line without an agent: why, as a rule."""
        said = [line.decode("utf-8", "replace").strip() for line in (*chatter, bytes(self._pending))]
        last = next((line for line in reversed(said) if line), "")
        told = f"{error.what}; the host says {last[:_WORDS]!r}" if last else error.what
        if any(words in error.what for words in _EATEN):
            return InfrastructureError(f"{told}: what was sent did not get to it", where=error.where, next_step=_READS)
        if not last:
            return error
        return LineError(told, where=error.where, next_step=_LOGIN)

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The agent's next message that is no beat. Raises as `receive` does, and LineError after `seconds`."""
        deadline = time.monotonic() + seconds
        while "beat" in (message := self.receive(deadline)):
            if time.monotonic() > deadline:
                raise LineError(f"no answer within {seconds:.0f} s", where=self._where)
        return message

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """The agent's next message; there is a beat when it has nothing else to say. Raises LineError, or what the
        agent reports as its error."""
        line = self._read_line(self._silence, deadline)
        try:
            message = message_of(line)
        except ValueError as error:
            raise LineError(f"the agent wrote what is no message: {line[:_WORDS]!r}", where=self._where) from error
        if "error" in message:
            from fmha.harness.hosts.host_answers import Refusal, checked

            refusal = checked(Refusal, message, self._where)
            kind = UserError if refusal.usage else InfrastructureError
            raise kind(refusal.error, where=self._where, next_step=refusal.next)
        return message

    def follow(self) -> None:
        """From here on the agent goes when it does not hear of us, so that it is told now and then: while a message
        comes as well, which on a slow line takes longer than the agent would wait."""
        self._spoke = time.monotonic()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message, a line of JSON."""
        self._carrier.write(_encoded(message))

    def send_pack(self, pieces: Iterable[bytes]) -> None:
        """Sends a pack in pieces, each behind its length; a length of 0 ends it."""
        for piece in pieces:
            self._carrier.write(struct.pack(">I", len(piece)) + piece)
        self._carrier.write(struct.pack(">I", 0))

    def close(self) -> None:
        self._carrier.close()

    def _read_line(self, silence: float, deadline: float | None = None, most: int = MOST_LINE_BYTES) -> bytes:
        """The next line, of at most so many bytes: some of it always comes within `silence`, the whole before
        `deadline`, and never slower than LEAST_RATE."""
        began = time.monotonic()
        while (end := self._pending.find(b"\n", self._looked)) < 0:
            self._looked = len(self._pending)
            if self._looked > most:
                raise InfrastructureError(f"the host wrote a line of more than {most >> 20} MiB", where=self._where)
            now, slowest = time.monotonic(), LINE_SECONDS + self._looked / LEAST_RATE
            left = min(began + slowest, deadline if deadline is not None else math.inf) - now
            if left <= 0:
                raise LineError(f"a message has not come whole within {now - began:.0f} s", where=self._where)
            data = self._read(min(silence, left))
            if data is None and silence <= left:
                raise LineError(f"nothing came for {silence:.0f} s", where=self._where)
            if data is None:
                continue
            if not data:
                raise LineError(self._carrier.epitaph(), where=self._where)
            self._pending += data
        self._looked = 0
        line = bytes(self._pending[: end + 1])
        del self._pending[: end + 1]
        return line

    def _read(self, seconds: float) -> bytes | None:
        """What comes within `seconds`; None where nothing does."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._spoke is not None:
                pause = self._silence / PINGS
                if (now := time.monotonic()) - self._spoke >= pause:
                    self.send({"here": True})
                    self._spoke = now
                left = min(left, pause)
            try:
                return self._carrier.read(left)
            except TimeoutError:
                if time.monotonic() >= deadline:
                    return None


def _encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
