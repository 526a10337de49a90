"""The emulator as a host: worker processes on this machine, no GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.config import HostSettings, Limits
from harness.hosts.base import HostFacts, Order
from harness.hosts.machine import this_machine, versions
from harness.worker.build import build_variants
from harness.worker.protocol import BuildResult, Configuration, Event, Job, Variant
from harness.worker.supervise import run_worker
from harness.worker.variants import variant_for

KEPT_RUNS = 20


class EmulatorHost:
    """Builds into `.fmha/cache` and runs in `.fmha/runs` of the checkout, where the newest run folders stay."""

    device = "emulator"
    exact = False
    run_id = None

    def __init__(self, settings: HostSettings, root: Path) -> None:
        self._settings = settings
        self._silicon = settings.mma_sums == "silicon"
        if self._silicon:
            self.device = "emulator-silicon"
        self._root = root
        self._runs = root / ".fmha" / "runs"
        self._run = self._runs / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}"
        self._jobs = 0

    def facts(self) -> HostFacts:
        facts = HostFacts(self._settings.name, self._settings.kind, this_machine(), versions())
        return replace(facts, mma_sums="silicon") if self._silicon else facts

    def begin(self, order: Order, progress: Callable[[str], None]) -> None: ...

    def durations(self) -> Mapping[str, float]:
        return {}

    def span(self) -> None: ...

    def variant_for(self, configuration: Configuration) -> Variant | str:
        return variant_for(configuration, self._settings.arch)

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        cores = len(os.sched_getaffinity(0))
        cache = self._root / ".fmha" / "cache"
        return build_variants(self._root, variants, cache, limits.build_seconds, cores, progress)

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        self._jobs += 1
        folder = self._run / str(self._jobs)
        folder.mkdir(parents=True)
        self._prune()
        yield from run_worker(job, folder, limits.silence_seconds, limits.total_seconds, self._root)

    def finish(self) -> None: ...

    def _prune(self) -> None:
        for old in sorted(path for path in self._runs.iterdir() if path.is_dir())[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)
