"""The debugger's front end for editors: the Debug Adapter Protocol, over a stream in and a stream out.

The launch runs in the thread that reads requests, and only while nothing is asked: a stop answers requests until one
says how to go on. A thread of the protocol is a warp. A frame of its stack is a line of source, then those where that
was inlined, then the line of the PTX. https://microsoft.github.io/debug-adapter-protocol has the messages.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from fmha.emulator.debug.session import Break, DebugSession, Go, Run, Stop, WrongCommandError, parse_break
from fmha.emulator.debug.terminal import answer, barriers, pending, registers
from fmha.emulator.executed_lines import chain_of

CAPABILITIES: Final = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsStepBack": True,
    "supportsTerminateRequest": True,
    "supportsExceptionInfoRequest": True,
    "exceptionBreakpointFilters": [{"filter": "hazards", "label": "Hazards", "default": True}],
}
_GOES: Final[dict[str, Go]] = {
    "continue": "continue",
    "next": "step",
    "stepIn": "step",
    "stepOut": "continue",
    "stepBack": "back",
    "reverseContinue": "reverse",
    "disconnect": "quit",
    "terminate": "quit",
}
_WARPS: Final = 64  # of a CTA, at most
_REGISTERS, _BARRIERS, _PENDING = 1, 2, 3  # scopes of a frame: its number times SCOPES, and one of these
_SCOPES: Final = 4


@dataclass(frozen=True, slots=True)
class Debuggee:
    """What `launch` names. Files of source lie below `root`."""

    run: Run
    ptx: Path
    root: Path


Open = Callable[[dict[str, Any]], AbstractContextManager[Debuggee]]  # of the arguments of `launch`


@dataclass(slots=True)
class EditorSession:
    """One session with one editor. `open` raises an exception whose message says what is wrong with a launch."""

    source: BinaryIO
    sink: BinaryIO
    open: Open
    _session: DebugSession | None = None
    _debuggee: Debuggee | None = None
    _breaks: dict[str, list[Break]] = field(default_factory=dict)  # by the path that the editor has
    _numbers: dict[int, int] = field(default_factory=dict)  # of a break, by its identity
    _next: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _hazards: bool = True
    _frames: list[tuple[int, int]] = field(default_factory=list)  # thread and place in its stack, by number less one
    _sequence: int = 0
    _entered: bool = False
    _stops_at_entry: bool = True
    _gone: bool = False  # the editor has disconnected

    def serve(self) -> None:
        """Until the editor disconnects, or its stream ends."""
        launch: dict[str, Any] | None = None
        for request in self._requests():
            command, given = request["command"], request.get("arguments") or {}
            match command:
                case "initialize":
                    self._answer(request, CAPABILITIES)
                    self._event("initialized")
                case "launch":
                    launch = request
                case "disconnect" | "terminate":
                    self._answer(request)
                    return
                case "configurationDone":
                    self._answer(request)
                    if launch is not None and self._debug(launch):
                        return
                case _:
                    self._serve(request, command, given, None)

    # The launch

    def _debug(self, launch: dict[str, Any]) -> bool:
        """Runs what was asked for; whether the editor has gone meanwhile."""
        given = launch.get("arguments") or {}
        self._stops_at_entry = bool(given.get("stopOnEntry", True))
        self._session, self._entered = None, False
        try:
            with self.open(given) as debuggee:
                self._debuggee = debuggee
                self._answer(launch)
                self._session = DebugSession(debuggee.run, self._stopped)
                self._session.debug()
        except EOFError:
            return True
        except Exception as error:
            if self._session is None:
                self._refuse(launch, str(error))
                return False
            self._event("output", {"category": "stderr", "output": f"{error}\n"})
        self._event("terminated")
        return self._gone

    def _stopped(self, session: DebugSession, stop: Stop) -> Go:
        self._session = session
        session.breaks = [b for breaks in self._breaks.values() for b in breaks]
        session.hazards = self._hazards
        if not self._entered:
            self._entered = True
            self._verify(session)
            if not self._stops_at_entry:
                return "continue"
        if stop.ended:
            return "quit"
        self._frames = []
        reason = "breakpoint" if stop.why.startswith(("break at", "mbarrier")) else "step"
        if stop.why == "no warp can go on" or not (stop.before or reason == "breakpoint" or "asynchronous" in stop.why):
            reason = "exception"
        thread = _thread(stop.cta, stop.warp) if stop.warp >= 0 else next(iter(self._warps(session)), 1)
        said = {"reason": reason, "description": stop.why, "text": stop.why, "threadId": thread}
        self._event("stopped", said | {"allThreadsStopped": True})
        for request in self._requests():
            command, given = request["command"], request.get("arguments") or {}
            if command in _GOES:
                self._answer(request, {"allThreadsContinued": True} if command == "continue" else None)
                self._gone = command == "disconnect"
                if "threadId" in given:
                    session.focus = divmod(given["threadId"] - 1, _WARPS)
                return _GOES[command]
            self._serve(request, command, given, stop)
        raise EOFError

    def _verify(self, session: DebugSession) -> None:
        """Breaks are set before there is a program; now it is known where they are."""
        for breaks in self._breaks.values():
            for b in breaks:
                self._event("breakpoint", {"reason": "changed", "breakpoint": self._described(b, session)})

    # Requests that leave the launch where it is

    def _serve(self, request: dict[str, Any], command: str, given: dict[str, Any], stop: Stop | None) -> None:
        handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "setBreakpoints": self._set_breakpoints,
            "setExceptionBreakpoints": self._set_hazards,
        }
        if stop is not None:
            handlers |= {
                "threads": lambda _: self._threads(),
                "stackTrace": lambda g: self._stack(g),
                "scopes": lambda g: _scopes(int(g["frameId"])),
                "variables": lambda g: self._variables(int(g["variablesReference"]), stop),
                "evaluate": lambda g: self._evaluate(g, stop),
                "exceptionInfo": lambda _: {"exceptionId": stop.why, "breakMode": "always"},
            }
        if command not in handlers:
            self._refuse(request, f"{command}: not known here" if stop else f"{command}: nothing runs yet")
            return
        try:
            self._answer(request, handlers[command](given))
        except WrongCommandError as error:
            self._refuse(request, str(error))

    def _set_breakpoints(self, given: dict[str, Any]) -> dict[str, Any]:
        path = str(given["source"].get("path", given["source"].get("name", "")))
        breaks = []
        for wanted in given.get("breakpoints", []):
            b = replace(parse_break(f"{wanted['line']}"), file="" if path.endswith(".ptx") else path)
            if wanted.get("condition"):
                b = replace(b, condition=parse_break(f"{wanted['line']} if {wanted['condition']}").condition)
            breaks.append(b)
            self._numbers[id(b)] = next(self._next)
        self._breaks[path] = breaks
        if self._session is not None:
            self._session.breaks = [b for some in self._breaks.values() for b in some]
        return {"breakpoints": [self._described(b, self._session) for b in breaks]}

    def _described(self, b: Break, session: DebugSession | None) -> dict[str, Any]:
        found = session is not None and bool(session.places(b))
        said = {"id": self._numbers[id(b)], "verified": found, "line": b.line}
        return said if found or session is None else said | {"message": "no instruction is there"}

    def _set_hazards(self, given: dict[str, Any]) -> dict[str, Any]:
        self._hazards = "hazards" in given.get("filters", [])
        if self._session is not None:
            self._session.hazards = self._hazards
        return {}

    def _warps(self, session: DebugSession) -> dict[int, dict[str, Any]]:
        return {_thread(w["cta"], w["warp"]): w for w in session.observer.warps() if w["live"]}

    @property
    def _running(self) -> DebugSession:
        assert self._session is not None
        return self._session

    def _threads(self) -> dict[str, Any]:
        found = []
        for number, warp in self._warps(self._running).items():
            waits = next((f["for"] for f in warp["fragments"] if f["for"]), "")
            name = f"CTA {warp['cta']}, warp {warp['warp']}" + (f", waits for {waits}" if waits else "")
            found.append({"id": number, "name": name})
        return {"threads": found}

    def _stack(self, given: dict[str, Any]) -> dict[str, Any]:
        session, thread = self._running, int(given["threadId"])
        warp = self._warps(session).get(thread)
        if warp is None:
            raise WrongCommandError("this warp has ended")
        frames = []
        assert self._debuggee is not None
        for f in warp["fragments"]:
            instruction = session.sources[f["pc"]]
            places = [(self._debuggee.root / x.file, x.line) for x in chain_of(instruction.location)]
            for path, line in [*places, (self._debuggee.ptx, instruction.line)]:
                self._frames.append((thread, f["pc"]))
                frames.append({
                    "id": len(self._frames),
                    "name": instruction.text,
                    "source": {"name": path.name, "path": str(path)},
                    "line": line,
                    "column": 1,
                })  # fmt: skip
        return {"stackFrames": frames, "totalFrames": len(frames)}

    def _variables(self, reference: int, stop: Stop) -> dict[str, Any]:
        frame, scope = divmod(reference, _SCOPES)
        here = self._at(frame, stop)
        lines = {_REGISTERS: self._registers, _BARRIERS: self._barriers, _PENDING: self._pending}[scope](here)
        return {"variables": [{"name": n, "value": v, "variablesReference": 0} for n, v in lines]}

    def _at(self, frame: int, stop: Stop) -> Stop:
        """The place of a frame, as a stop there would be."""
        if not 1 <= frame <= len(self._frames):
            raise WrongCommandError("this frame is of an earlier stop")
        thread, pc = self._frames[frame - 1]
        cta, warp = divmod(thread - 1, _WARPS)
        if (cta, warp) == (stop.cta, stop.warp):
            return stop
        return replace(stop, cta=cta, warp=warp, rank=self._warps(self._running)[thread]["rank"], pc=pc, mask=0)

    def _registers(self, here: Stop) -> Iterator[tuple[str, str]]:
        for line in registers(self._running, here, []):
            name, _, value = line.partition(" = " if " = " in line else ": ")
            yield name, value

    def _barriers(self, here: Stop) -> Iterator[tuple[str, str]]:
        for line in barriers(self._running, max(here.rank, 0)):
            name, _, value = line.partition(": ")
            yield name, value

    def _pending(self, here: Stop) -> Iterator[tuple[str, str]]:
        for k, line in enumerate(pending(self._running)):
            yield str(k), line

    def _evaluate(self, given: dict[str, Any], stop: Stop) -> dict[str, Any]:
        """A register's name, or a command of the terminal's that shows something."""
        expression = str(given["expression"]).strip()
        here = self._at(int(given["frameId"]), stop) if given.get("frameId") else stop
        line = f"print {expression}" if expression.startswith("%") else expression
        said = "\n".join(answer(self._running, here, line.split(), line))
        return {"result": said.removeprefix(f"{expression} = "), "variablesReference": 0}

    # Messages

    def _requests(self) -> Iterator[dict[str, Any]]:
        while True:
            length = 0
            while line := self.source.readline().strip():
                name, _, value = line.decode("ascii").partition(":")
                if name.lower() == "content-length":
                    length = int(value)
            if not length:
                return
            yield json.loads(self.source.read(length))

    def _answer(self, request: dict[str, Any], body: Any = None) -> None:
        said = {"request_seq": request["seq"], "success": True, "command": request["command"]}
        self._send("response", said | {"body": body or {}})

    def _refuse(self, request: dict[str, Any], why: str) -> None:
        said = {"request_seq": request["seq"], "success": False, "command": request["command"], "message": why}
        self._send("response", said | {"body": {"error": {"id": 1, "format": why, "showUser": True}}})

    def _event(self, name: str, body: Any = None) -> None:
        self._send("event", {"event": name, "body": body or {}})

    def _send(self, kind: str, message: dict[str, Any]) -> None:
        self._sequence += 1
        raw = json.dumps({"seq": self._sequence, "type": kind} | message).encode()
        self.sink.write(b"Content-Length: %d\r\n\r\n%b" % (len(raw), raw))
        self.sink.flush()


def _thread(cta: int, warp: int) -> int:
    return cta * _WARPS + warp + 1


def _scopes(frame: int) -> dict[str, Any]:
    named = (("Registers", _REGISTERS), ("mbarriers", _BARRIERS), ("Asynchronous operations", _PENDING))
    scopes = [
        {"name": name, "variablesReference": frame * _SCOPES + which, "expensive": False} for name, which in named
    ]
    return {"scopes": scopes}
