"""A host that lies, is broken, or is somebody else's: nothing that it says becomes a verdict or an order to a terminal.

What it says are the bytes of a real run, changed: on the host's disk for the tests over sshd, on the line for the fuzz.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from fmha.harness.cli.progress import ProgressLines
from fmha.harness.errors import ExitCode, FmhaError, InfrastructureError, UserError
from fmha.harness.git import git_text
from fmha.harness.hosts import remote
from fmha.harness.hosts.host_answers import Asked
from fmha.harness.hosts.line import Line
from fmha.harness.stages import report
from fmha.harness.stages.attach import attach
from fmha.harness.stages.host_checkout import find_checkout
from fmha.harness.stages.pipeline import CHOICES
from tests.harness.support import git
from tests.remote.conftest import GATES, Client, fresh_client
from tests.remote.server import Server

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
GOOD = {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}
# What a terminal would obey: clear, set the clipboard, change the title, turn the text around, and C1's own CSI.
HOSTILE = "\x1b[2J\x1b]52;c;cHduZWQ=\x07\x1b]0;x\x07\u202egood\u2066\x9b31m\r::error::pwned ##[error]pwned"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def went_well(template: Path, server: Server, warm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client with one run that went well, and nothing of it archived here."""
    with fresh_client(template, server, tmp_path_factory.mktemp("trust")) as made:
        git(made.root, "commit", "-q", "--allow-empty", "-m", "has an ancestor")
        assert made.run("run-matrix", "--host", "gpu", "-q").returncode == 0
        shutil.rmtree(made.root / "results")
        yield made


@pytest.fixture
def client(went_well: Client, tmp_path: Path) -> Iterator[Client]:
    """The same for every test, whatever the one before has changed on the host or here."""
    (run,) = went_well.runs()
    ledger = went_well.root / ".fmha" / "remote" / run.name
    kept = {path: path.read_bytes() for path in (*run.glob("*.json*"), run / "run.log", ledger)}
    yield went_well
    for path, content in kept.items():
        path.write_bytes(content)
    shutil.rmtree(went_well.root / "results", ignore_errors=True)
    git(went_well.root, "checkout", "-q", "-f", "main")


def rewrite(run: Path, change: Callable[[Events], None], status: dict[str, Any] | None = None) -> None:
    """Changes a run's events, and its final status with them: by their digest nobody would notice."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    change(events)
    data = "".join(json.dumps(event) + "\n" for event in events).encode()
    (run / "events.jsonl").write_bytes(data)
    final = json.loads((run / "status.json").read_text()) | (status or {})
    final |= {"events_bytes": len(data), "events_sha256": hashlib.sha256(data).hexdigest()}
    (run / "status.json").write_text(json.dumps(final))


def results(events: Events) -> Iterator[dict[str, Any]]:
    return (event["event"] for event in events if event["kind"] == "event" and event["event"]["event"] == "result")


def built(events: Events) -> dict[str, Any]:
    return next(event for event in events if event["kind"] == "build")["result"]


def measured(name: str, value: object) -> Callable[[Events], None]:
    return lambda events: [event["measurement"].update({name: value}) for event in results(events)] and None


def doubled(events: Events) -> None:
    """A second result, worse than the first, after it."""
    last = next(event for event in reversed(events) if event["kind"] == "event" and event["event"]["event"] == "result")
    events.insert(events.index(last) + 1, copy.deepcopy(last))


def only(name: str) -> Callable[[Events], None]:
    """As if nothing but one configuration had been asked for."""

    def change(events: Events) -> None:
        events[:] = [event for event in events if event.get("event", {}).get("config", name) == name]

    return change


class Replay:
    """A carrier whose other end has said everything already."""

    def __init__(self, said: bytes) -> None:
        self._said = io.BytesIO(said)

    def write(self, data: bytes) -> None: ...

    def read(self, seconds: float) -> bytes:
        return self._said.read(1 << 16)

    def epitaph(self) -> str:
        return "the connection was lost"

    def close(self) -> None: ...


class Clock:
    """Time that passes in waits alone: whoever tries again for a minute does so a few times."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class Stream:
    """A run as its host would tell it, and what becomes of it here."""

    def __init__(self, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (run,) = client.runs()
        self.job = json.loads((run / "job.json").read_text())
        self.status = json.loads((run / "status.json").read_text())
        self.events: Events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        self.shown = ""
        self._place = find_checkout(client.root).named("gpu")
        self._folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.setattr("fmha.harness.hosts.stream.time", Clock())

    def said(self, events: Events) -> bytes:
        return spoken(self.job, events, self.status, honest=True)

    def archived(self) -> list[Path]:
        return [*self._folder.glob("*.json")]

    def followed(self, said: bytes) -> ExitCode:
        """`fmha attach`, these bytes being all that the host says. What is shown has nothing that a terminal or a CI
        system would obey, and what is refused has left nothing behind."""
        job, _, rest = said.partition(b"\n")
        answers = iter([job + b"\n", rest])
        self._monkeypatch.setattr(remote, "dial", lambda host, request: Line(Replay(next(answers, b"")), "gpu", 1.0))
        shutil.rmtree(self._folder, ignore_errors=True)
        shown = io.StringIO()
        run = self.job["run"]
        try:
            return attach(
                run, self._place, self._folder, ProgressLines(shown),
                lambda record, path: report.show(record, path, Console(file=shown)), lambda host: None,
            )  # fmt: skip
        except FmhaError:
            assert not re.search("^PASS", shown.getvalue(), re.MULTILINE)
            assert not list(self._folder.glob("*.json"))
            raise
        finally:
            self.shown = shown.getvalue()
            for line in self.shown.splitlines():
                assert not CONTROLS.search(line), line
                assert not line.lstrip().startswith("::"), line
                assert "##[" not in line


@pytest.fixture
def stream(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(client, tmp_path / "archive", monkeypatch)


def spoken(job: Any, events: Events, status: Any, *, honest: bool) -> bytes:
    """What an agent says to `follow`; an honest one has the digest of its events right."""
    data = "".join(json.dumps(event) + "\n" for event in events)
    if honest and isinstance(status, dict):
        raw = data.encode("utf-8", "surrogatepass")
        status = status | {"events_bytes": len(raw), "events_sha256": hashlib.sha256(raw).hexdigest()}
    messages = [{"job": job}, {"events": data, "offset": len(data)}, {"status": status}]
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def test_all_that_chooses_configurations_is_compared():
    assert tuple(Asked.model_fields) == CHOICES


def test_what_the_host_did_say_passes(stream: Stream):
    assert stream.followed(stream.said(stream.events)) is ExitCode.PASS
    assert "PASS 2 of 2" in stream.shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (measured("cosine", 5.0), "cosine: is 5, which no cosine is"),
        (measured("relative_l2", -1e-9), "relative_l2: is -1e-09, which no error is"),
        (measured("lse_error", "-inf"), "lse_error: is -inf, which no error is"),
        (measured("unwritten", -1), "unwritten"),
        (measured("output_hash", "0" * 63), "output_hash"),
        (lambda events: next(results(events)).update(config="hd64_t2_sk128"), "was not asked for"),
        (lambda events: next(results(events)).update(measurement=None), "has no numbers"),
        (lambda events: next(results(events)).update(seconds=-1.0), "seconds"),
        (lambda events: next(results(events)).update(stats={"warp_instructions": 10**400}), "64 bits"),
        (doubled, "was not asked for, or is done|has two results"),
        (lambda events: next(results(events)).update(timing={}), "missing"),
        (lambda events: built(events).update(resources=None), "was left out"),
        (lambda events: built(events)["resources"].update(spill_loads=-1), "spill_loads"),
        (lambda events: built(events)["variant"].update(name="x"), "was not asked for"),
        (lambda events: built(events)["variant"].update(entry="x"), "its entry is 'x'"),
    ],
)
def test_what_cannot_be_voids_the_run(stream: Stream, change: Callable[[Events], None], said: str):
    change(stream.events)
    with pytest.raises(InfrastructureError, match=said):
        stream.followed(stream.said(stream.events))


def test_a_result_that_cannot_be_voids_the_run_over_ssh(client: Client):
    (run,) = client.runs()
    rewrite(run, measured("cosine", 5.0))
    done = client.run("attach", run.name)
    assert done.returncode == 3, done.stdout
    assert "cosine: is 5, which no cosine is" in done.stderr
    assert "PASS" not in done.stdout
    assert client.records() == []


def test_an_excerpt_is_of_a_kernels_source_and_of_nothing_else(stream: Stream, client: Client):
    """A finding names the place that it is about; a record is read by others."""
    (client.root / ".env").write_text("TOKEN=secret\n")
    (client.root / "notes.md").write_text("secret\n")
    places = [".env:1", "notes.md:1", ".git/config:1", "../x.cu:1", "kernel/sm100/fmha_fwd.cu:1", "a\0.cu:1"]
    for event in results(stream.events):
        event["findings"] = [
            {"rule": "r", "severity": "warning", "message": "m", "where": {"source": place}} for place in places
        ]
    stream.followed(stream.said(stream.events))
    (record,) = (json.loads(path.read_text()) for path in stream.archived())
    assert list(record["sources"]) == ["kernel/sm100/fmha_fwd.cu"]


def test_the_job_of_another_commit_is_not_archived_under_this_run(client: Client):
    (run,) = client.runs()
    job = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps(job | {"sha": "ab" * 20}))
    done = client.run("attach", run.name)
    assert done.returncode == 3
    assert "answers with the job of" in done.stderr
    assert client.records() == []


def test_a_smaller_request_is_not_taken_for_what_was_asked(stream: Stream):
    stream.job["order"]["request"]["filters"] = ["t=1"]
    with pytest.raises(InfrastructureError, match="another filters than was asked for"):
        stream.followed(stream.said(stream.events))


def test_the_gates_are_the_commits_own_wherever_the_run_was_started(client: Client):
    """Loosened on the host, together with its results: nothing changes here."""
    (run,) = client.runs()
    (client.root / ".fmha" / "remote" / run.name).unlink()  # as in another checkout
    job = json.loads((run / "job.json").read_text())
    gates = json.dumps(GATES["default"])
    job["order"]["matrix"] = job["order"]["matrix"].replace("cosine: 0.99999", "cosine: 0.0")
    assert "cosine: 0.0" in job["order"]["matrix"], gates
    (run / "job.json").write_text(json.dumps(job))
    rewrite(run, measured("cosine", 0.5))
    done = client.run("attach", run.name, "--host", "gpu")
    assert done.returncode == 1, done.stderr
    assert client.statuses() == dict.fromkeys(GOOD, "fail")


def test_what_only_the_host_says_was_asked_for_is_called_so(client: Client):
    """The request made smaller on the host: where it was made that is refused, elsewhere nobody can know."""
    (run,) = client.runs()
    job = json.loads((run / "job.json").read_text())
    job["order"]["request"]["filters"] = ["t=1"]
    (run / "job.json").write_text(json.dumps(job))
    rewrite(run, only("hd64_t1_sk128"))
    done = client.run("attach", run.name, "--host", "gpu")
    assert done.returncode == 3
    assert "another filters than was asked for" in done.stderr
    (client.root / ".fmha" / "remote" / run.name).unlink()  # as in another checkout
    done = client.run("attach", run.name, "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "PASS 1 of 1, of what gpu says was asked for"
    assert "asked for from another checkout: only gpu says what was selected\n" in done.stdout
    (record,) = client.records()
    assert record["elsewhere"] == {"host": "gpu", "judge": None}


def test_an_ancestor_that_only_the_host_names_as_judge_is_called_so(client: Client):
    (run,) = client.runs()
    job = json.loads((run / "job.json").read_text())
    ancestor = git_text(client.root, "rev-parse", "HEAD~1")
    (run / "job.json").write_text(json.dumps(job | {"judge": ancestor}))
    done = client.run("attach", run.name, "--host", "gpu")
    assert done.returncode == 3
    assert "another judge than was asked for" in done.stderr
    (client.root / ".fmha" / "remote" / run.name).unlink()
    done = client.run("attach", run.name, "--host", "gpu")
    assert f"says what was selected, and that commit {ancestor[:12]} was to judge" in done.stdout, done.stderr
    (record,) = client.records()
    assert record["elsewhere"] == {"host": "gpu", "judge": ancestor}


def test_a_run_that_was_asked_for_here_has_nobodys_word(client: Client):
    (run,) = client.runs()
    done = client.run("attach", run.name)
    assert done.stdout.splitlines()[-1] == "PASS 2 of 2"
    assert [record["elsewhere"] for record in client.records()] == [None]


def test_a_judge_that_was_not_asked_for_is_refused(stream: Stream, client: Client):
    """Another commit's matrix.yaml, with gates that anything passes."""
    text = (client.root / "matrix.yaml").read_text()
    (client.root / "matrix.yaml").write_text(text.replace("cosine: 0.99999", "cosine: 0.0"))
    git(client.root, "commit", "-q", "-a", "-m", "looser")
    stream.job["judge"] = git_text(client.root, "rev-parse", "HEAD")
    git(client.root, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(InfrastructureError, match="another judge than was asked for"):
        stream.followed(stream.said(stream.events))
    (client.root / ".fmha" / "remote" / stream.job["run"]).unlink()  # as in another checkout
    with pytest.raises(InfrastructureError, match="does not come from it"):
        stream.followed(stream.said(stream.events))


def test_a_commit_that_is_not_here_has_no_gates(stream: Stream):
    """A run by that name, of a commit that only the host knows."""
    stream.job |= {"sha": "ab" * 20, "run": f"20261121T101500Z-{'ab' * 6}-89abcdef"}
    with pytest.raises(UserError, match="is not in this checkout"):
        stream.followed(stream.said(stream.events))


def test_a_finished_run_keeps_its_time(client: Client):
    """Whenever it is archived, and whatever the host's clock says: histories do not change their order."""
    (run,) = client.runs()
    rewrite(run, lambda events: [event.update(at=event["at"] - 10800) for event in events] and None)
    final = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(final | {"finished": final["finished"] - 10800}))
    assert client.run("attach", run.name).returncode == 0
    (record,) = client.records()
    assert re.sub("[-:]", "", record["started"]) == run.name.split("-")[0]
    assert record["started"] <= record["finished"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (seconds,) = {round(json.loads((run / "status.json").read_text())["finished"] - events[0]["at"])}
    assert record["finished"] >= record["started"]
    assert seconds < 600


def test_text_of_a_host_is_shown_and_never_obeyed(client: Client):
    (run,) = client.runs()

    def change(events: Events) -> None:
        events.insert(1, {"kind": "note", "text": HOSTILE})
        events.insert(1, {"kind": "note", "text": "::stop-commands::x"})
        events.insert(1, {"kind": "waiting", "reason": f"{HOSTILE}\n::error::x", "position": 1})
        for event in results(events):
            event.update(event="error", status="crash", message=f"::error::{HOSTILE}\n::warning::x", measurement=None)

    rewrite(run, change, {"state": "failed", "reason": HOSTILE, "next_step": HOSTILE})
    (run / "run.log").write_text(f"{HOSTILE}\n::error::x\n\ttab\n")
    job = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps(job | {"label": HOSTILE}))
    environment = {"GITHUB_ACTIONS": "true"}
    plain = (["attach", run.name], ["logs", run.name], ["ps", "--host", "gpu"])
    for words in (*plain, *([*words, "--json"] for words in plain)):
        done = client.run(*words, **environment)
        assert "pwned" in done.stdout + done.stderr, (words, done)
        for line in (done.stdout + done.stderr).splitlines():
            assert not CONTROLS.search(line.replace("\t", "")), (words, line)
            assert "##[" not in line
            ours = line.startswith("::error title=crash::") and words[0] == "attach"
            assert ours or not line.lstrip().startswith("::"), (words, line)
        if "--json" in words and done.stdout:
            assert HOSTILE[:5] in json.dumps(json.loads(done.stdout), ensure_ascii=False).replace("\\u001b", "\x1b")
    assert client.run("logs", run.name).stdout.count("\ttab") == 1


def test_one_malformed_reply_leaves_the_other_hosts_their_runs(client: Client):
    (run,) = client.runs()
    other = client.server.home / "other"
    text = (client.root / "matrix.yaml").read_text()
    matrix = yaml.safe_load(text)
    matrix["hosts"]["real"]["folder"] = str(other)
    (client.root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    shutil.copytree(run, other / "runs" / run.name, symlinks=True)
    job = json.loads((run / "job.json").read_text())
    (other / "runs" / run.name / "job.json").write_text(json.dumps(job | {"label": {"not": "text"}}))
    for path in (other, *other.rglob("*")):
        os.chown(path, client.server.uid, -1, follow_symlinks=False)
    try:
        done = client.run("ps")
    finally:
        shutil.rmtree(other)
    assert done.returncode == 3
    assert run.name in done.stdout
    assert "real: what the host says cannot be: label" in done.stderr


POOL: list[Any] = [
    None, True, -1, 0, 1, 2, 5.0, -0.5, 1e308, 2**70, 10**400, "", "nan", "inf", "-inf", "hd64_t1_sk128", "pass",
    "done", "result",
    "error", HOSTILE, "\ud800", "x\0y", "kernel/../../../etc/passwd:1", ".env:1", "a.cu:" + "9" * 5000,
    "x" * 100_000, [], {}, [[]], {"float": "nan"}, {"float": []},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every part of JSON data, by its path."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


@st.composite
def mutated(draw: st.DrawFn, job: dict[str, Any], events: Events, status: dict[str, Any]) -> bytes:
    """What a host might say to `follow`: a job, events and a status, with up to three parts of them changed."""
    job, events, status = copy.deepcopy((job, events, status))
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["value", "value", "value", "drop", "repeat", "swap", "extra", "number"]))
        at = draw(st.integers(0, len(events) - 1)) if events else 0
        if kind == "drop" and events:
            del events[at]
        elif kind == "repeat" and events:
            events.insert(draw(st.integers(0, len(events))), copy.deepcopy(events[at]))
        elif kind == "swap" and events:
            other = draw(st.integers(0, len(events) - 1))
            events[at], events[other] = events[other], events[at]
        elif kind == "number":
            for path in [path for path in places(events) if path[-1:] == ("measurement",)]:
                numbers = reduce(getitem, path, events)
                if isinstance(numbers, dict) and numbers:
                    figures = [name for name, value in numbers.items() if not isinstance(value, str | dict)]
                    name = draw(st.sampled_from(figures or sorted(numbers)))
                    numbers[name] = draw(st.sampled_from([0.5, 2.0, -1.0, 1e-3, "nan", 7, None]))
        else:
            whole = {"job": job, "events": events, "status": status}
            path = draw(st.sampled_from([path for path in places(whole) if len(path) > 1]))
            parent: Any = reduce(getitem, path[:-1], whole)
            if kind == "extra" and isinstance(parent, dict):
                parent[draw(st.sampled_from(["x", "kind", "event", HOSTILE]))] = draw(st.sampled_from(POOL))
            else:
                parent[path[-1]] = draw(st.sampled_from(POOL))
    said = spoken(job, events, status, honest=bool(draw(st.integers(0, 9))))
    if not draw(st.integers(0, 9)):
        cut = draw(st.integers(0, len(said) - 1))
        said = said[:cut] + draw(st.binary(max_size=8)) + said[cut + draw(st.integers(0, 8)) :]
    return said


def honest_pass(said: bytes) -> bool:
    """Whether the bytes have, for each configuration asked, one result, and that one within the gates."""
    events: Events = []
    for line in said.split(b"\n"):
        message = json.loads(line) if line else {}
        for text in message.get("events", "").split("\n"):
            if text:
                events.append(json.loads(text))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in GOOD}
    for event in results([event for event in events if event.get("kind") == "event" and event.get("job") == 1]):
        found[event["config"]].append(event["measurement"])
    limits = GATES["default"]
    return all(
        len(numbers) == 1
        and limits["cosine"] <= numbers[0]["cosine"] <= 1 + 1e-9
        and all(0 <= numbers[0][name] <= limit for name, limit in limits.items() if name != "cosine")
        and numbers[0]["unwritten"] == numbers[0]["nonfinite_mismatches"] == 0
        for numbers in found.values()
    )


def test_a_changed_stream_never_ends_in_a_traceback_or_in_a_pass_that_is_none(stream: Stream):
    seen: Counter[str] = Counter()
    far = copy.deepcopy(stream.events)
    measured("cosine", 0.5)(far)

    # What is drawn from the bytes differs with the times and names in them: a run of each verdict is given.
    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(mutated(stream.job, stream.events, stream.status))
    @example(stream.said(stream.events))
    @example(stream.said(far))
    @example(stream.said([]))
    def fuzz(said: bytes) -> None:
        try:
            code = stream.followed(said)
        except FmhaError:
            seen["refused"] += 1
            return
        seen[code.name] += 1
        if code is ExitCode.PASS:
            assert honest_pass(said)

    fuzz()
    assert seen.keys() >= {"refused", "PASS", "GATE_FAILED"}, seen
