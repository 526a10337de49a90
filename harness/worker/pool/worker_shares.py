"""How a job is spread over several workers: the longest configurations first, and no more workers than help."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fmha.harness.contract.protocol import THREADS, Cell, Job
from fmha.harness.worker.pool.supervise import Seat

LEAST_SCHEDULES = 4  # of a part: inputs and reference are computed for each part anew
PARTS_A_WORKER = 2  # where configurations are few: so that workers end together
WORTH_SECONDS = 0.5  # of work, for which another worker is started: about what its start takes
UNKNOWN_SECONDS = 0.06  # of a configuration, where nothing has been measured


def spread(job: Job, asked: int) -> tuple[Job, int]:
    """The job in the order in which it is handed out, and to how many workers; one alone keeps the job's order.

    So many as are `asked` for; where that is 0, one a core, as long as there is work for it. Longest first, by the
    job's costs: the last to end is then a short one, and all workers end together. Where there are fewer configurations
    than would do for that, each is handed out in parts, which have some of its schedules each.
    """
    seconds = estimates(job.configurations, job.costs)
    count, schedules = len(job.configurations), len(job.schedules)
    worth = min(cores(), math.ceil(sum(seconds.values()) * schedules / WORTH_SECONDS))
    most = schedules // LEAST_SCHEDULES if job.device.startswith("emulator") else 1
    workers = max(1, min(asked or worth, count * max(1, most)))
    if workers == 1:
        return job, 1
    job = replace(job, parts=max(1, min(most, math.ceil(PARTS_A_WORKER * workers / count))))
    # Equal ones keep their order.
    ordered = sorted(job.configurations, key=lambda item: seconds[item.id], reverse=True)
    return replace(job, configurations=tuple(ordered)), workers


def estimates(configurations: Sequence[Cell], costs: Mapping[str, float]) -> dict[str, float]:
    """Seconds by id: as measured; by size what was not, at the rate of what was."""
    known = [(item.cost, costs[item.id]) for item in configurations if costs.get(item.id, 0.0) > 0]
    sizes = {item.id: item.cost for item in configurations}
    size, seconds = (sum(column) for column in zip(*known, strict=True)) if known else (0.0, 0.0)
    if not known:
        size, seconds = sum(sizes.values()), UNKNOWN_SECONDS * len(sizes)
    return {name: costs.get(name) or sizes[name] * seconds / size for name in sizes}


def shares(workers: int) -> tuple[Seat, ...]:
    """A seat each for workers that share this machine's cores."""
    threads = max(1, cores() // workers)
    return (Seat({THREADS: str(threads)}),) * workers


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
