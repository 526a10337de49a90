"""The pipeline over a host whose answers the test writes; everything else is real: git, matrix.yaml, files."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from fmha.harness import archive
from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.config import Limits
from fmha.harness.contract.protocol import Configuration, Event, Job, Met
from fmha.harness.errors import ExitCode, InfrastructureError, InterruptionError, UserError
from fmha.harness.judge.schedules import MET, every_drawn_schedule
from fmha.harness.judge.status import Status
from fmha.harness.kernel_side import abi
from fmha.harness.stages import dry_run
from fmha.harness.stages.pipeline import Request, execute, prepare
from tests.harness.support import GOOD, RACE, Recorder, ScriptedHost, event, git

GUARDS = ["hd64_t1_sk128", "hd64_t32_sk128"]
REST = ["hd128_t1_sk128", "hd128_t32_sk128"]


class Run:
    """Executes a request on a scripted host and keeps what came of it."""

    def __init__(self, checkout: Path, host: ScriptedHost, **request: object) -> None:
        self.observer = Recorder()
        self.shown: list[tuple[RunRecord, Path | None]] = []
        wanted = Request(checkout, **request)
        self.code = execute(wanted, self.observer, lambda *seen: self.shown.append(seen), lambda *_: host)
        ((self.record, path),) = self.shown
        assert path is not None
        self.path = path

    def __getitem__(self, name: str) -> ConfigurationRecord:
        return next(item for item in self.record.configurations if item.id == name)

    @property
    def statuses(self) -> dict[str, str]:
        return {item.id: item.status for item in self.record.configurations}


def error(status: str, message: str) -> Callable[[Configuration], Event]:
    return lambda item: Event("error", item.id, status=status, message=message)


def changed(**changes: object) -> Callable[[Configuration], Event]:
    return lambda item: event(item, measurement=replace(GOOD, **changes))


def test_kernels_of_another_parameter_struct_are_not_launched(checkout: Path) -> None:
    """A bisection runs every commit's kernels by one fmha: with a field more they would read what is not there."""
    header = checkout / abi.PARAMS_HEADER
    header.parent.mkdir(parents=True, exist_ok=True)
    ours = abi.header(abi.PARAMS_HEADER).read_text(encoding="utf-8")
    header.write_text(ours.replace("struct FmhaParams {\n", "struct FmhaParams {\n  // More words.\n", 1))
    host = ScriptedHost()
    assert Run(checkout, host).code is ExitCode.PASS
    header.write_text(ours.replace("struct FmhaParams {\n", "struct FmhaParams {\n  int32_t more;\n", 1))
    with pytest.raises(UserError, match="another parameter struct"):
        Run(checkout, ScriptedHost())
    header.write_text(ours.replace("struct FmhaParams {\n", "struct FmhaParams {\n  double more;\n", 1))
    with pytest.raises(UserError, match="no field of a type that is known here"):
        Run(checkout, ScriptedHost())


def test_everything_passes(checkout: Path) -> None:
    host = ScriptedHost()
    run = Run(checkout, host)
    assert run.code is ExitCode.PASS
    assert [item.id for item in run.record.configurations] == host.ran == GUARDS + REST
    assert [len(job.configurations) for job in host.jobs] == [2, 2]
    assert [[build.variant.name for build in job.builds] for job in host.jobs] == [["hd64"], ["hd128"]]
    assert {(job.seed, job.schedules, job.device) for job in host.jobs} == {(7, ("realistic",), "emulator")}
    assert [item.guard for item in run.record.configurations] == [True, True, False, False]
    assert run.observer.stages == ["build", "guard", "matrix"]
    assert set(run.record.durations) == {"preflight", "build", "guard", "matrix"}
    assert archive.read(run.path).model_copy(update={"checksum": None}) == run.record
    assert run.path.parent == checkout / "results"


class Unordered(ScriptedHost):
    """Several workers: what ends first is not what was asked for first."""

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        *events, done = super().run(job, limits)
        pairs = list(zip(events[::2], events[1::2], strict=True))
        yield from [item for pair in reversed(pairs) for item in pair]
        yield done


@pytest.mark.parametrize("kind", [ScriptedHost, Unordered])
def test_the_order_in_which_configurations_end_changes_nothing(checkout: Path, kind: type[ScriptedHost]) -> None:
    script = {name: changed(cosine=0.5) for name in REST}
    run = Run(checkout, kind(script))
    assert [item.id for item in run.record.configurations] == GUARDS + REST
    assert [item.id for item in run.observer.outcomes[2:]] == (REST if kind is ScriptedHost else REST[::-1])
    broken = Run(checkout, kind({name: error("crash", name) for name in GUARDS}))
    assert {broken[name].reasons[0] for name in REST} == {f"guard: {GUARDS[0]} failed (crash) and 1 more"}


def test_what_configurations_took_before_is_told_to_the_host(checkout: Path) -> None:
    first, second = ScriptedHost(), ScriptedHost()
    Run(checkout, first)
    Run(checkout, second, workers=3)
    assert [job.costs for job in first.jobs] == [{}, {}]
    assert [job.costs for job in second.jobs] == [dict.fromkeys(GUARDS, 0.5), dict.fromkeys(REST, 0.5)]
    assert [job.workers for job in (*first.jobs, *second.jobs)] == [0, 0, 3, 3]


def test_the_record_has_its_provenance(checkout: Path) -> None:
    (checkout / "matrix.yaml").write_text((checkout / "matrix.yaml").read_text() + "# changed\n")
    (checkout / "new file").write_text("")
    run = Run(checkout, ScriptedHost(), seed=11, schedule="late", filters=("t=1",))
    assert run.record.commit.dirty
    assert run.record.commit.dirty_files == ["matrix.yaml", "new file"]
    assert run.record.commit.branch == "main"
    assert run.record.selection.seed == 11
    assert run.record.selection.schedule == "late"
    assert run.record.selection.filter == "t=1"
    assert [variant.name for variant in run.record.variants] == ["hd64", "hd128"]
    assert run.record.variants[0].defines == {"A": "1"}
    assert run.path.name.startswith(f"{run.record.started:%Y%m%dT%H%M%SZ}-{run.record.commit.sha[:12]}-emulator")


def test_the_guard_is_judged_by_its_own_gates(checkout: Path) -> None:
    between = changed(cosine=0.999995)
    assert Run(checkout, ScriptedHost({REST[0]: between})).code is ExitCode.PASS
    run = Run(checkout, ScriptedHost({GUARDS[0]: between}))
    assert run.code is ExitCode.GATE_FAILED
    assert run[GUARDS[0]].reasons == ["cosine is 0.999995; at least 0.999996 is required"]
    assert run[GUARDS[0]].failed_checks[0].limit == 0.999996


def test_a_variant_that_outgrows_its_plan_fails_whatever_its_numbers(checkout: Path) -> None:
    path = checkout / "matrix.yaml"
    most = "  resources: {registers: 127, spill_bytes: 0, stack_bytes: 0, shared_bytes: 232448}\n"
    path.write_text(path.read_text().replace("guard:\n", f"{most}guard:\n", 1))
    run = Run(checkout, ScriptedHost(), filters=("hd=64",))
    assert run.code is ExitCode.GATE_FAILED
    assert {reason for item in run.record.configurations for reason in item.reasons} == {
        "registers is 128; at most 127 is required"
    }


@pytest.mark.parametrize(("stopped", "withheld"), [(True, "stopped"), (False, None)])
def test_what_somebody_has_stopped_is_no_refusal_of_the_kernels(
    checkout: Path, stopped: bool, withheld: str | None
) -> None:
    ended = Event("error", REST[1], status="not-run", message="it was cancelled from outside", stopped=stopped)
    run = Run(checkout, ScriptedHost({REST[1]: lambda item: ended}))
    assert (run[REST[1]].status, run[REST[1]].withheld) == ("not-run", withheld)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (changed(lse_error=math.nan), "fail"),
        (lambda item: event(item, findings=(RACE,)), "hazard"),
        (error("timeout", "silent for 10 s"), "timeout"),
        (error("crash", "killed by SIGSEGV"), "crash"),
        (error("infra-error", "no memory"), "infra-error"),
        (None, "infra-error"),
        (error("", ""), "infra-error"),
        (error("pass", "a pass without numbers"), "infra-error"),
        (lambda item: Event("result", item.id), "infra-error"),
    ],
)
def test_a_broken_guard_stops_everything_else(
    checkout: Path, answer: Callable[[Configuration], Event] | None, status: str
) -> None:
    host = ScriptedHost({GUARDS[0]: answer})
    run = Run(checkout, host)
    assert host.ran == GUARDS
    assert run.statuses == {GUARDS[0]: status, GUARDS[1]: "pass", REST[0]: "not-run", REST[1]: "not-run"}
    assert run[REST[0]].reasons == [f"guard: {GUARDS[0]} failed ({status})"]
    assert run[GUARDS[0]].reasons
    assert [run[name].withheld for name in (*GUARDS, *REST)] == [None, None, "guard", "guard"]
    assert run.code == (ExitCode.INFRASTRUCTURE if status == "infra-error" else ExitCode.GATE_FAILED)


def test_a_guard_that_does_not_build_stops_everything_else(checkout: Path) -> None:
    host = ScriptedHost(unbuildable=[64])
    run = Run(checkout, host)
    assert host.ran == []
    assert run.statuses == dict.fromkeys(GUARDS, "build-error") | dict.fromkeys(REST, "not-run")
    assert run[GUARDS[0]].reasons == ["hd64: a.cu(3): error: no such thing"]
    assert run[REST[0]].reasons == ["guard: hd64_t1_sk128 failed (build-error) and 1 more"]


def test_a_variant_that_does_not_build_costs_its_configurations_alone(checkout: Path) -> None:
    run = Run(checkout, ScriptedHost(unbuildable=[128]))
    assert run.statuses == dict.fromkeys(GUARDS, "pass") | dict.fromkeys(REST, "build-error")
    assert run.code is ExitCode.GATE_FAILED
    assert run.record.variants[1].error == "a.cu(3): error: no such thing"


def test_what_no_kernel_covers_is_not_run_and_never_green(checkout: Path) -> None:
    run = Run(checkout, ScriptedHost(unknown=[128]))
    assert run.statuses == dict.fromkeys(GUARDS, "pass") | dict.fromkeys(REST, "not-run")
    assert run[REST[0]].reasons == ["no kernel for head_dim 128 yet"]
    assert run.code is ExitCode.INCOMPLETE


def test_a_guard_that_cannot_run_at_all_guards_nothing(checkout: Path) -> None:
    host = ScriptedHost(unknown=[64])
    run = Run(checkout, host)
    assert host.ran == []
    assert run[REST[0]].reasons == ["guard: hd64_t1_sk128 was not run"]
    assert run.code is ExitCode.INCOMPLETE


def test_a_selection_without_a_guard_gets_one(checkout: Path) -> None:
    run = Run(checkout, ScriptedHost(), filters=("hd=128,t=1",))
    first, second = run.record.configurations
    assert (first.id, first.guard, first.selected) == ("hd64_t32_sk256", True, False)
    assert (second.id, second.guard, second.selected) == (REST[0], False, True)
    assert run.record.verdict.total == 2


def test_one_crash_costs_one_configuration(checkout: Path) -> None:
    run = Run(checkout, ScriptedHost({REST[0]: error("crash", "killed by SIGSEGV")}))
    assert run.statuses == dict.fromkeys(GUARDS, "pass") | {REST[0]: "crash", REST[1]: "pass"}
    assert run.record.verdict.counts == {Status.PASS: 3, Status.CRASH: 1}


def test_an_event_nobody_asked_for_is_the_workers_fault(checkout: Path) -> None:
    stranger = ScriptedHost({GUARDS[1]: lambda item: Event("result", "hd9_t9_sk9", GOOD)})
    with pytest.raises(InfrastructureError, match="hd9_t9_sk9"):
        Run(checkout, stranger)
    assert stranger.closed == 1


def test_an_interrupt_archives_what_is_done(checkout: Path) -> None:
    host = ScriptedHost({REST[0]: KeyboardInterrupt()})
    with pytest.raises(InterruptionError) as caught:
        Run(checkout, host)
    assert host.closed == len(host.jobs) == 2
    (path,) = (checkout / "results").iterdir()
    told = f"interrupted: 2 of 4 configurations finished; archived; fmha results show {path.stem}"
    assert str(caught.value) == told
    record = archive.read(path)
    assert {item.id: item.status for item in record.configurations} == dict.fromkeys(GUARDS, "pass") | dict.fromkeys(
        REST, "not-run"
    )
    assert {tuple(item.reasons) for item in record.configurations} == {(), ("interrupted",)}
    assert (record.verdict.word, record.verdict.exit_code) == ("INCOMPLETE", ExitCode.INCOMPLETE)
    assert record.variants


def test_an_interrupt_does_not_hide_what_had_failed(checkout: Path) -> None:
    host = ScriptedHost({REST[0]: error("crash", "killed by SIGSEGV"), REST[1]: KeyboardInterrupt()})
    with pytest.raises(InterruptionError, match="3 of 4"):
        Run(checkout, host)
    (path,) = (checkout / "results").iterdir()
    assert archive.read(path).verdict.counts == {Status.PASS: 2, Status.CRASH: 1, Status.NOT_RUN: 1}
    assert archive.read(path).verdict.exit_code == ExitCode.GATE_FAILED


def test_an_interrupt_before_the_first_outcome_leaves_nothing_behind(checkout: Path) -> None:
    with pytest.raises(InterruptionError, match=r"^interrupted: 0 of 4 configurations finished; nothing archived$"):
        Run(checkout, ScriptedHost({GUARDS[0]: KeyboardInterrupt()}))
    assert list((checkout / "results").iterdir()) == []


def test_an_interrupt_between_events_ends_the_job(checkout: Path) -> None:
    host = ScriptedHost()

    class Impatient(Recorder):
        def finished(self, outcome: object, done: int, total: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(InterruptionError, match="1 of 4"):
        execute(Request(checkout), Impatient(), lambda *_: None, lambda *_: host)
    assert host.closed == 1


def test_a_record_that_cannot_be_archived_is_shown_all_the_same(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise InfrastructureError("full")

    monkeypatch.setattr(archive, "write", full)
    shown: list[tuple[RunRecord, Path | None]] = []
    with pytest.raises(InfrastructureError, match="full"):
        execute(Request(checkout), Recorder(), lambda *seen: shown.append(seen), lambda *_: ScriptedHost())
    assert shown[0][1] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"suite": "big"}, "no suite is named 'big'; matrix.yaml has small, wide; all is every one"),
        ({"filters": ("hd=64,t=4",)}, "no configuration matches"),
        ({"filters": ("x=1",)}, "unknown key 'x'"),
    ],
)
def test_requests_that_cannot_be_met(checkout: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        prepare(Request(checkout, **changes), lambda *_: ScriptedHost())


def test_the_results_folder_is_tried_before_anything_runs(checkout: Path) -> None:
    (checkout / "taken").write_text("a file")
    host = ScriptedHost()
    with pytest.raises(InfrastructureError, match="taken: cannot archive"):
        Run(checkout, host, results=Path("taken"))
    assert host.jobs == []


def test_the_dry_run_is_the_plan(checkout: Path) -> None:
    host = ScriptedHost(unknown=[128])
    prepared = prepare(Request(checkout, suite="wide"), lambda *_: host)
    assert list(dry_run.lines(prepared)) == [
        "suite wide, seed 7, schedule realistic",
        "build: 1",
        "  hd64  sm_100a  kernel/a.cu",
        "guard: 1",
        "  hd64_t32_sk256  hd64  (added as guard)",
        "matrix: 1",
        "  hd128_t1_sk128  not-run: no kernel for head_dim 128 yet",
    ]
    assert host.jobs == []


def test_a_detached_head_has_no_branch(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "--detach")
    assert Run(checkout, ScriptedHost()).record.commit.branch is None


def asked_besides(host: ScriptedHost) -> dict[str, str]:
    return {name: schedules for job in host.jobs for name, schedules in job.also.items()}


def meets(kind: str, **found: object) -> Callable[[Configuration], Event]:
    """Every schedule that the run with --drawn 5 has for it is met well, but for those of a kind."""

    def result(item: Configuration) -> Event:
        made = event(item)
        bits = made.measurement.output_hash
        met = [Met(name, GOOD) for name in every_drawn_schedule(5, item.id)]
        bad = [replace(each, **found) if each.schedule.startswith(kind) else each for each in met]
        assert all(each.measurement.output_hash == bits or found for each in bad)
        return replace(made, met=tuple(bad))

    return result


def test_every_kernel_meets_drawn_schedules_which_are_recorded(checkout: Path) -> None:
    host = ScriptedHost()
    run = Run(checkout, host, drawn=5)
    asked = asked_besides(host)
    assert {item.id: ",".join(item.met) for item in run.record.configurations if item.met} == asked
    kinds = [word.partition(":")[0] for words in asked.values() for word in words.split(",")]
    assert {kind: kinds.count(kind) for kind in kinds} == {kind: 2 * count for kind, count in MET.items()}
    again = ScriptedHost()
    Run(checkout, again, drawn=5)
    assert asked_besides(again) == asked


@pytest.mark.parametrize("request_", [{"schedule": "late"}, {"schedules": 4}, {"noise_seeds": (3,)}])
def test_whoever_chooses_schedules_or_measures_noise_meets_no_other(
    checkout: Path, request_: dict[str, object]
) -> None:
    host = ScriptedHost()
    Run(checkout, host, **request_)
    assert asked_besides(host) == {}


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ({"findings": (RACE,)}, Status.HAZARD),
        ({"measurement": replace(GOOD, cosine=0.5)}, Status.FAIL),
        ({"measurement": replace(GOOD, output_hash="1" * 64)}, Status.HAZARD),
    ],
    ids=["a hazard", "wrong numbers", "other bits"],
)
def test_what_a_drawn_schedule_shows_is_red_and_names_it(
    checkout: Path, found: dict[str, object], status: Status
) -> None:
    (case,) = GUARDS[:1]
    host = ScriptedHost({case: meets("spurious", **found)})
    run = Run(checkout, host, drawn=5, cases=[case])
    assert run.code is ExitCode.GATE_FAILED
    item = run[case]
    assert item.status is status
    assert item.reasons
    schedule = next(name for name in item.met if name.startswith("spurious"))
    assert all(reason.startswith(f"under schedule {schedule}, drawn for this run: ") for reason in item.reasons)
    assert item.metrics == GOOD


def test_a_worker_that_leaves_out_a_drawn_schedule_is_not_believed(checkout: Path) -> None:
    (case,) = GUARDS[:1]
    host = ScriptedHost({case: lambda item: replace(event(item), met=(Met("late", GOOD),))})
    assert Run(checkout, host, drawn=5, cases=[case])[case].status is Status.INFRA_ERROR
