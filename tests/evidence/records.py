"""Records for tests that need many, or one with a certain difference."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fmha.harness import archive
from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import Acceptance
from fmha.harness.config import parse_filter
from fmha.harness.contract.protocol import BuildResult, Configuration, Resources
from fmha.harness.hosts import HostProvenance, Machine
from fmha.harness.judge.comparison.noise import values_of
from fmha.harness.judge.identity import Identity, identity
from fmha.harness.judge.status import Status
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.stages.archive import Circumstances, make_record
from fmha.harness.stages.outcome import Outcome, Step
from fmha.harness.stages.plan import Plan
from fmha.harness.stages.preflight import GitFacts
from tests.harness.support import GOOD

VARIANT = next(variant for variant in VARIANTS if variant.head_dim == 64)
STARTED = datetime(2026, 11, 21, 3, 4, 5, tzinfo=UTC)
IDS = ("hd64_t1_sk128", "hd64_t32_sk128")
CONFIGURATIONS = (Configuration(64, 1, 128), Configuration(64, 32, 128))


def record(
    *,
    sha: str = "0" * 40,
    minutes: int = 0,
    host: str = "emulator",
    seed: int = 0,
    outcomes: Mapping[str, Mapping[str, Any]] | None = None,
    leave_out: Sequence[str] = (),
    resources: Mapping[str, int] | None = None,
    judge: Identity | None = None,
    guard: bool = True,
) -> RunRecord:
    """Two configurations that pass with GOOD's numbers, but for what `outcomes` changes by id."""
    steps = tuple(Step(item, guard, True, VARIANT) for item in CONFIGURATIONS if item.id not in leave_out)
    sizes = asdict(Resources(128, 0, 0, 0, 1024)) | dict(resources or {})
    built = BuildResult(VARIANT, "", "", Resources(**sizes), "ab" * 32, "nvcc 13.0", ("-O3",), 1.0, False)
    when = STARTED + timedelta(minutes=minutes)
    run = Circumstances(
        git=GitFacts(Path("/r"), sha, "main", ()),
        host=HostProvenance(
            host, "emulator" if host == "emulator" else "ssh", Machine("a CPU", 2, "Linux"), {"python": "3.11"}
        ),
        plan=Plan("proven", parse_filter([]), steps),
        seed=seed,
        schedule="realistic",
        matrix_sha256="c" * 64,
        judge=judge or identity("c" * 64),
        apart=None,
        alike=None,
        builds={VARIANT.name: built},
        durations={},
        started=when,
        finished=when,
    )
    plain = [Outcome(step, Status.PASS, measurement=GOOD, seconds=0.5) for step in steps]
    changes = outcomes or {}
    return make_record(run, [replace(item, **changes.get(item.id, {})) for item in plain])


def measured(**changes: Any) -> dict[str, Any]:
    """An outcome's change of some metrics."""
    return {"measurement": replace(GOOD, **changes)}


def archived(folder: Path, count: int, make: Callable[[int], RunRecord] | None = None) -> list[Path]:
    """So many runs a minute apart, each of a commit of its own."""
    made = make or (lambda number: record(sha=f"{number:040x}", minutes=number))
    return [archive.write(made(number), folder) for number in range(count)]


def accepted(base: RunRecord, spread: float = 0.1, seeds: int = 20) -> RunRecord:
    """The record as a baseline whose errors vary by a factor of exp(spread), one standard deviation."""
    generator = random.Random(0)

    def varied(metric: str, value: float) -> list[float]:
        error = 1 - value if metric == "cosine" else value
        errors = [error * math.exp(generator.gauss(0, spread)) for _ in range(seeds)]
        return [1 - item for item in errors] if metric == "cosine" else errors

    noise = {
        item.id: {metric: varied(metric, value) for metric, value in values_of(item.metrics).items()}
        for item in base.configurations
        if item.metrics
    }
    acceptance = Acceptance(
        why="test",
        accepted=datetime.now(UTC),
        by="t",
        replaces=None,
        deterministic=True,
        seeds=list(range(seeds)),
        noise=noise,
    )
    return base.model_copy(update={"acceptance": acceptance})
