"""A run's events, in order and without gaps, over as many connections as it takes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fmha.harness.back_off import BackOff
from fmha.harness.errors import FmhaError, InfrastructureError
from fmha.harness.hosts.carrier import LineError
from fmha.harness.hosts.commit_transfer import Pack
from fmha.harness.hosts.line import ANSWER_SECONDS, SYNC_SECONDS, Line
from fmha.harness.hosts.messages import MOST_EVENT_BYTES, event_of

if TYPE_CHECKING:  # loaded once a host is at work
    from fmha.harness.hosts.host_answers import StatusAnswer, StoredJob

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 15.0

Dial = Callable[[Mapping[str, Any]], Line]


class RunStream:
    """Events of one run. It is started by the first connection that gets through, or has been started before."""

    def __init__(
        self,
        dial: Dial,
        run: str,
        patience_seconds: float,
        note: Callable[[str], None],
        job: Mapping[str, Any] | None = None,
        pack: Pack | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._dial = dial
        self._run = run
        self._patience = patience_seconds
        self._note = note
        self._job = job  # to start it with; None once it is known to be started
        self._pack = pack
        self._secrets = secrets  # told once an agent has answered and asks for them
        self._line: Line | None = None
        self._offset = 0
        self._digest = hashlib.sha256()
        self._reached = False
        self._furthest = 0  # byte of the commit that a line has taken
        self._advanced = 0.0  # when it was
        self._torn = False  # a line was no event, as when a crash has cut it
        self.status: StatusAnswer | None = None

    def start(self) -> None:
        """Returns once the host has the run. Raises UserError or InfrastructureError."""
        self._retrying(self._connect)

    def events(self) -> Generator[Mapping[str, Any], None, None]:
        """Events until the final status, which is then in `status`."""
        from fmha.harness.hosts.host_answers import EventsAnswer, StatusAnswer, checked

        while self.status is None:
            message = self._retrying(self._next)
            if "events" in message:
                data = checked(EventsAnswer, message, self._run).events.encode("utf-8", "surrogatepass")
                self._digest.update(data)
                self._offset += len(data)
                if self._offset > MOST_EVENT_BYTES:
                    raise InfrastructureError(f"the run has more than {MOST_EVENT_BYTES >> 20} MiB of events")
                for line in data.split(b"\n"):
                    if (event := event_of(line)) is not None:
                        yield event
                    elif line:
                        self._torn = True
            elif "status" in message:
                self.status = checked(StatusAnswer, message["status"], self._run)
                self._verify(self.status)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _next(self) -> Mapping[str, Any]:
        return (self._line or self._connect()).receive()

    def _connect(self) -> Line:
        job = self._job
        if job is not None:
            self._line = self._dial({"op": "start", "job": job, "follow": True})
            self._reached = True
            from fmha.harness.hosts.host_answers import NoteEvent, Started, Wanted, checked  # while the host is at work

            message = self._line.answer(SYNC_SECONDS)
            while "note" in message:
                self._note(checked(NoteEvent, {"text": message["note"]}, self._run).text)
                message = self._line.answer(SYNC_SECONDS)
            if "send" in message:
                self._upload(self._line, checked(Wanted, message, self._run).send)
                message = self._line.answer(SYNC_SECONDS)
            if "secrets" in message:
                self._line.send({"secrets": dict(self._secrets)})
                message = self._line.answer(SYNC_SECONDS)
            checked(Started, message, self._run)
            self._job, self._secrets = None, {}
            if self._pack is not None:
                self._pack.close()
        else:
            try:
                self._line = self._dial({"op": "follow", "run": self._run, "offset": self._offset, "job": False})
            except LineError:
                raise
            except FmhaError as error:  # its key or ours is not what it was; that is for somebody to settle
                step = f"{error.next_step}; then " if error.next_step else ""
                raise type(error)(
                    f"{error.what}; run {self._run} goes on without us",
                    where=error.where,
                    next_step=f"{step}fmha attach {self._run}",
                ) from error
            self._reached = True
        self._line.follow()
        return self._line

    def _upload(self, line: Line, haves: list[str]) -> None:
        """The commits, from the first byte on that the host does not have."""
        from fmha.harness.hosts.host_answers import UploadAnswer, checked

        pack = self._pack
        assert pack is not None
        pack.make(haves)
        line.send({"pack": pack.digest, "bytes": pack.bytes})
        start = checked(UploadAnswer, line.answer(SYNC_SECONDS), self._run).start
        if start > pack.bytes:
            raise InfrastructureError(f"the host has {start} of {pack.bytes} bytes of the commit", where=self._run)
        if start:
            self._note(f"{start} of {pack.bytes} bytes of the commit are there from before")
        line.send_pack(self._counted(pack.pieces(start), start))

    def _counted(self, pieces: Iterator[bytes], at: int) -> Iterator[bytes]:
        """Notes when the line takes what no line before has taken."""
        for piece in pieces:
            if at > self._furthest:
                self._furthest, self._advanced = at, time.monotonic()
            at += len(piece)
            yield piece

    def _retrying(self, action: Callable[[], Any]) -> Any:
        """Does `action`; when the line breaks, again over another one, waiting longer each time.

        A host that has never answered is not waited for: its name or address may be wrong.
        """
        wait, since = BackOff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, spread=0.2), time.monotonic()
        while True:
            try:
                return action()
            except LineError as error:
                self.close()
                if not self._reached:
                    raise
                if self._advanced > since:
                    since = self._advanced
                    wait.restart()
                if time.monotonic() - since + wait.seconds > self._patience:
                    raise InfrastructureError(
                        f"{error}; the run goes on without us", next_step=f"later: fmha attach {self._run}"
                    ) from error
                self._note(f"{error}; trying again in {wait.seconds:g} s")
                time.sleep(wait.next())  # a host that comes back tells nobody

    def _verify(self, status: StatusAnswer) -> None:
        """Everything that the host has written is here, to the byte."""
        whole = self._offset == status.events_bytes and self._digest.hexdigest() == status.events_sha256
        if not whole or (self._torn and status.state == "done"):
            self._note("the events on the host are not those that were received; what was received counts")
            update = {"state": "lost", "reason": "the events were changed on the host"}
            self.status = status.model_copy(update=update)


def followed(dial: Dial, run: str) -> StoredJob:
    """The job of a run that is on the host."""
    from fmha.harness.hosts.host_answers import StoredJob, checked

    with dial({"op": "follow", "run": run, "offset": 0, "job": True}) as line:
        return checked(StoredJob, line.answer(ANSWER_SECONDS).get("job"), run)


def asked(dial: Dial, request: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Mapping[str, Any]:
    """The one answer to a request."""
    with closing(dial(request)) as line:
        return line.answer(seconds)
