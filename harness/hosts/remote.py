"""A host with a supervisor: it carries out the whole order by itself, and the stages here follow its events.

The same stages run there and here, over the same plan: there to decide what runs, here to judge, archive and report.
So what the host is asked, part by part, is answered from its events in the order in which they come.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fmha.harness import isolate
from fmha.harness.back_off import BackOff
from fmha.harness.config import HostSettings, Limits, RemoteSettings
from fmha.harness.contract.machine import Gpu, Machine
from fmha.harness.contract.protocol import BuildResult, Cell, Event, Job, Variant
from fmha.harness.errors import CancelledError, InfrastructureError
from fmha.harness.hosts import commit_transfer, credentials, ledger
from fmha.harness.hosts.base import HostProvenance, Order
from fmha.harness.hosts.carrier import BusyError, Carrier, LineError, pause
from fmha.harness.hosts.line import ANSWER_SECONDS, Line
from fmha.harness.hosts.side import side_variant
from fmha.harness.hosts.stream import RunStream, asked, followed
from fmha.harness.hosts.ways import way_to
from fmha.harness.judge.configuration import OURS, Configuration
from fmha.harness.worker.planner.sides import Declares, KernelSide, OwnSide, Side

if TYPE_CHECKING:  # loaded once a host is at work
    from fmha.harness.hosts import host_answers

CANCEL_SECONDS = 120.0
BUSY_SECONDS = 60.0  # how long a server that is too busy to answer is tried
_RUN_TIME = "%Y%m%dT%H%M%SZ"


def settings_of(host: HostSettings) -> RemoteSettings:
    """Of a host that has a supervisor."""
    assert host.remote is not None
    return host.remote


def dial(host: HostSettings, request: Mapping[str, Any]) -> Line:
    """A line to an agent on the host, the request sent. Raises LineError and what the agent refuses.

    A server that drops connections because there are too many at once (sshd's MaxStartups) is tried again.
    """
    settings = settings_of(host)
    way = way_to(settings)
    if (begun := way.begun(settings)) is not None:
        with contextlib.suppress(LineError):  # it may have broken while it was not needed yet
            return _opened(begun.carrier, host, request, begun.left)
    wait, deadline = BackOff(0.5, 10.0, spread=0.5), time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _opened(way.carrier(settings), host, request)
        except BusyError:
            if time.monotonic() + wait.seconds > deadline:
                raise
        pause(wait.next())  # a server that has room again tells nobody


def _opened(carrier: Carrier, host: HostSettings, request: Mapping[str, Any], ahead: bytes | None = None) -> Line:
    settings = settings_of(host)
    line = Line(carrier, host.name, settings.silence_seconds, ahead)
    try:
        line.open(settings.folder, request)
    except BaseException:
        line.close()
        raise
    return line


class RemoteHost:
    """One run on the host, started by `begin` or taken up by `resume`."""

    exact = True

    def __init__(
        self, host: HostSettings, root: Path, kernels: Mapping[str, Declares] | None = None, *, own: bool = False
    ) -> None:
        self._host = host
        self._settings = settings_of(host)
        self._root = root
        self._run: str | None = None
        self._stream: RunStream | None = None
        self._events: Generator[Mapping[str, Any], None, None] | None = None
        self._note: Callable[[str], None] = lambda text: None
        self._facts: host_answers.FactsEvent | None = None
        self._enclosed: host_answers.IsolationEvent | None = None  # by the supervisor, of the runner
        self._gpu: host_answers.SaidGpu | None = None
        self._gpus: list[host_answers.SaidGpu] = []  # all of them, where the run has several
        self._states: list[tuple[str, float]] = []
        self._beside: str | None = None  # the commit that is timed beside the run's
        self._jobs = 0
        self._answered: set[tuple[int, str]] = set()  # configurations of a job that have had their last event
        self._judge: str | None = None
        self._side: Side = OwnSide(kernels)
        self._kernels = kernels or {}
        self._own = own  # the repository has no fmha: the installed one goes with the run, to judge it there
        self._bare: set[str] = set()  # configurations whose numbers are those of any kernel
        self._lacking: dict[str, tuple[str, ...]] = {}  # metrics that others do not have
        self._short = False  # configurations were charged with the end of the run

    @property
    def device(self) -> str:
        """What runs there, cuda or the emulator."""
        return self._settings.device

    @property
    def run_id(self) -> str | None:
        """The run's name, once it has begun."""
        return self._run

    def judge_apart(self, judge: str, tree: Path) -> None:
        """The commit that judges, and whose tree the kernel's side is of."""
        self._judge, self._side = judge, KernelSide(tree, self._kernels)

    def begin(self, order: Order, progress: Callable[[str], None], tell: Callable[[str], None]) -> None:
        """Sends what the host lacks of the commits, and starts the run there."""
        secrets_of_setup = credentials.fetched(self._settings.secrets, self._host.name)  # before anything leaves
        if self._own:
            from fmha.harness.hosts import (
                installed_commit,  # here: nothing else needs it, and `ps` is not to wait for it
            )

            self._judge = installed_commit.committed(self._root, self._settings.device)
        for sha in commits_of(order.sha, order.beside, self._judge):
            commit_transfer.check(self._root, sha)
        source = commit_transfer.publish(
            self._root, commit_transfer.JudgedCommit(order.sha, order.branch), self._settings, tell
        )
        self._run = f"{datetime.now(UTC):{_RUN_TIME}}-{order.sha[:12]}-{secrets.token_hex(4)}"
        self._beside = order.beside
        ledger.note(self._root, self._run, self._host.name, order, self._judge)
        progress(f"{self._host.name}: run {self._run}")
        job = job_of(self._run, order, source, self._settings, self._host.name, self._judge, self._own)
        self._follow(progress, job, secrets_of_setup)
        assert self._stream is not None
        self._stream.start()

    def resume(self, run: str, beside: str | None, judge: str | None, progress: Callable[[str], None]) -> None:
        """Takes up a run that is on the host, from its first event on."""
        self._run, self._judge = run, judge
        self._beside = beside
        self._follow(progress, None)

    def cancel(self, who: str) -> host_answers.Cancelled:
        """Ends the run over a connection of its own; the events then come to their end by themselves."""
        assert self._run is not None
        return cancel(self._host, self._run, who)

    def leave(self) -> None:
        """Closes the connection; the run goes on."""
        if self._stream is not None:
            self._stream.close()

    def facts(self) -> HostProvenance:
        """What the host has told of itself by now."""
        facts, gpu, enclosed = self._facts, self._gpu, self._enclosed
        return HostProvenance(
            self._host.name,
            self._host.kind,
            Machine(**facts.machine.model_dump()) if facts else Machine("unknown", 1, "unknown"),
            facts.versions if facts else {},
            Gpu(**gpu.model_dump()) if gpu else None,
            gpus=tuple(Gpu(**each.model_dump()) for each in self._gpus),
            isolation=_isolation_of(enclosed, facts),
            own_harness=self._judge is None,
            own_harness_enclosed=enclosed is not None and enclosed.whole,
        )

    def durations(self) -> Mapping[str, float]:
        """By the host's own clock: the time from one state to the next."""
        pairs = zip(self._states, self._states[1:], strict=False)
        return {name: max(0.0, end - start) for (name, start), (_, end) in pairs}

    def span(self) -> tuple[datetime, datetime]:
        """The start is in the run's name, by the client's clock; how long it took is by the host's."""
        assert self._run is not None
        started = datetime.strptime(self._run.split("-")[0], _RUN_TIME).replace(tzinfo=UTC)
        moments = [at for _, at in self._states]
        return started, started + timedelta(seconds=max(0.0, moments[-1] - moments[0]) if moments else 0.0)

    def variant_for(self, configuration: Cell) -> Variant | str:
        """The kernel that runs it, or in words why there is none."""
        return side_variant(self._side, configuration, self._settings.arch)

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        """Builds as the host reports them. InfrastructureError for what no honest host says."""
        from fmha.harness.hosts import host_answers

        asked = {variant.name: variant for variant in variants}
        results: list[BuildResult] = []
        for event in self._next_events():
            if event["kind"] == "event":
                raise self._void("a configuration ran before everything was built")
            if event["kind"] == "build":
                result = host_answers.build_of(event.get("result"), asked, self._where())
                del asked[result.variant.name]
                results.append(result)
                if not asked:
                    return results
        if self._status().state == "cancelled":
            self._short = True
            raise CancelledError(self._reason(), where=f"run {self._run}")
        raise self._ended()

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        """The events of a job as they come, each checked."""
        self._jobs += 1
        pending = dict.fromkeys(configuration.id for configuration in job.configurations)
        self._bare |= {item.id for item in job.configurations if item.kernel != OURS}
        ours = (item for item in job.configurations if isinstance(item, Configuration))
        self._lacking |= {item.id: item.unmeasured for item in ours if item.unmeasured}
        for event in self._next_events():
            if event["kind"] != "event":
                continue
            said = self._event_of(event.get("event"))
            self._take_note(event.get("job"), said)
            if event["job"] != self._jobs:
                continue
            if said.event == "note":
                self._note(said.message)
                continue
            if said.event != "done" and said.config not in pending:
                raise self._void(f"{said.config!r} was not asked for, or is done")
            if said.event == "result" and tuple(drawn.seed for drawn in said.noise) != job.noise_seeds:
                raise self._void(f"{said.config!r} was measured under other seeds than was asked for")
            met = tuple(filter(None, job.also.get(said.config, "").split(",")))
            if said.event == "result" and tuple(each.schedule for each in said.met) != met:
                raise self._void(f"{said.config!r} met other schedules than were asked for")
            if said.event in ("result", "error"):
                del pending[said.config]
            yield said
            if not pending:
                return
        self._short = True
        status = "not-run" if self._status().state == "cancelled" else "infra-error"
        for name in pending:
            yield Event("error", name, status=status, message=self._reason(), stopped=status == "not-run")

    def finish(self) -> None:
        """Reads to the end, and raises where the run did not end well."""
        self._side.close()
        for event in self._next_events():
            if event["kind"] == "event":
                said = self._event_of(event.get("event"))
                self._take_note(event.get("job"), said)
        self.leave()
        if self._status().state != "done" and not self._short:
            raise self._ended()

    def _event_of(self, said: Any) -> Event:
        from fmha.harness.hosts import host_answers

        return host_answers.worker_event_of(said, self._beside, self._where(), self._bare, self._lacking)

    def _follow(
        self,
        progress: Callable[[str], None],
        job: Mapping[str, Any] | None,
        secrets_of_setup: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        assert self._run is not None
        self._note = progress
        self._stream = RunStream(
            lambda request: dial(self._host, request),
            self._run,
            self._settings.reconnect_seconds,
            progress,
            job,
            commit_transfer.Pack(self._root, commits_of_job(job)) if job else None,
            secrets_of_setup,
        )
        self._events = self._stream.events()

    def _next_events(self) -> Iterator[Mapping[str, Any]]:
        """What comes, but for what is about the run and not about its configurations: that is taken note of."""
        from fmha.harness.hosts import host_answers
        from fmha.harness.hosts.host_answers import checked

        assert self._events is not None
        for event in self._events:
            where = self._where()
            match event["kind"]:
                case "state":
                    state = checked(host_answers.StateEvent, event, where)
                    self._states.append((state.state, state.at))
                    self._gpu = state.gpu or self._gpu
                    self._gpus = state.gpus or self._gpus
                    self._note(f"{self._host.name}: {state.state}")
                case "waiting":
                    waiting = checked(host_answers.WaitingEvent, event, where)
                    self._note(f"{self._host.name}: position {waiting.position} in the queue: {waiting.reason}")
                case "note":
                    self._note(checked(host_answers.NoteEvent, event, where).text)
                case "isolation":
                    self._enclosed = checked(host_answers.IsolationEvent, event, where)
                case "facts":
                    self._facts = checked(host_answers.FactsEvent, event, where)
                case _:
                    yield event
        if self._states and self._states[-1][0] != "":
            self._states.append(("", self._status().finished))

    def _take_note(self, job: object, said: Event) -> None:
        """One last event a configuration and job: of two answers neither counts."""
        if type(job) is not int or not 1 <= job <= self._jobs + 1_000_000:
            raise self._void(f"an event is of job {job!r}")
        if said.event in ("result", "error"):
            if (job, said.config) in self._answered:
                raise self._void(f"{said.config!r} has two results")
            self._answered.add((job, said.config))

    def _where(self) -> str:
        return f"{self._host.name}: run {self._run}"

    def _void(self, what: str) -> InfrastructureError:
        step = f"nothing of it counts; see fmha logs {self._run} --host {self._host.name}"
        return InfrastructureError(f"what the host says cannot be: {what}", where=self._where(), next_step=step)

    def _status(self) -> host_answers.StatusAnswer:
        assert self._stream is not None
        assert self._stream.status is not None
        return self._stream.status

    def _reason(self) -> str:
        status = self._status()
        return f"{self._host.name}: {status.reason or status.state}"

    def _ended(self) -> InfrastructureError:
        step = self._status().next_step or f"fmha logs {self._run} --host {self._host.name}"
        return InfrastructureError(self._reason(), where=f"run {self._run}", next_step=step)


def cancel(host: HostSettings, run: str, who: str) -> host_answers.Cancelled:
    """Ends a run on the host and everything of it; returns once that is so."""
    from fmha.harness.hosts import host_answers

    answer = asked(lambda request: dial(host, request), {"op": "cancel", "run": run, "who": who}, CANCEL_SECONDS)
    return host_answers.checked(host_answers.Cancelled, answer, host.name)


def stored_job(host: HostSettings, run: str) -> host_answers.StoredJob:
    """The job of a run, as it is kept on the host."""
    job = followed(lambda request: dial(host, request), run)
    if job.run != run or not job.sha.startswith(run.split("-")[1]):
        raise InfrastructureError(
            f"the host answers with the job of run {job.run}, commit {job.sha}", where=f"{host.name}: run {run}",
            next_step="it is not the run that was asked for, and not archived as it",
        )  # fmt: skip
    return job


def ask(host: HostSettings, request: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Mapping[str, Any]:
    """The one answer of the host's agent to a request."""
    return asked(lambda message: dial(host, message), request, seconds)


def commits_of(sha: str, *others: str | None) -> list[str]:
    """What the host needs for a run."""
    return list(dict.fromkeys([sha, *(other for other in others if other is not None)]))


def commits_of_job(job: Mapping[str, Any]) -> list[str]:
    """The commits that a job needs, without those that are None."""
    return commits_of(job["sha"], job["beside"], job["judge"])


def settings_of_job(settings: RemoteSettings) -> dict[str, Any]:
    """What a job says of how the host runs it, whatever it runs."""
    return {
        "protected": list(settings.protected),
        "environment": {
            "setup": settings.setup,
            "files": list(settings.setup_files),
            "seconds": settings.setup_seconds,
        },
        "python": settings.python,
        "env": dict(settings.env),
        "nvcc": settings.nvcc,
        "slurm": dict(settings.slurm) if settings.slurm is not None else None,
        "isolation": _isolation(settings),
    }


def _isolation_of(enclosed: host_answers.IsolationEvent | None, facts: host_answers.FactsEvent | None) -> str | None:
    """What keeps the commit's code from the host: the supervisor's word where all is enclosed, or the run says none."""
    said = facts.isolation if facts else None
    if enclosed is not None and (enclosed.whole or said is None):
        return enclosed.missing or enclosed.mechanism
    return said


def _isolation(settings: RemoteSettings) -> str:
    """The host's setting, unless --isolation says something here."""
    asked = os.environ.get(isolate.VARIABLE, "")
    return asked if asked in ("require", "off") else settings.isolation


def job_of(
    run: str,
    order: Order,
    source: commit_transfer.CommitSource,
    settings: RemoteSettings,
    host: str,
    judge: str | None = None,
    own: bool = False,
) -> dict[str, Any]:
    """The job file: what the supervisor needs, what the runner needs (`work`), what attaching needs (`order`)."""
    return {
        "schema": 1,
        "run": run,
        "sha": order.sha,
        "beside": order.beside,
        "judge": judge,
        "alike": order.alike,
        "label": order.label,
        "silence": settings.silence_seconds,
        "sync": {"url": source.url, "ref": source.ref, "direct": source.direct},
        "approve_protected": order.approve_protected,
        "secrets": list(settings.secrets),  # their names
        "by": _who(),
        "keep": {**settings.keep, "spare": list(order.spare)},
        **settings_of_job(settings),
        "gpu": {**settings.gpu, "priority": order.priority, **({"count": order.workers} if order.workers else {})},
        "limits": {
            "build_seconds": order.limits.build_seconds,
            "total_seconds": order.limits.total_seconds,
        },
        "work": {
            "host": host,
            "device": settings.device,
            "arch": settings.arch,
            "request": dict(order.request),
            "beside": order.beside,
            "own": own,
            "workers": order.workers or settings.workers,
            "costs": dict(order.costs),
            "slurm": settings.slurm is not None,
        },
        "order": {
            "branch": order.branch,
            "request": dict(order.request),
            "matrix": order.matrix,
            "matrix_sha256": order.matrix_sha256,
            "own": own,
        },
    }


def _who() -> str:
    """Who asks, and from which machine: several people may share an account of a host."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
