"""The device across the wall: what an executor may say, what its end costs, and what it never hears."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.harness import isolate
from fmha.harness.contract.device import Ceilings, DeviceError, DeviceLostError, LaunchConfig
from fmha.harness.contract.protocol import BuildResult, Configuration, Event, Job, Timed
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.kernel_side.launch import launch_attention
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.across import Executor, grant_for
from fmha.harness.worker.devices.behind import FailedThereError
from fmha.harness.worker.launch.time_builds import ROUNDS
from fmha.harness.worker.processes.heard import MOST_STDERR
from fmha.harness.worker.subjects.subject import AttentionSubject
from tests.worker.hostile_executor import FAULTS

HOSTILE = "tests.worker.hostile_executor"
ROOT = Path(__file__).parents[2]
OURS = (
    ROOT / "tests" / "any",
    ROOT / "kernel" / "any",
)  # what is taken over is in the folders of these, and reads them
CONFIGURATION = Configuration(64, 1, 128)
Hostile = Callable[..., Executor]


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    path = tmp_path / "build" / "k.ptx"
    path.parent.mkdir()
    path.write_text("// any")
    return path


@pytest.fixture
def hostile(artefact: Path) -> Iterator[Hostile]:
    """Executors that are taken over, with the leave that any has."""
    made: list[Executor] = []

    def start(*words: str) -> Executor:
        made.append(Executor("emulator", [artefact, *OURS], [sys.executable, "-P", "-m", HOSTILE, *words]))
        return made[-1]

    yield start
    for executor in made:
        executor.close()


def job(artefact: Path) -> Job:
    build = BuildResult(VARIANTS[0], str(artefact), "", None, "", "", (), 0.0, False)
    return Job("emulator", (build,), (CONFIGURATION, Configuration(64, 2, 128)), seed=0)


def run(artefact: Path, executor: Executor) -> tuple[bool, list[Event]]:
    """Whether the worker goes on, and the events that end a configuration."""
    events: list[Event] = []
    going = run_job(job(artefact), executor.open, events.append)
    return going, [event for event in events if event.event in ("result", "error")]


def test_nobody_can_tell_that_a_device_is_across(hostile: Hostile, artefact: Path) -> None:
    going, events = run(artefact, hostile("none"))
    assert going
    assert [event.event for event in events] == ["result", "result"]
    assert all(event.measurement is not None and event.measurement.cosine > 0.999999 for event in events)
    assert events[0].stats == {"launches": 1}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("killed", "executor killed by SIGKILL; it last said: about to be killed"),
        ("segfault", "executor killed by SIGSEGV; it last said: Fatal Python error: Segmentation fault"),
        ("leaves", "executor ended early with exit code 3; it last said: leaving early"),
        ("garbage", "a line that is no JSON"),
        ("endless-line", "a line of more than 16777216 bytes"),
        ("nested", "a line that is no JSON"),
        ("many-values", "a line of more than 1048576 values"),
        ("list", "a line that is no object"),
        ("nothing", "neither what is done nor why not"),
        ("both", "neither what is done nor why not"),
        ("unknown-word", "neither what is done nor why not"),
        ("words-no-text", "refused: no text"),
        ("report-with-bytes", "4 bytes where 0 were asked for"),
        ("more-output", "1048576 bytes where 4 were asked for"),
        ("less-output", "2 bytes where 4 were asked for"),
        ("output-true", "True bytes where 4 were asked for"),
        ("output-huge", "1000000000000000 bytes where 4 were asked for"),
        ("nan-stats", "NaN is no number"),
        ("infinite-stats", "stats.mma: inf is no number"),
        ("text-stats", "stats.mma: '12' is no number"),
        ("true-stats", "stats.mma: True is no number"),
        ("huge-stats", "is no number"),
        ("untimed-stats", "stats.untimed: no counter"),
        ("coverage-stats", "stats.coverage: no counter"),
        ("many-stats", "stats: not at most 100 counters"),
        ("no-findings", "not findings and stats"),
        ("finding-severity", "findings[0].severity: expected one of error, warning"),
        ("finding-field", "findings[0].waived: unknown field"),
        ("finding-where", "findings[0].where.judge: unknown field"),
        ("finding-place", "findings[0].where.source: no text"),
        ("finding-line", "findings[0].where.ptx_line: -1 is no number"),
        ("finding-calls", "findings[0].where.calls: no text"),
        ("finding-surrogate", "findings[0].message: text that is no Unicode"),
        ("finding-long", "findings[0].message: no text of at most"),
        ("address-negative", "an address: -1 is no number"),
        ("address-text", "an address: '0x1000' is no number"),
        ("address-huge", "is no number from 0 to"),
        ("map-short", "64 bytes where 128 were asked for"),
    ],
)
def test_an_executor_that_is_taken_over_costs_its_configuration(
    hostile: Hostile, artefact: Path, fault: str, words: str
) -> None:
    """It is a crash with words for people, and the worker ends: the next one has an executor of its own."""
    going, events = run(artefact, hostile(fault))
    assert not going
    (event,) = events
    assert (event.event, event.status, event.measurement) == ("error", "crash", None)
    assert words in event.message
    assert len(event.message) < 1000


def test_every_fault_is_tried() -> None:
    (tried,) = (
        {fault for fault, _ in mark.args[1]}
        for mark in test_an_executor_that_is_taken_over_costs_its_configuration.pytestmark  # type: ignore[attr-defined]
    )
    assert FAULTS.keys() - tried == {
        "none",
        "killed-silently",
        "hangs",
        "output-half",
        "closes",
        "flood",
        "twice",
        "reads",
        "writes",
    }


def test_an_executor_that_was_lost_stays_lost(hostile: Hostile) -> None:
    executor = hostile("address-negative")
    device = executor.open(0, "realistic")
    for _ in range(2):
        with pytest.raises(DeviceLostError, match="an address: -1"):
            device.alloc(16, "words")
    device.close()


def test_its_last_words_are_of_the_configuration_that_it_ended_in(hostile: Hostile, artefact: Path) -> None:
    executor = hostile("killed-silently")
    with pytest.raises(DeviceError, match="no such file"):
        executor.open(0, "realistic").load(artefact.with_name("none"))  # it says so on standard error as well
    _, (event,) = run(artefact, executor)
    assert event.message == "executor killed by SIGKILL"


def test_an_answer_too_many_is_no_output_of_the_next_configuration(hostile: Hostile, artefact: Path) -> None:
    going, (event,) = run(artefact, hostile("twice"))
    assert not going
    assert event.status == "crash"
    assert event.measurement is None


@pytest.mark.parametrize("fault", ["output-half", "closes"])
def test_an_output_that_does_not_come_is_waited_for_and_never_made_up(hostile: Hostile, fault: str) -> None:
    """Whoever supervises the worker ends the wait; here the executor's end does."""
    executor = hostile(fault)
    device = executor.open(0, "realistic")
    address = device.alloc(256, "words")
    os.kill(executor.behind.pid, 0)
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {executor.behind.pid}"])
    with pytest.raises(DeviceLostError, match=r"executor (killed by SIGKILL|closed its output and did not end)"):
        device.download(address, 256)


def test_a_flood_on_standard_error_is_cut_and_costs_nothing(artefact: Path, tmp_path: Path) -> None:
    """In a process of its own, whose standard error a supervisor would read."""
    program = f"""
from pathlib import Path
from tests.worker.test_across import HOSTILE, OURS, Executor, run, sys
executor = Executor("emulator", [Path({str(artefact)!r}), *OURS], [sys.executable, "-P", "-m", HOSTILE, "flood"])
going, events = run(Path({str(artefact)!r}), executor)
executor.close()
print(going, [event.event for event in events])
"""
    with (tmp_path / "stderr").open("wb") as stderr:
        ran = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr, check=True, timeout=120
        )
    assert ran.stdout.split(b" ", 1) == [b"True", b"['result', 'result']\n"]
    assert MOST_STDERR < (tmp_path / "stderr").stat().st_size < MOST_STDERR + (1 << 14)
    assert b"(the rest is left out)" in (tmp_path / "stderr").read_bytes()


@pytest.fixture
def _isolated() -> None:
    if (found := isolate.isolation()).mechanism == "none":
        pytest.skip(found.missing)


@pytest.mark.usefixtures("_isolated")
def test_an_executor_reads_no_file_that_it_was_not_granted(hostile: Hostile, artefact: Path, tmp_path: Path) -> None:
    secret = tmp_path / "home" / ".ssh" / "id_ed25519"
    secret.parent.mkdir(parents=True)
    secret.write_text("the key")
    _, events = run(artefact, hostile("reads", str(secret)))
    assert [event.findings[0].message for event in events] in (
        ["FileNotFoundError"] * 2,
        ["PermissionError"] * 2,
    )
    _, events = run(artefact, hostile("reads", str(artefact)))
    assert events[0].findings[0].message == "// any", "and the artefact it may read"


@pytest.mark.usefixtures("_isolated")
@pytest.mark.parametrize("which", ["the artefact", "a file beside it", "a file of fmha"])
def test_an_executor_writes_nothing(hostile: Hostile, artefact: Path, which: str) -> None:
    import fmha

    files = {
        "the artefact": artefact,
        "a file beside it": artefact.with_name("new"),
        "a file of fmha": Path(fmha.__file__).with_name("new.py"),
    }
    before = artefact.read_text()
    _, events = run(artefact, hostile("writes", str(files[which])))
    assert events[0].findings[0].message in ("OSError", "PermissionError", "FileNotFoundError")
    assert artefact.read_text() == before
    assert not files[which].exists() or which == "the artefact"


def test_an_executor_never_hears_what_is_right(artefact: Path, tmp_path: Path) -> None:
    """All that the worker writes to it is kept by a `tee` between the two."""
    said = tmp_path / "said"
    inner = shlex.join([sys.executable, "-P", "-m", HOSTILE, "none"])
    code = f"""
import subprocess, sys
inner = subprocess.Popen({shlex.split(inner)!r}, stdin=subprocess.PIPE)
while data := sys.stdin.buffer.read1():
    sys.stderr.write(data.hex())  # what is no text would be shown as something else
    sys.stderr.flush()
    inner.stdin.write(data)
    inner.stdin.flush()
"""
    program = f"""
from pathlib import Path
from tests.worker.test_across import OURS, Executor, run, sys
executor = Executor("emulator", [Path({str(artefact)!r}), *OURS], [sys.executable, "-P", "-c", {code!r}])
run(Path({str(artefact)!r}), executor)
executor.close()
"""
    with said.open("wb") as stderr:
        subprocess.run([sys.executable, "-c", program], stderr=stderr, check=True, timeout=120)
    heard = said.read_text()
    inputs = make_inputs(0, CONFIGURATION)
    expected = reference(inputs)
    assert inputs.q.tobytes().hex() in heard
    for wanted in (expected.o, expected.row_max, expected.row_sum):
        for kind in (np.float64, np.float32):
            assert np.ascontiguousarray(wanted, kind).tobytes().hex() not in heard


def test_an_executor_has_no_code_that_judges() -> None:
    program = (
        "import sys, fmha.harness.worker.devices.executor, fmha.harness.worker.devices.emulator_device;"
        " print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, timeout=120)
    modules = ran.stdout.split()
    judging = ("oracle", "judge.gate", "judge.limits", "judge.comparison")
    assert not [name for name in modules if any(part in name for part in judging)]


def test_what_fails_there_says_so_as_it_would_here(artefact: Path) -> None:
    with closing(Executor("emulator", [artefact])) as executor:
        device = executor.open(0, "realistic")
        with pytest.raises(DeviceError, match="No such file"):
            device.load(artefact.with_name("none.ptx"))
        artefact.write_bytes(b"\xff\xfe")
        with pytest.raises(FailedThereError, match="UnicodeDecodeError: 'utf-8' codec"):
            device.load(artefact)
        device.upload(0x10, np.zeros(4, np.uint32))  # is not answered
        with pytest.raises((DeviceError, FailedThereError)):
            device.alloc(16, "words")
        assert device.alloc(16, "words") > 0, "told once"


def test_two_devices_of_an_executor_have_memories_of_their_own(artefact: Path) -> None:
    with closing(Executor("emulator", [artefact])) as executor:
        one, other = executor.open(0, "realistic"), executor.open(0, "realistic")
        for device, value in ((one, 1), (other, 2)):
            device.upload(device.alloc(4, "word"), np.full(1, value, np.uint32))
        address = one.alloc(4, "more")
        assert address == other.alloc(4, "more")
        one.close()
        other.upload(address, np.full(1, 3, np.uint32))
        assert other.download(address, 4).view(np.uint32)[0] == 3


@pytest.mark.parametrize("ended", [False, True], ids=["asked at once", "asked when it has ended"])
def test_an_executor_that_does_not_start_is_the_machine_s_fault(artefact: Path, ended: bool) -> None:
    with closing(Executor("no.such:Device", [artefact])) as executor:
        if ended:
            executor.behind._process.wait(60)
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"does not start: .*exit code 2; it last said: device 'no.such:Dev"):
                executor.open(0, "realistic")


def timed_alone(device: Any, build: BuildResult) -> Timed:
    """Judged first."""
    subject, inputs = AttentionSubject(launch_attention), make_inputs(0, CONFIGURATION)
    expected = subject.reference(CONFIGURATION, inputs)
    ran = subject.run(device, device.load(Path(build.ptx)), build.variant, CONFIGURATION, inputs)
    judged = subject.measure(CONFIGURATION, ran, expected)
    return subject.timed_alone(device, build, CONFIGURATION, inputs, expected, judged)


def test_batches_are_timed_on_the_other_side(artefact: Path) -> None:
    """A message a batch, however many launches it has."""
    command = [sys.executable, "-P", "-m", "fmha.harness.worker.devices.executor", "tests.worker.clocked:ClockedDevice"]
    with closing(Executor("emulator", [artefact, *OURS], command)) as executor:
        device = executor.open(0, "realistic")
        build = job(artefact).builds[0]
        timed = timed_alone(device, build)
        assert timed.seconds == pytest.approx([20e-6] * ROUNDS)
        assert timed.clock_mhz == (1500.0,) * ROUNDS


def test_what_a_device_does_at_most_is_measured_beside_times(artefact: Path) -> None:
    command = [sys.executable, "-P", "-m", "fmha.harness.worker.devices.executor", "tests.worker.clocked:RatedDevice"]
    with closing(Executor("emulator", [artefact, *OURS], command)) as executor:
        build = job(artefact).builds[0]
        device = executor.open(0, "realistic")
        timed = timed_alone(device, build)
        assert timed.ceilings == Ceilings(4.2e12, 7e14, 1545.0, 430.5, ("power cap",))


def test_rates_that_no_device_has_are_not_believed(artefact: Path) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "fmha.harness.worker.devices.executor",
        "tests.worker.clocked:BoastingDevice",
    ]
    with closing(Executor("emulator", [artefact, *OURS], command)) as executor:
        device: Any = executor.open(0, "realistic")
        with pytest.raises(DeviceLostError, match=r"ceilings: 1e\+19 is no rate"):
            device.ceilings()


def test_a_device_without_a_clock_has_none_across(hostile: Hostile) -> None:
    assert not hasattr(hostile("none").open(0, "realistic"), "batch")


def test_launches_of_a_batch_keep_their_order_and_parameters(artefact: Path) -> None:
    command = [sys.executable, "-P", "-m", "fmha.harness.worker.devices.executor", "tests.worker.clocked:ToldDevice"]
    with closing(Executor("emulator", [artefact, *OURS], command)) as executor:
        device: Any = executor.open(0, "realistic")
        module = device.load(artefact)
        config = LaunchConfig((1, 2, 3), (4, 5, 6), 7, (1, 2, 1), True)

        def work() -> None:
            for entry, params in (("a", (b"1", b"22")), ("b", b"333"), ("a", (b"1", b"22")), ("a", (b"12", b"2"))):
                device.launch(module, entry, config, params)

        device.batch(work)()
        with pytest.raises(DeviceError) as told:
            device.load(artefact.with_name("tell"))
        assert str(told.value).splitlines() == [
            f"{entry} {config} {params}"
            for entry, params in (("a", (b"1", b"22")), ("b", b"333"), ("a", (b"1", b"22")), ("a", (b"12", b"2")))
        ]


@pytest.mark.parametrize(("device", "gpu"), [("emulator", False), ("emulator-watching", False), ("cuda", True)])
def test_what_an_executor_is_granted(artefact: Path, device: str, gpu: bool) -> None:
    grant = grant_for(device, [artefact])
    assert (grant.gpu, grant.write) == (gpu, ())
    assert artefact.parent in grant.read
    assert (grant.memory_bytes is None) == gpu
