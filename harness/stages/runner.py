"""What the runner on a host does once it is loaded: the order of `work.json`, with the stages of its own tree."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmha.harness import isolate
from fmha.harness.config import HostSettings, Limits, load
from fmha.harness.contract.codec import encode
from fmha.harness.contract.protocol import Beside, BuildResult, Cell, Event, Job, Variant
from fmha.harness.errors import FmhaError
from fmha.harness.hosts import declared_by
from fmha.harness.hosts.emulator_host import EmulatorHost
from fmha.harness.hosts.side import side_variant
from fmha.harness.stages.outcome import Outcome
from fmha.harness.stages.pipeline import Progress, Request, carry_out, prepare_for
from fmha.harness.stages.preflight import GitFacts
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.planner.offered_kernels import OfferError, offered
from fmha.harness.worker.planner.sides import Declares
from fmha.harness.worker.pool.supervise import Seat, run_worker
from fmha.harness.worker.pool.worker_shares import shares, spread

if TYPE_CHECKING:
    from fmha.harness.stages.cluster import Cluster

Say = Callable[[dict[str, Any]], None]


class _Here(EmulatorHost):
    """This machine, with everything that it answers also said to the supervisor."""

    def __init__(
        self,
        work: dict[str, Any],
        directory: Path,
        root: Path,
        say: Say,
        kernels: Mapping[str, Declares],
    ) -> None:
        super().__init__(HostSettings(work["host"], "ssh", "realistic"), root, kernels)
        self.device = work["device"]
        self._arch = work["arch"]
        self._cache = directory.parent.parent / "cache"
        self._folder = directory / "workers"
        self._say = say
        self._job = 0
        self._other = (work.get("beside"), directory / "beside")
        self._beside: Beside | None = None
        self._gpus: list[str] = []
        self._workers = work.get("workers", 0)
        self._cluster = _cluster(directory, self._workers, say) if work.get("slurm") else None

    def variant_for(self, configuration: Cell) -> Variant | str:
        return side_variant(self._side, configuration, self._arch)

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        facts = self.facts()
        said = {"machine": asdict(facts.machine), "versions": dict(facts.versions), "isolation": facts.isolation}
        self._say({"kind": "facts", **said})
        cores = len(os.sched_getaffinity(0))
        results = self._built(variants, self._cache, limits, cores, progress)
        for result in results:
            self._say({"kind": "build", "result": encode(result)})
        commit, tree = self._other
        if commit:
            self._beside = _beside(commit, tree, variants, self._cache, limits, cores)
            if self._beside.reason:
                self._say({"kind": "note", "text": self._beside.reason})
        return results

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        if self._job == 0:
            self._wait_for_gpu()
        self._job += 1
        job = replace(self._with_planned(job), beside=self._beside, kernel_side=self._tree)
        folder = self._folder / str(self._job)
        if self._cluster is not None:
            told = self._cluster.run(job, limits)
        else:
            job, seats = self._seats(job)
            how = (limits.silence_seconds, limits.total_seconds, Path.cwd(), seats)
            told = run_worker(job, folder, *how)
        with closing(told) as events:
            for event in events:
                self._say({"kind": "event", "job": self._job, "event": encode(event)})
                yield event

    def _wait_for_gpu(self) -> None:
        self._say({"kind": "ready"})
        line = sys.stdin.readline()
        if not line:
            raise SystemExit(1)  # the supervisor has gone, and with it whoever would hear us
        given = json.loads(line)
        self._gpus = given.get("gpus") or [given["gpu"]] if given["gpu"] is not None else []
        if self._gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = self._gpus[0]

    def _seats(self, job: Job) -> tuple[Job, tuple[Seat, ...]]:
        """One a GPU; without GPUs, workers that share the cores."""
        if not self._gpus:
            asked = job.workers or self._workers or (0 if self.device.startswith("emulator") else 1)
            job, workers = spread(job, asked)
            return job, shares(workers)
        job, workers = spread(job, min(len(self._gpus), job.workers or len(self._gpus)))
        named = len(self._gpus) > 1
        return job, tuple(Seat({"CUDA_VISIBLE_DEVICES": gpu}, gpu if named else "") for gpu in self._gpus[:workers])


def _cluster(directory: Path, tasks: int, say: Say) -> Cluster:
    from fmha.harness.stages.cluster import Cluster  # here: most hosts have no Slurm

    wish = json.loads((directory / "job.json").read_text(encoding="utf-8"))["slurm"]
    return Cluster(directory.name, directory / "cluster", {**wish, "tasks": tasks or wish["tasks"]}, say)


def _beside(commit: str, tree: Path, variants: Sequence[Variant], cache: Path, limits: Limits, jobs: int) -> Beside:
    """The other commit's variants of the same names: of ours as its own harness has them, of kernels with an adapter
    as the adapter has them here."""
    chosen = [variant for variant in variants if variant.head_dim is None and variant.source]
    wanted = {variant.name for variant in variants if variant.head_dim is not None}
    reason = ""
    try:
        chosen += [variant for variant in offered(tree) if variant.name in wanted] if wanted else []
    except OfferError as error:
        reason = f"commit {commit[:12]} cannot be timed beside: {error}"
    builds = build_variants(tree, chosen, cache, limits.build_seconds, jobs, lambda text: None) if chosen else []
    return Beside(commit, tuple(builds), reason)


class _Notes:
    """Progress that is not in the events as it is."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def stage(self, name: str, detail: str) -> None: ...

    def note(self, text: str) -> None:
        self._say({"kind": "note", "text": text})

    def tell(self, text: str) -> None: ...

    def started(self, configuration: str) -> None: ...

    def finished(self, outcome: Outcome, done: int, total: int) -> None: ...


def carry_out_order(directory: Path, say: Say) -> None:
    """Raises FmhaError for what cannot be carried out."""
    work = json.loads((directory / "work.json").read_text(encoding="utf-8"))
    if work.get("isolation") in isolate.MECHANISMS:  # what the supervisor has found out
        os.environ[isolate.FOUND] = work["isolation"]
    isolate.foresee()
    judge, root = Path.cwd(), Path(work["tree"]).resolve()
    request = Request(root, host=work["host"], **work["request"])
    git = GitFacts(root, "", None, ())  # the supervisor has proved the commit; no record is made here
    own = bool(work.get("own"))  # the judge is an fmha that came with the run; matrix.yaml is the commit's
    settings = load(root if own else judge, own=False).complete()
    if own and work["device"].startswith("emulator"):
        _require_core()
    host = _Here(work, directory, root, say, declared_by(settings))
    if judge != root and not own:
        host.judge_apart("", root)
    prepared = replace(prepare_for(request, git, settings, host), costs=work.get("costs", {}))
    carry_out(prepared, Progress(), _Notes(say))


def _require_core() -> None:
    """Says in good time that the core which came with the run is another Python's."""
    try:
        import_module("fmha.emulator")
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise FmhaError(
            f"Python {version} here cannot load the emulator's core of the fmha that was sent",
            next_step="set the host's python to the version that fmha is installed for where the run starts",
        ) from error
