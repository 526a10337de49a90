"""The debugger as an editor drives it: `fmha debug --dap`, debugpy's client of the Debug Adapter Protocol, and the
protocol's own schema, which debugpy carries."""

from __future__ import annotations

import importlib.util
import json
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from debugpy.common.messaging import JsonIOStream, JsonMessageChannel, MessageHandlingError

KERNELS = Path(__file__).parent / "kernels"
PTX = str(KERNELS / "early.ptx")
EARLY = {"kernel": PTX, "launch": str(KERNELS / "early.yaml")}
SCHEMA = "_vendored/pydevd/_pydevd_bundle/_debug_adapter/debugProtocol.json"


class Kept(JsonIOStream):
    """Keeps what the adapter says."""

    said: list[dict[str, Any]]

    def read_json(self, decoder: Any = None) -> Any:
        message = super().read_json(decoder)
        self.said.append(json.loads(json.dumps(message, default=dict)))
        return message


class Editor:
    """A client, and the adapter that it started."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "fmha", "debug", "--dap"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.stream = Kept.from_process(self.process)
        self.stream.said = []
        self.events: queue.Queue[Any] = queue.Queue()
        self.channel = JsonMessageChannel(self.stream, self)
        self.channel.start()
        assert self.ask("initialize", adapterID="fmha")["supportsStepBack"]
        self.await_("initialized")

    def event(self, event: Any) -> None:
        self.events.put(event)

    def disconnect(self) -> None:
        self.events.put(None)

    def ask(self, command: str, **arguments: Any) -> Any:
        return self.channel.request(command, arguments or None)

    def await_(self, name: str) -> Any:
        """The next event of this name; those before it are dropped."""
        while (event := self.events.get(timeout=30)).event != name:
            pass
        return event.body

    def breaks(self, *lines: int, condition: str | None = None) -> list[Any]:
        wanted = [{"line": line} | ({"condition": condition} if condition else {}) for line in lines]
        return list(self.ask("setBreakpoints", source={"path": PTX}, breakpoints=wanted)["breakpoints"])

    def launch(self, **arguments: Any) -> Any:
        """The request; it is answered once the configuration is done."""
        launched = self.channel.send_request("launch", arguments)
        self.ask("configurationDone")
        return launched

    def top(self, thread: int) -> Any:
        return self.ask("stackTrace", threadId=thread)["stackFrames"][0]

    def variables(self, frame: int, scope: str) -> dict[str, str]:
        scopes = {s["name"]: s["variablesReference"] for s in self.ask("scopes", frameId=frame)["scopes"]}
        found = self.ask("variables", variablesReference=scopes[scope])["variables"]
        return {variable["name"]: variable["value"] for variable in found}


@pytest.fixture
def editor() -> Iterator[Editor]:
    """What was said to it in a test keeps to the protocol."""
    made = Editor()
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
    spec = importlib.util.find_spec("debugpy")
    assert spec
    assert spec.origin
    schema = json.loads((Path(spec.origin).parent / SCHEMA).read_text())
    for message in made.stream.said:
        kind = message["type"].capitalize()
        name = message["event"] if kind == "Event" else message["command"]
        kind = kind if message.get("success", True) else "ErrorResponse"
        definition = kind if kind == "ErrorResponse" else f"{name[0].upper()}{name[1:]}{kind}"
        jsonschema.validate(message, schema | {"$ref": f"#/definitions/{definition}"})


def test_an_editor_breaks_looks_steps_and_goes_back(editor):
    (placed,) = editor.breaks(35)
    assert not placed["verified"], "there is no program yet"
    editor.ask("setExceptionBreakpoints", filters=[])
    editor.launch(**EARLY, stopOnEntry=False).wait_for_response()
    placed = editor.await_("breakpoint")["breakpoint"]
    assert (placed["verified"], placed["line"]) == (True, 35)
    stopped = editor.await_("stopped")
    assert stopped["reason"] == "breakpoint"
    thread = stopped["threadId"]
    threads = {item["id"]: item["name"] for item in editor.ask("threads")["threads"]}
    assert threads[thread] == "CTA 0, warp 0"
    frame = editor.top(thread)
    assert (frame["line"], frame["source"]["path"]) == (35, PTX)
    assert editor.variables(frame["id"], "Registers")["%at"].startswith("lane 0 0")
    barriers = editor.variables(frame["id"], "mbarriers")
    assert barriers == {"mbarrier 0x480": "phase 0, 0 of 1 arrivals and 128 bytes missing"}
    (copy,) = editor.variables(frame["id"], "Asynchronous operations").values()
    assert "PTX line 26" in copy
    assert editor.ask("evaluate", expression="%v", frameId=frame["id"])["result"] == "0"
    editor.ask("stepBack", threadId=thread)
    assert editor.await_("stopped")["reason"] == "step"
    assert editor.top(thread)["line"] == 34
    editor.ask("next", threadId=thread)
    editor.await_("stopped")
    assert editor.top(thread)["line"] == 35
    assert editor.breaks() == []
    editor.ask("continue", threadId=thread)
    editor.await_("terminated")
    editor.ask("disconnect")
    assert editor.process.wait(30) == 0


def test_a_hazard_is_an_exception_and_any_warp_can_be_stepped(editor):
    editor.launch(**EARLY)
    first = editor.await_("stopped")
    assert first["reason"] == "step"
    second = first["threadId"] + 1
    editor.ask("next", threadId=second)
    assert editor.await_("stopped")["threadId"] == second
    line = editor.top(second)["line"]
    editor.ask("next", threadId=second)
    assert editor.await_("stopped")["threadId"] == second
    assert editor.top(second)["line"] > line
    editor.ask("continue", threadId=second)
    stopped = editor.await_("stopped")
    assert (stopped["reason"], stopped["text"].partition(":")[0]) == ("exception", "bulk-copy-in-flight")
    assert editor.ask("exceptionInfo", threadId=1)["exceptionId"] == stopped["text"]
    with pytest.raises(MessageHandlingError, match="shared memory ends at"):
        editor.ask("evaluate", expression="smem 0x100000")
    editor.ask("disconnect")
    assert editor.process.wait(30) == 0


def test_a_launch_that_the_driver_would_refuse_ends_with_its_reason(editor, tmp_path):
    wrong = tmp_path / "launch.yaml"
    wrong.write_text(Path(EARLY["launch"]).read_text().replace("block: [64]", "block: [4096]"))
    editor.launch(kernel=PTX, launch=str(wrong)).wait_for_response()
    assert "block.x is 4096; 1..1024 is allowed" in editor.await_("output")["output"]
    editor.await_("terminated")


def test_what_cannot_be_launched_is_refused_and_another_launch_may_follow(editor):
    with pytest.raises(MessageHandlingError, match="a file of PTX needs its launch"):
        editor.launch(kernel=PTX).wait_for_response()
    with pytest.raises(MessageHandlingError, match="nothing runs yet"):
        editor.ask("threads")
    editor.breaks(19, condition="%tid == 40")
    editor.launch(**EARLY)
    editor.await_("stopped")
    editor.ask("continue", threadId=1)
    stopped = editor.await_("stopped")
    assert (stopped["reason"], stopped["threadId"]) == ("breakpoint", 2)
    editor.ask("terminate")
    editor.await_("terminated")
    editor.ask("disconnect")
    assert editor.process.wait(30) == 0
