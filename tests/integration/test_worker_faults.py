"""Workers that crash, hang and talk nonsense: real processes, real signals."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from fmha.harness.contract.protocol import BuildResult, Configuration, Job, Resources
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.pool.supervise import Seat, WorkerError, run_worker
from tests.integration import fault_devices as fault
from tests.integration.processes import alive, eventually, logged_pids

PLENTY = 120.0
PATIENCE = 8.0  # for what hangs; a worker starts in less on a loaded machine too
FAULTY = "tests.integration.fault_devices:FaultyDevice"
DRIVER = """
import pathlib, sys
from fmha.harness.contract.codec import read_job
from fmha.harness.worker.pool.supervise import run_worker
folder = pathlib.Path(sys.argv[1])
for event in run_worker(read_job(folder / "job.json"), folder / "run", 600, 600, pathlib.Path.cwd()):
    print(event.event, flush=True)
"""


def make_job(folder, *ts, device=FAULTY):
    ptx = folder / "kernel.ptx"
    ptx.write_text("// any")
    build = BuildResult(VARIANTS[0], str(ptx), "", Resources(1, 0, 0, 0, 0), "", "nvcc", (), 0.0, False)
    return Job(device, (build,), tuple(Configuration(64, t, 128) for t in ts), seed=0)


@pytest.fixture
def run(tmp_path, repository):
    """Runs configurations of the given t; the last event of each in order, after checking that nobody is left."""

    def run(*ts, silence=PLENTY, total=PLENTY, device=FAULTY):
        events = list(run_worker(make_job(tmp_path, *ts, device=device), tmp_path / "run", silence, total, repository))
        assert events.pop().event == "done"
        assert [event.config for event in events] == [f"hd64_t{t}_sk128" for t in ts for _ in range(2)]
        assert [event.event for event in events[::2]] == ["started"] * len(ts)
        assert_nobody_is_left(tmp_path / "run")
        return events[1::2]

    return run


def assert_nobody_is_left(folder):
    assert not alive(logged_pids(folder, "*.stderr"))


def test_after_a_lost_device_the_rest_runs_in_another_process(run, tmp_path):
    lost, works = run(fault.LOST, fault.WORKS)
    assert (lost.status, lost.message) == ("crash", "entry: CUDA_ERROR_ILLEGAL_ADDRESS")
    assert works.event == "result"
    assert sorted(path.name for path in (tmp_path / "run").glob("*.json")) == ["worker-001.json", "worker-002.json"]


def test_configurations_that_work(run):
    first, second = run(fault.WORKS, fault.HAZARD)
    assert first.event == second.event == "result"
    assert first.measurement.cosine > 0.999999
    assert first.measurement.unwritten == 0
    assert first.stats == {"launches": 1}
    assert second.findings[0].rule == "race"
    assert second.findings[0].where == {"line": 7, "schedule": "realistic"}


@pytest.mark.parametrize(
    ("t", "status", "message"),
    [
        (fault.KILLED, "crash", "worker killed by SIGKILL; it last said: about to be killed"),
        (fault.SEGFAULT, "crash", "worker killed by SIGSEGV; it last said: Fatal Python error: Segmentation fault"),
        (fault.EXITS, "crash", "worker ended early with exit code 3; it last said: leaving early"),
        (fault.TRUNCATES, "crash", "worker ended early with exit code 0, in the middle of a line"),
        (fault.GARBAGE, "crash", "worker wrote a line that is no event"),
        (fault.ENDLESS_LINE, "crash", "worker wrote a line of more than"),
        (fault.WRONG_NAME, "crash", "worker sent 'started' for 'hd64_t1_sk128' out of turn"),
        (fault.CLOSES, "crash", "worker closed its output and did not end"),
        (fault.ORPHANS, "crash", "worker killed by SIGKILL"),
    ],
)
def test_a_worker_lost_costs_one_configuration(run, tmp_path, t, status, message):
    before, broken, after = run(fault.WORKS, t, fault.HAZARD)
    assert before.event == after.event == "result"
    assert (broken.event, broken.status) == ("error", status)
    assert broken.message.startswith(message)
    assert len(list((tmp_path / "run").glob("*.stderr"))) == 2


@pytest.mark.parametrize(
    ("t", "status", "message"),
    [
        (fault.RAISES, "crash", "RuntimeError: device went wrong"),
        (fault.REFUSES, "infra-error", "no room for that"),
        (fault.FULL, "infra-error", "[Errno 28] No space left on device"),
    ],
)
def test_an_exception_costs_one_configuration_and_no_worker(run, tmp_path, t, status, message):
    broken, after = run(t, fault.WORKS)
    assert (broken.event, broken.status, broken.message) == ("error", status, message)
    assert after.event == "result"
    assert len(list((tmp_path / "run").glob("*.stderr"))) == 1


@pytest.mark.parametrize(
    ("t", "silence", "total", "message"),
    [
        (fault.HANGS, PLENTY, PATIENCE, "exceeded 8 s, killed; it last said: "),
        (fault.CHATTERS, PLENTY, PATIENCE, "exceeded 8 s, killed; it last said: still at it"),
        (fault.HANGS, PATIENCE, PLENTY, "silent for 8 s, killed; it last said: "),
        (fault.STOPPED, PATIENCE, PLENTY, "silent for 8 s, killed; it last said: "),
    ],
    ids=["total", "total-despite-noise", "silence", "silence-when-stopped"],
)
def test_a_hang_costs_one_configuration(run, t, silence, total, message):
    broken, after = run(t, fault.WORKS, silence=silence, total=total)
    assert (broken.event, broken.status) == ("error", "timeout")
    assert broken.message.startswith(message)
    assert after.event == "result"


def test_one_crash_after_another(run, tmp_path):
    events = run(fault.KILLED, fault.EXITS, fault.TRUNCATES)
    assert [event.status for event in events] == ["crash"] * 3
    assert len(list((tmp_path / "run").glob("*.stderr"))) == 3


def test_stray_output_does_not_reach_the_stream(run, tmp_path):
    (event,) = run(fault.PRINTS)
    assert event.event == "result"
    said = (tmp_path / "run" / "worker-001.stderr").read_text()
    assert "a library's banner" in said
    assert "a child's banner" in said
    assert "{half a line" in said


def test_a_kill_from_outside(tmp_path, repository):
    job = make_job(tmp_path, fault.HANGS, fault.WORKS)
    folder = tmp_path / "run"
    events = run_worker(job, folder, PLENTY, PLENTY, repository)
    assert next(events).event == "started"
    assert eventually(lambda: "hanging" in (folder / "worker-001.stderr").read_text())
    os.kill(logged_pids(folder)[0], signal.SIGKILL)
    broken = next(events)
    assert (broken.status, broken.config) == ("crash", "hd64_t11_sk128")
    assert broken.message == "worker killed by SIGKILL; it last said: hanging"
    assert [event.event for event in events] == ["started", "result", "done"]
    assert_nobody_is_left(folder)


def test_configurations_that_nothing_runs(tmp_path, repository):
    job = make_job(tmp_path, 1)
    odd = Configuration(96, 1, 128)
    unbuilt = replace(job.builds[0], error="nvcc: no such option")
    job = Job(job.device, (unbuilt,), (odd, *job.configurations), seed=0)
    errors = [
        event for event in run_worker(job, tmp_path / "run", PLENTY, PLENTY, repository) if event.event == "error"
    ]
    assert [event.status for event in errors] == ["not-run", "build-error"]
    assert errors[0].message == "no kernel for head_dim 96 on sm_100a yet"
    assert errors[1].message == "sm100_hd64_ptmem: nvcc: no such option"


def test_an_artefact_that_is_gone(tmp_path, repository):
    job = make_job(tmp_path, 1)
    (tmp_path / "kernel.ptx").unlink()
    (gone,) = ends(run_worker(job, tmp_path / "run", PLENTY, PLENTY, repository)).values()
    assert gone.status == "infra-error"
    assert "no such file" in gone.message


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tests.integration.start_faults:always", "worker killed by SIGKILL; it last said: no device today"),
        ("tests.integration.start_faults:missing", "worker ended early with exit code 2"),
        ("abacus", "no device 'abacus'"),
    ],
)
def test_workers_that_never_start_anything_are_an_error_after_the_second(tmp_path, repository, device, message):
    job = make_job(tmp_path, 1, 2, device=device)
    with pytest.raises(WorkerError, match="before they start a configuration") as caught:
        list(run_worker(job, tmp_path / "run", PLENTY, PLENTY, repository))
    assert message in str(caught.value)
    assert len(list((tmp_path / "run").glob("*.stderr"))) == 2
    assert_nobody_is_left(tmp_path / "run")


def test_a_worker_that_hangs_before_it_starts_anything(tmp_path, repository):
    job = make_job(tmp_path, 1, device="tests.integration.start_faults:hangs")
    with pytest.raises(WorkerError, match="silent for 8 s, killed"):
        list(run_worker(job, tmp_path / "run", PATIENCE, PLENTY, repository))
    assert_nobody_is_left(tmp_path / "run")


def test_a_worker_that_fails_to_start_once_is_forgiven(run, tmp_path, monkeypatch):
    monkeypatch.setenv("FMHA_TEST_MARKER", str(tmp_path / "marker"))
    (event,) = run(fault.WORKS, device="tests.integration.start_faults:once")
    assert event.event == "result"


def test_no_configurations_start_no_worker(tmp_path, repository):
    events = list(run_worker(make_job(tmp_path), tmp_path / "run", PLENTY, PLENTY, repository))
    assert [event.event for event in events] == ["done"]
    assert not list((tmp_path / "run").iterdir())


def test_closing_the_events_ends_the_worker_and_its_children(tmp_path, repository):
    folder = tmp_path / "run"
    events = run_worker(make_job(tmp_path, fault.HANGS), folder, PLENTY, PLENTY, repository)
    next(events)
    assert eventually(lambda: "hanging" in (folder / "worker-001.stderr").read_text())
    assert len(alive(logged_pids(folder))) == 2
    events.close()
    assert_nobody_is_left(folder)


def ends(events):
    return {event.config: event for event in events if event.event in ("result", "error")}


def test_two_seats_share_a_job(tmp_path, repository):
    """The first configuration hangs until it is killed; the other seat does all the rest meanwhile."""
    job = make_job(tmp_path, fault.HANGS, *range(64, 74))
    seats = (Seat({}, "one"), Seat({}, "two"))
    *events, done = run_worker(job, tmp_path / "run", PATIENCE, PLENTY, repository, seats)
    assert done.event == "done"
    found = ends(events)
    assert found.keys() == {item.id for item in job.configurations}
    hung = found.pop(f"hd64_t{fault.HANGS}_sk128")
    assert (hung.status, hung.message.split(",")[0]) == ("timeout", "silent for 8 s")
    assert {event.event for event in found.values()} == {"result"}
    assert {event.place for event in found.values()} == {"one", "two"} - {hung.place}
    assert events[-1] is hung
    assert_nobody_is_left(tmp_path / "run")


def test_several_seats_measure_what_one_does(tmp_path, repository):
    job = make_job(tmp_path, *range(64, 70), fault.KILLED)
    alone = ends(run_worker(job, tmp_path / "alone", PLENTY, PLENTY, repository))
    three = ends(run_worker(job, tmp_path / "three", PLENTY, PLENTY, repository, (Seat(),) * 3))
    assert [replace(event, seconds=0) for event in map(three.get, alone)] == [
        replace(event, seconds=0) for event in alone.values()
    ]


def test_a_seat_on_which_nothing_starts_is_given_up_and_named(tmp_path, repository):
    device = "tests.integration.start_faults:where_told"
    job = make_job(tmp_path, *range(64, 68), device=device)
    given_up = tmp_path / "given-up"
    seats = (Seat({"FMHA_TEST_SICK": "1"}, "GPU-sick"), Seat({"FMHA_TEST_MARKER": str(given_up)}, "GPU-well"))
    events = []
    for event in run_worker(job, tmp_path / "run", PLENTY, PLENTY, repository, seats):
        events.append(event)
        if event.event == "note":
            given_up.touch()
    (note,) = [event for event in events if event.event == "note"]
    assert note.message.startswith("GPU-sick is given up: workers end before they start")
    assert {event.place for event in ends(events).values()} == {"GPU-well"}
    assert len(ends(events)) == 4
    with pytest.raises(WorkerError, match="before they start a configuration"):
        list(run_worker(job, tmp_path / "all", PLENTY, PLENTY, repository, seats[:1] * 2))


def test_closing_the_events_ends_every_seat(tmp_path, repository):
    folder = tmp_path / "run"
    job = make_job(tmp_path, fault.HANGS, fault.DEAF)
    events = run_worker(job, folder, PLENTY, PLENTY, repository, (Seat(),) * 2)
    assert [next(events).event for _ in range(2)] == ["started"] * 2
    assert eventually(lambda: all("hanging" in path.read_text() for path in folder.glob("*.stderr")))
    assert len(alive(logged_pids(folder, "*.stderr"))) == 4
    events.close()
    assert_nobody_is_left(folder)


@pytest.fixture
def driver(tmp_path, repository):
    """A process that supervises a hanging worker."""
    from fmha.harness.contract.codec import write_job

    write_job(make_job(tmp_path, fault.HANGS), tmp_path / "job.json")
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)], cwd=repository, stdout=output, stderr=output
        )
    log = tmp_path / "run" / "worker-001.stderr"
    assert eventually(lambda: log.is_file() and "hanging" in log.read_text())
    yield process
    process.kill()
    process.wait()
    for pid in alive(logged_pids(tmp_path / "run")):
        os.kill(pid, signal.SIGKILL)


def test_an_interrupt_ends_the_worker_and_its_children(driver, tmp_path):
    driver.send_signal(signal.SIGINT)
    driver.wait(timeout=60)
    assert not alive(logged_pids(tmp_path / "run"))
    assert "KeyboardInterrupt" in (tmp_path / "out").read_text()


def test_a_worker_does_not_outlive_a_supervisor_that_is_killed(driver, tmp_path):
    worker = logged_pids(tmp_path / "run")[0]
    driver.kill()
    assert eventually(lambda: not alive([worker]))
