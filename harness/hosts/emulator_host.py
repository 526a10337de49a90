"""The emulator as a host: worker processes on this machine, no GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fmha.harness import account, isolate
from fmha.harness.config import HostSettings, Limits
from fmha.harness.contract.protocol import BuildResult, Cell, Event, Job, Variant
from fmha.harness.hosts.base import HostProvenance, Order
from fmha.harness.hosts.side import side_variant
from fmha.harness.hosts.this_machine import this_machine, versions
from fmha.harness.judge.identity import installed_root
from fmha.harness.worker.compilers.at_hand import AtHand
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.planner.sides import Declares, KernelSide, OwnSide, Side
from fmha.harness.worker.pool.supervise import run_worker
from fmha.harness.worker.pool.worker_shares import shares, spread

KEPT_RUNS = 20


class EmulatorHost:
    """Builds into the cache of this account, and runs in `.fmha/runs` of the checkout, where the newest stay."""

    device = "emulator"
    exact = False
    run_id = None

    def __init__(self, settings: HostSettings, root: Path, kernels: Mapping[str, Declares] | None = None) -> None:
        self._settings = settings
        self._silicon = settings.mma_sums == "silicon"
        if self._silicon:
            self.device = "emulator-silicon"
        self._root = root
        self._runs = account.in_checkout(root, "runs")
        self._run = self._runs / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}"
        self._jobs = 0
        self._kernels = kernels or {}
        found = ((name, kernel.adapter) for name, kernel in self._kernels.items())
        self._adapters = {name: adapter for name, adapter in found if adapter is not None}
        self._side: Side = OwnSide(kernels)
        self._tree = ""  # of the kernel's side, where it is another's

    def facts(self) -> HostProvenance:
        """The machine, its versions, and what encloses a build here."""
        isolation = isolate.isolation()
        said = isolation.missing or isolation.mechanism
        facts = HostProvenance(self._settings.name, self._settings.kind, this_machine(), versions(), isolation=said)
        return replace(facts, mma_sums="silicon") if self._silicon else facts

    def judge_apart(self, judge: str, tree: Path) -> None:
        """From now on the kernel's side is that tree's."""
        self._side, self._tree = KernelSide(tree, self._kernels), str(tree)

    def begin(self, order: Order, progress: Callable[[str], None], tell: Callable[[str], None]) -> None:
        """There is nobody to ask. Raises IsolationError where a sandbox is required and there is none."""
        isolate.isolation()

    def durations(self) -> Mapping[str, float]:
        """None but those that the pipeline measures itself."""
        return {}

    def span(self) -> None:
        """None: the run is as long as the client's."""

    def variant_for(self, configuration: Cell) -> Variant | str:
        """The kernel that runs it, or in words why there is none."""
        return side_variant(self._side, configuration, self._settings.arch)

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        """Builds in parallel, on the cores that this process has."""
        cores = len(os.sched_getaffinity(0))
        cache = account.folder("builds")
        return self._built(variants, cache, limits, cores, progress)

    def _built(
        self, variants: Sequence[Variant], cache: Path, limits: Limits, cores: int, progress: Callable[[str], None]
    ) -> list[BuildResult]:
        """What kernels' sides have compiled while they were asked for the variants is taken from them, which end."""
        try:
            how = (limits.build_seconds, cores, progress, self._side.flags, self._at_hand)
            results = build_variants(self._root, variants, cache, *how)
            for adapter in self._adapters.values():
                adapter.hold_planned()
            return results
        finally:
            for adapter in self._adapters.values():
                adapter.close_kernel()

    def _at_hand(self, variant: Variant) -> AtHand | None:
        adapter = self._adapters.get(variant.compiler.rpartition(" ")[2])
        return adapter.at_hand(variant) if adapter else None

    def _with_planned(self, job: Job) -> Job:
        """The job with what the kernels' sides have said when they were asked for its variants."""
        said: dict[str, Mapping[str, Any]] = {}
        for name, adapter in self._adapters.items():
            said |= adapter.planned(item.id for item in job.configurations if item.kernel == name)
        return replace(job, planned={name: dict(answers) for name, answers in said.items()})

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        """Runs a job in a worker of its own, and yields its events as they come."""
        self._jobs += 1
        folder = self._run / str(self._jobs)
        account.made_in_checkout(self._root, "runs")
        folder.mkdir(parents=True)
        self._prune()
        job, root = self._with_planned(job), self._root
        if self._tree:  # the worker must find the judge's modules first, and it looks where it is started
            job, root = replace(job, kernel_side=self._tree), installed_root()
        job, workers = spread(job, job.workers or self._settings.workers)
        yield from run_worker(job, folder, limits.silence_seconds, limits.total_seconds, root, shares(workers))

    def finish(self) -> None:
        """Ends the kernel's side."""
        self._side.close()

    def _prune(self) -> None:
        for old in sorted(path for path in self._runs.iterdir() if path.is_dir())[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)
