"""One run on its host: checkout, environment, build, the wait for a GPU, the configurations, the final status.

The runner (`python -m fmha.harness.stages.hosted`, the code of the judge: the commit's own, or another one's) builds
and runs workers; the supervisor starts it, copies its lines into the event log, gives it a GPU, and ends everything it
started however the run ends.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from fmha.harness import isolate
from fmha.harness.supervisor import build_cache, bytecode, gpus, modules, processes
from fmha.harness.supervisor.enclosure import POLICY, EnclosedCommand, bare, enclosed, is_own
from fmha.harness.supervisor.environments import Recipe, environment, expected
from fmha.harness.supervisor.preload import MODULE, Preloaded, wanted, wanted_by_workers
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import EventLog, HostError, RunDirectory, write_json
from fmha.harness.worker.processes.groups import describe_exit, has_exited, spawn, terminate_group

HEARTBEAT_SECONDS = 1.0
TICK_SECONDS = 0.2
SWITCH_SECONDS = 2e-4  # a thread that reads files would wait for one that computes, each time
SLACK_SECONDS = 30.0  # the runner enforces the limits itself; this is when it is taken to hang
LEAVE_SECONDS = 10.0  # for the driver to take a killed process off its GPU
MAXIMUM_LINE = 64 << 20
_WALL = "harness/isolate/__init__.py"  # of a judge that has a wall of its own
_SHOWN = 300
# What a runner tells. It may be a commit's own: the supervisor alone says how it is enclosed and how the run stands.
_SAYS = frozenset(("facts", "build", "event", "note", "ready", "alive", "failed", "end"))


class RunCancelledError(BaseException):
    """Somebody asked the run to end. No Exception, so that nobody takes it for a failure of theirs."""


def supervise(directory: RunDirectory, secrets: Mapping[str, str] = MappingProxyType({})) -> None:
    """Carries a run to its final status. `secrets` are variables of the setup command alone."""
    os.environ[processes.MARK] = directory.run
    sys.setswitchinterval(SWITCH_SECONDS)
    log = EventLog(directory)
    threading.Thread(target=_beat, args=(directory.heartbeat,), daemon=True).start()
    signal.signal(signal.SIGTERM, _cancel)
    try:
        _Run(directory, log).perform(secrets)
        outcome = ("done", "", "")
    except HostError as error:
        outcome = ("failed", error.what, error.next_step)
    except RunCancelledError:
        asked = directory.cancel.exists()
        outcome = ("cancelled", "cancelled", "") if asked else ("lost", "the supervisor was told to end by SIGTERM", "")
    except Exception as error:
        where = getattr(error, "filename", None)
        outcome = ("failed", f"{where}: {error.strerror}" if isinstance(error, OSError) and where else repr(error), "")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        left = processes.end(directory.run)
        tasks = ended(directory)
    state, reason, next_step = outcome
    if tasks:
        reason = f"{reason}; {tasks}".lstrip("; ")
    if left:
        reason = f"{reason}; processes {', '.join(map(str, left))} survive SIGKILL".lstrip("; ")
    directory.finish(state, reason, next_step=next_step)


def ended(directory: RunDirectory) -> str:
    """Ends what a run has on a cluster; words that say what may be left of it."""
    job = directory.job()
    if not job.get("slurm"):
        return ""
    from fmha.harness.supervisor import slurm  # here: most hosts have none

    return slurm.end(directory.run, job["env"])


class _Run:
    def __init__(self, directory: RunDirectory, log: EventLog) -> None:
        self._directory = directory
        self._log = log
        self._job = directory.job()
        self._lease: gpus.Lease | None = None
        self._wait: gpus.Wait | None = None
        self._limit = 0.0
        self._left = _most_seconds(self._job)  # that its runners may still take
        self._heard = False  # the runner has said something
        self._isolation = ""  # what isolates it, once that is known
        self._enclosed_whole = False  # the runner as well
        self._preloaded: Preloaded | None = None
        self._providing: threading.Thread | None = None  # what brings the workers' bytecode
        self._named = directory.path  # the run's directory as a runner is told of it

    def perform(self, secrets: Mapping[str, str]) -> None:
        job = self._job
        self._expect_gpus()
        variables = {
            **job["env"],
            "FMHA_DEVICE": job["work"]["device"],
            "FMHA_PYTHON": os.path.expanduser(job["python"]),
            **({"FMHA_NVCC": job["nvcc"]} if job["nvcc"] else {}),
        }
        for name in [name for name in os.environ if name.startswith("PYTHON")]:
            del os.environ[name]  # of whoever logs in here: a PYTHONHOME would be every interpreter's of the run
        os.environ |= variables | {POLICY: job.get("isolation", "auto")}
        isolate.foresee(job.get("isolation", "auto"))
        self._state("checkout")
        with contextlib.ExitStack() as stack:
            if own := is_own(job):
                self._named = build_cache.of_its_own(self._directory)
            self._preload(self._recipe(variables, secrets), stack)
            if not own and not Repository(self._directory.folder).has_file(self._judges, _WALL):
                self._named = build_cache.of_its_own(self._directory)
            self._perform(variables, secrets)

    def _perform(self, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        directory, job = self._directory, self._job
        repository = Repository(directory.folder)
        repository.check_out(job["sha"], directory.tree, directory.previous_tree())
        if job.get("beside"):
            repository.check_out(job["beside"], directory.beside, directory.tree)
        if job.get("judge"):
            repository.check_out(job["judge"], directory.judge, directory.tree)
        while not self._carried_out(repository, variables, secrets):
            self._note("the environment is not what its set-up has made of it, and is built again")
        repository.prove(job["sha"], directory.tree)
        if job.get("beside"):
            repository.prove(job["beside"], directory.beside)
        if job.get("judge"):
            repository.prove(job["judge"], directory.judge)
        if job.get("keep"):
            from fmha.harness.supervisor import retention  # here: nothing before the end needs it

            retention.apply(directory, retention.Policy.of(job), self._note)

    def _carried_out(self, repository: Repository, variables: Mapping[str, str], secrets: Mapping[str, str]) -> bool:
        """Environment, build, the wait for a GPU, the configurations. False when it has to be done again, since the
        environment was damaged: its runner did not get to say anything."""
        directory, job = self._directory, self._job
        if (self._judge / "fmha" / "__init__.py").is_file():
            modules.provide(self._judge, directory.path / modules.FOLDER)
        self._state("environment")
        with contextlib.ExitStack() as stack:
            python, found = os.path.expanduser(job["python"]), None
            if (recipe := self._recipe(variables, secrets)) is not None:
                found = stack.enter_context(
                    environment(directory.folder, recipe, self._judge, directory.log, self._note)
                )
                python = str(found.python)
                if found.built:
                    repository.prove(job.get("judge") or job["sha"], self._judge)
            runner = self._started(python)
            if runner is None:
                self._provide(python, wanted)
                self._state("build")
            try:
                if not self._follow(runner or self._start(python), stack):
                    # Many runs may wait here for long, and a runner has loaded a lot: it was sent away, and comes
                    # again.
                    assert self._wait is not None
                    processes.shrink()
                    self._lease = stack.enter_context(contextlib.closing(self._wait.lease()))
                    self._follow(self._start(python), stack)
            except HostError as error:
                if found is None or found.built or self._heard:
                    raise
                if found.condemned():
                    return False
                error.next_step = error.next_step or (
                    f"if its environment is damaged: fmha clean --host {job['work']['host']} --days 0, and run again"
                )
                raise
        return True

    def _recipe(self, variables: Mapping[str, str], secrets: Mapping[str, str]) -> Recipe | None:
        """Of the environment; None where the host's interpreter has everything."""
        wish = self._job["environment"]
        files = tuple(wish["files"])
        return Recipe(wish["setup"], files, variables, wish["seconds"], secrets) if wish["setup"] else None

    def _preload(self, recipe: Recipe | None, stack: contextlib.ExitStack) -> None:
        """Begins to load the runner beside the checkout, if all that it takes is likely to be there."""
        job, folder = self._job, self._directory.folder
        if is_own(job) and job.get("isolation", "auto") != "off":
            return  # it is enclosed as a whole, by what the worktree has
        if job.get("isolation", "auto") not in ("auto", "off"):
            try:
                isolate.isolation(job["isolation"])
            except isolate.IsolationError:  # nothing of a commit may run, and whoever starts the runner says so
                return
        named = os.path.expanduser(job["python"])
        python = expected(folder, recipe) if recipe is not None else Path(shutil.which(named) or named)
        if python is None:
            return
        words, environment = bare(*self._command(str(python) if recipe is not None else named), job)

        def known() -> bytecode.KeptBytecode | None:
            kept = bytecode.known(folder, self._judges, python, wanted)
            # An older one is enclosed as a whole.
            return kept if kept is not None and any(path == _WALL for _, path in kept.sources) else None

        found = self._directory.path / modules.FOLDER
        self._preloaded = Preloaded(words, environment, self._judge, found, self._directory.log, known)
        stack.callback(self._preloaded.close)

    def _started(self, python: str) -> subprocess.Popen[bytes] | None:
        """The runner that was begun beside the checkout, if it is the right one and lives."""
        begun, self._preloaded = self._preloaded, None
        if begun is None:
            return None
        inside = self._enclosed(*self._command(python))
        self._order()
        runner = begun.go(inside.command, inside.environment)
        if runner is None:
            begun.close()
            return None
        self._state("build")
        self._providing = threading.Thread(target=self._provide, args=(python,), daemon=True)
        self._providing.start()  # its workers are to come
        return runner

    def _provide(self, python: str, more: Callable[[str], bool] = lambda path: False) -> None:
        """Brings the bytecode that the workers load, and of `more`, into the worktree."""
        device = self._job["work"]["device"]
        bytecode.provide(
            self._directory.folder, self._judge, self._judges, Path(python),
            lambda path: wanted_by_workers(path, device) or more(path),
        )  # fmt: skip

    @property
    def _judges(self) -> str:
        """The commit whose code decides."""
        return str(self._job.get("judge") or self._job["sha"])

    @property
    def _judge(self) -> Path:
        """Whose code decides: the judged commit's own unless the job names another."""
        return self._directory.judge if self._job.get("judge") else self._directory.tree

    def _expect_gpus(self) -> None:
        """A host that has none of what is asked for says so before it makes an environment, not after."""
        if self._job["gpu"]["query"] and not shutil.which(self._job["gpu"]["nvidia_smi"]):
            gpus.choose(self._rules())

    def _start(self, python: str) -> subprocess.Popen[bytes]:
        directory = self._directory
        if not (self._judge / "fmha" / "__init__.py").is_file():
            raise HostError("the judge's commit is of before fmha was one package", "name a later one with --judge")
        inside = self._enclosed(*self._command(python))
        self._order()
        with directory.log.open("ab") as log:
            try:
                return spawn(
                    inside.command, cwd=self._judge, env=inside.environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=log,
                )  # fmt: skip
            except OSError as error:
                raise HostError(f"{python} cannot be started: {error.strerror}", "correct python") from error

    def _order(self) -> None:
        """Writes what the runner is to do."""
        known = "" if self._enclosed_whole else self._isolation  # bubblewrap makes no sandbox inside of one
        work = self._job["work"] | {"tree": str(self._directory.tree), "isolation": known}
        write_json(self._directory.path / "work.json", work, durable=False)

    def _command(self, python: str) -> tuple[list[str], dict[str, str]]:
        """What starts the runner, and the variables that it gets besides the job's."""
        found = str(self._directory.path / modules.FOLDER)
        settings = {"PYTHONPATH": found, "PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1"}
        return [python, "-m", MODULE, str(self._named)], settings

    def _enclosed(self, command: list[str], settings: dict[str, str]) -> EnclosedCommand:
        """What starts it as the job's `isolation` says, which the log has once."""
        inside = enclosed(command, self._directory, self._judge, self._job, settings, build_cache.cache_of(self._named))
        if not self._isolation:
            self._isolation = inside.mechanism
            self._enclosed_whole = inside.whole
            self._log.add("isolation", mechanism=inside.mechanism, missing=inside.missing, whole=inside.whole)
            own = ", with the commit's own harness" if inside.whole else ""
            self._note(inside.missing or f"isolated by {inside.mechanism}{own}")
        return inside

    def _follow(self, runner: subprocess.Popen[bytes], stack: contextlib.ExitStack) -> bool:
        """Carries the runner's lines into the log until it has said its last; False when it has to wait for a GPU.

        One that comes with a GPU there says again what the first has said before it was sent away.
        """
        ended, again = False, self._lease is not None
        try:
            for line in self._lines(runner):
                try:
                    said = json.loads(line)
                    kind = said.pop("kind")
                except (ValueError, KeyError, AttributeError, TypeError):
                    raise HostError(f"the runner wrote what is no event: {line[:_SHOWN]!r}") from None
                if kind not in _SAYS:
                    raise HostError(f"the runner may not say {kind!r:.40}")
                self._heard = True
                if kind == "failed":
                    self._log.add(kind, **said)
                    raise HostError(said["reason"], said["next_step"])
                if kind == "alive":
                    continue  # one that waits for a scheduler has nothing else to say
                if kind == "ready":
                    if not self._get_gpu(stack):
                        return False
                    again = False
                    self._give_gpu(runner)
                elif not again:
                    self._log.add(kind, **said)
                    ended = kind == "end"
                    self._watch_gpu(said)
        finally:
            terminate_group(runner)
            for stream in (runner.stdin, runner.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if not ended:
            raise HostError(f"the runner ended early with {describe_exit(runner.returncode)}: {self._last_words()}")
        return True

    def _lines(self, runner: subprocess.Popen[bytes]) -> Iterator[bytes]:
        assert runner.stdout is not None
        pending = bytearray()
        heard = time.monotonic()
        end = heard + self._left
        limits = self._job["limits"]
        self._limit = limits["build_seconds"] + SLACK_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(runner.stdout, selectors.EVENT_READ)
            while True:
                exited = has_exited(runner)
                self._left = end - time.monotonic()
                if self._left < 0:
                    most = f"{_most_seconds(self._job):g} s for one"
                    raise HostError(
                        f"the run was ended: a key that can only run commits has {most}",
                        "ask for less, or have the host's owner set key.seconds and make the key's line again",
                    )
                if not selector.select(0 if exited else TICK_SECONDS):
                    if exited:
                        return
                    if time.monotonic() - heard > self._limit:
                        raise HostError(f"the runner said nothing for {self._limit:g} s, killed")
                    if self._lease:
                        self._lease.answer()
                    continue
                data = os.read(runner.stdout.fileno(), 1 << 16)
                if not data:
                    return
                pending += data
                if len(pending) > MAXIMUM_LINE:
                    raise HostError(f"the runner wrote a line of more than {MAXIMUM_LINE} bytes")
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    yield bytes(line)
                heard = time.monotonic()  # after the consumer: it may have waited for a GPU

    def _get_gpu(self, stack: contextlib.ExitStack) -> bool:
        """Whether a GPU could be had at once; otherwise there is a place in the queue."""
        if self._job.get("slurm"):
            self._lease = gpus.Lease(None, [])  # the scheduler has its own
        if self._lease is None:
            self._state("queued")
            rules = self._rules()
            candidates = gpus.choose(rules) if self._job["gpu"]["query"] else []
            self._wait = stack.enter_context(gpus.Wait(rules, candidates, self._directory.run, self._tell_position))
            if (lease := self._wait.attempt()) is not None:
                self._lease = stack.enter_context(contextlib.closing(lease))
        return self._lease is not None

    def _give_gpu(self, runner: subprocess.Popen[bytes]) -> None:
        assert self._lease is not None
        if self._providing is not None:
            self._providing.join()
        if self._wait is not None:
            self._wait.leave()
        self._limit = self._job["limits"]["total_seconds"] + SLACK_SECONDS
        held = self._lease.gpus
        first = held[0] if held else None
        more: dict[str, Any] = {"gpus": [gpus.as_dict(gpu) for gpu in held]} if len(held) > 1 else {}
        self._state("run", gpu=gpus.as_dict(first) if first else None, **more)
        assert runner.stdin is not None
        given = {"gpu": first.uuid if first else None, "gpus": [gpu.uuid for gpu in held]}  # an older judge knows one
        with contextlib.suppress(BrokenPipeError):  # its end is noticed when its lines end
            runner.stdin.write(json.dumps(given).encode() + b"\n")
            runner.stdin.flush()

    def _rules(self) -> gpus.Rules:
        return gpus.Rules.of(self._job["gpu"], self._directory.folder)

    def _watch_gpu(self, said: dict[str, Any]) -> None:
        """After a worker was killed: whether it has left the GPU. If not, the GPU is good for nobody."""
        event = said.get("event")
        if not isinstance(event, dict) or event.get("status") not in ("timeout", "crash"):
            return
        if self._lease is None or not self._lease.gpus:
            return
        rules, held = self._rules(), {gpu.uuid: gpu for gpu in self._lease.gpus}
        deadline = time.monotonic() + LEAVE_SECONDS
        while True:
            ours = set(processes.marked(self._directory.run))
            stuck = [
                (gpu, pid) for gpu in held.values() for pid in gpus.processes_on(rules, gpu.uuid) if pid not in ours
            ]
            if not stuck:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(TICK_SECONDS)  # only nvidia-smi knows, and it has to be asked
        gpu = stuck[0][0]
        pids = sorted(pid for other, pid in stuck if other is gpu)
        gpus.quarantine(rules, gpu, pids, self._directory.run)
        raise HostError(
            f"{gpu.uuid} is quarantined: process {pids[0]} was killed but is still on it",
            "use another GPU, or have this one reset; the quarantine ends when the process is gone",
        )

    def _tell_position(self, reason: str, position: int) -> None:
        self._log.add("waiting", reason=reason, position=position)

    def _note(self, text: str) -> None:
        self._log.add("note", text=text)

    def _state(self, state: str, **more: Any) -> None:
        self._log.add("state", state=state, **more)

    def _last_words(self) -> str:
        data = self._directory.log.read_bytes()[-(1 << 16) :].decode("utf-8", "replace")
        lines = [line.strip() for line in data.splitlines() if line.strip()]
        return (lines or ["it said nothing"])[-1][:_SHOWN]


def _most_seconds(job: Mapping[str, Any]) -> float:
    """How long runners of the job may take, all of them together and without the wait for a GPU. A scheduler's wait is
    within a runner, which says all the time that it is alive."""
    most = job.get("key", {}).get("seconds", math.inf)
    return float(most + (job["slurm"]["wait_seconds"] if job.get("slurm") else 0.0))


def _cancel(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise RunCancelledError


def _beat(path: Path) -> None:
    while True:
        with contextlib.suppress(OSError):
            path.touch()
        time.sleep(HEARTBEAT_SECONDS)  # the beat itself
