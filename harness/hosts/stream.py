"""A run's events, in order and without gaps, over as many connections as it takes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from harness.errors import InfrastructureError
from harness.hosts.line import ANSWER_SECONDS, SYNC_SECONDS, Line, LineError

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 15.0
PINGS = 4  # that fit into the silence after which a connection is lost

Dial = Callable[[Mapping[str, Any]], Line]


class RunStream:
    """Events of one run. It is started by the first connection that gets through, or has been started before."""

    def __init__(
        self,
        dial: Dial,
        run: str,
        patience_seconds: float,
        silence_seconds: float,
        note: Callable[[str], None],
        job: Mapping[str, Any] | None = None,
        pack: Callable[[list[str]], Iterator[bytes]] | None = None,
    ) -> None:
        self._dial = dial
        self._run = run
        self._patience = patience_seconds
        self._ping_seconds = silence_seconds / PINGS
        self._note = note
        self._job = job  # to start it with; None once it is known to be started
        self._pack = pack
        self._line: Line | None = None
        self._offset = 0
        self._digest = hashlib.sha256()
        self._spoke = 0.0
        self._reached = False
        self.status: Mapping[str, Any] | None = None

    def start(self) -> None:
        """Returns once the host has the run. Raises UserError or InfrastructureError."""
        self._retrying(self._connect)

    def events(self) -> Generator[Mapping[str, Any], None, None]:
        """Events until the final status, which is then in `status`."""
        while self.status is None:
            message = self._retrying(self._next)
            if "events" in message:
                data = message["events"].encode("utf-8")
                self._digest.update(data)
                self._offset += len(data)
                for line in data.splitlines():
                    event = _event(line)
                    if event is not None:
                        yield event
            elif "status" in message:
                self.status = message["status"]
                self._verify(message["status"])

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _next(self) -> Mapping[str, Any]:
        line = self._line or self._connect()
        if time.monotonic() - self._spoke > self._ping_seconds:
            line.send({"here": True})
            self._spoke = time.monotonic()
        return line.receive()

    def _connect(self) -> Line:
        job = self._job
        if job is not None:
            self._line = self._dial({"op": "start", "job": job, "follow": True})
            self._reached = True
            message = self._line.answer(SYNC_SECONDS)
            if "send" in message:
                assert self._pack is not None
                self._line.send_pack(self._pack(message["send"]))
                message = self._line.answer(SYNC_SECONDS)
            self._job = None
        else:
            self._line = self._dial({"op": "follow", "run": self._run, "offset": self._offset, "job": False})
            self._reached = True
        self._spoke = time.monotonic()
        return self._line

    def _retrying(self, action: Callable[[], Any]) -> Any:
        """Does `action`; when the line breaks, again over another one, waiting longer each time.

        A host that has never answered is not waited for: its name or address may be wrong.
        """
        wait, since = FIRST_WAIT_SECONDS, time.monotonic()
        while True:
            try:
                return action()
            except LineError as error:
                self.close()
                if not self._reached:
                    raise
                if time.monotonic() - since + wait > self._patience:
                    raise InfrastructureError(
                        f"{error}; the run goes on without us", next_step=f"later: fmha attach {self._run}"
                    ) from error
                self._note(f"{error}; trying again in {wait:g} s")
                time.sleep(wait)  # back-off: a host that comes back tells nobody
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def _verify(self, status: Mapping[str, Any]) -> None:
        """Everything that the host has written is here, to the byte."""
        if self._offset != status["events_bytes"] or self._digest.hexdigest() != status["events_sha256"]:
            self._note("the events on the host are not those that were received; what was received counts")
            self.status = {**status, "state": "lost", "reason": "the events were changed on the host"}


def followed(dial: Dial, run: str) -> Mapping[str, Any]:
    """The job of a run that is on the host."""
    with dial({"op": "follow", "run": run, "offset": 0, "job": True}) as line:
        job: Mapping[str, Any] = line.answer(ANSWER_SECONDS)["job"]
        return job


def asked(dial: Dial, request: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Mapping[str, Any]:
    """The one answer to a request."""
    with closing(dial(request)) as line:
        return line.answer(seconds)


def _event(line: bytes) -> Mapping[str, Any] | None:
    """One event; None for a line that a crash has torn."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None
