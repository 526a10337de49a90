"""What the kernels as they are do under each configuration of the default run: which lines they execute, and what that
costs. Kept with the outcomes, for as long as sources and configurations are the same."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from fmha.harness.config import Matrix
from fmha.harness.contract.lines import read
from fmha.harness.contract.protocol import Configuration, Event, Job, Variant
from fmha.harness.judge.identity import CORE, sources
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.compilers.sources import hash_sources
from fmha.harness.worker.devices.emulator_device import EmulatorDevice, forget_executed
from tools.mutants.examine import SCHEDULES, Suite
from tools.mutants.mutant_builds import SOURCES, built
from tools.mutants.mutant_order import KernelFacts, by_variant


def known(repository: Path, matrix: Matrix, arch: str, folder: Path) -> KernelFacts | None:
    """What an earlier run has left in `folder`, if of these sources: suites may have had other configurations."""
    file = _file(repository, matrix, arch, folder)
    return KernelFacts.read(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _file(repository: Path, matrix: Matrix, arch: str, folder: Path) -> Path:
    facts = (hash_sources(repository, SOURCES[arch]), matrix.seed, sources(repository)[CORE])
    return folder / f"facts-{arch}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.json"


def learn(
    repository: Path, matrix: Matrix, arch: str, suite: Suite, kept: Path, folder: Path, jobs: int
) -> KernelFacts:
    """The same by a run, left in `folder`."""
    file = _file(repository, matrix, arch, folder)
    kernels = by_variant(suite.configurations, arch)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        parts = list(pool.map(partial(_learn, repository, matrix.seed, kept), kernels, kernels.values()))
    found = KernelFacts(
        {name: cost for part in parts for name, cost in part.costs.items()},
        {name: lines for part in parts for name, lines in part.lines.items()},
    )
    folder.mkdir(parents=True, exist_ok=True)
    partly = file.with_suffix(f".{os.getpid()}")
    partly.write_text(json.dumps(found.as_json()), encoding="utf-8")
    partly.rename(file)
    return found


def _learn(
    repository: Path, seed: int, kept: Path, variant: Variant, configurations: list[Configuration]
) -> KernelFacts:
    """In a process of the pool."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # the worker's log
    build = built(kept, repository, variant).result(variant)
    costs: dict[str, float] = {}
    lines: dict[str, dict[str, frozenset[int]]] = {}

    def look(event: Event) -> None:
        if event.event == "started":
            forget_executed()
        elif event.event == "result":
            costs[event.config] = event.stats["warp_instructions"]
            executed = event.stats["coverage"]["source"]
            lines[event.config] = {
                file.partition("kernel/")[2]: read(done) for file, (_, done) in executed.items() if "kernel/" in file
            }

    run_job(Job("emulator", (build,), tuple(configurations), seed, SCHEDULES), _device, look)
    return KernelFacts(costs, lines)


def _device(seed: int, schedule: str) -> EmulatorDevice:
    return EmulatorDevice(seed, schedule, threads=1, watch=True)
