"""How a run on a Slurm cluster scales: `python -m tools.scale --nodes 512 --configurations 1000`.

The code that schedules is the real one: `Cluster` on the login node, and what its tasks take configurations by. Slurm,
the nodes and time are simulated: a command of Slurm's is answered by the simulation, and a wait lets its events happen.
Of what a task says, only the names are true. Files are real files in a folder of this machine, and are counted.

Every node fails at the rate of Llama 3's training, 466 times in 54 days of 2,048 nodes (The Llama 3 Herd of Models,
2024), unless `--failures` says otherwise.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from fmha.harness.config import Limits, load
from fmha.harness.contract.codec import encode, read_job
from fmha.harness.contract.protocol import Event, Job
from fmha.harness.stages import cluster
from fmha.harness.supervisor import slurm
from fmha.harness.worker.pool import node

ROOT = Path(__file__).resolve().parents[1]
DAY = 86400.0
PUBLISHED = 466 / (54 * 2048)  # failures of a node in a day
ENDLESS = 1e9
OPTIONS = ("partition", "account", "qos", "gres", "time", "constraint", "exclude", "mem", "cpus_per_task")


@dataclass(frozen=True)
class Site:
    """A cluster and a job. Times in seconds."""

    nodes: int = 512
    configurations: int = 1000
    latency: float = 5.0  # from a submission, or a requeue, to the first start
    starts: float = 50.0  # tasks that Slurm starts in a second
    startup: float = 8.0  # of a task, before its first configuration
    median: float = 3.0  # of a configuration, which is log-normal
    spread: float = 1.0  # of its logarithm
    known: bool = True  # what configurations take is known to a fifth
    failures: float = PUBLISHED  # of a node in a day
    preempted: float = 0.0  # tasks are preempted after so long, on the mean; 0: none is
    late: float = 0.0  # until the login node sees what a node has written
    seed: int = 0


@dataclass
class ScaleTask:
    """One of an array: `start` counts its starts, and what an earlier one had planned does not happen."""

    array: int
    index: int
    folder: Path
    state: str = "PENDING"
    start: int = -1
    since: float = 0.0
    places: Iterator[int] | None = None


class InstantQuestion:
    """Stands for `slurm.SlurmQuestion`: the answer takes no time."""

    def __init__(self, run: str) -> None:
        self._answer = slurm.tasks_of(run)

    def answer(self) -> list[slurm.SlurmTask]:
        """What squeue answered."""
        return self._answer

    def close(self) -> None: ...


class Simulation:
    """A cluster whose time passes while somebody sleeps."""

    def __init__(self, site: Site, job: Job, seconds: Mapping[str, float]) -> None:
        self.site, self.job, self.seconds = site, job, seconds
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.occupied = 0.0  # node seconds
        self._random = random.Random(site.seed)
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._tasks: list[ScaleTask] = []
        self._free = site.nodes
        self._next_start = 0.0
        self._ids: dict[Path, list[str]] = {}  # of a round's configurations, in its folder's order
        self._inside = False  # of a task
        self._counting = True
        self.cpu_inside = 0.0

    def monotonic(self) -> float:
        """The simulated clock."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and what is due happen."""
        self.counts["looks"] += 1
        begun = time.process_time()
        end = self.now + seconds
        while self._coming and self._coming[0][0] <= end:
            self.now, _, happens = heapq.heappop(self._coming)
            happens()
        self.now = end
        self.cpu_inside += time.process_time() - begun

    def _at(self, when: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._coming, (when, next(self._order), happens))

    # Slurm

    def command(self, words: Sequence[str], text: str = "", more: Mapping[str, str] | None = None) -> str:
        """Stands for `slurm._run`."""
        self.counts[words[0]] += 1
        if words[0] == "sbatch":
            options = dict(word.lstrip("-").partition("=")[::2] for word in words[1:])
            array = 1 + max((task.array for task in self._tasks), default=0)
            for index in range(int(options["array"].partition("-")[2]) + 1):
                task = ScaleTask(array, index, Path(options["chdir"]))
                self._tasks.append(task)
                self._queue(task)
            return f"{array}\n"
        if words[0] == "scancel":
            for task in self._tasks:
                if task.state in slurm.LIVE:
                    self._end(task, "CANCELLED")
            return ""
        return "".join(f"{t.array}|{t.array}|{t.index}|{t.state}|n{t.index}|None\n" for t in self._tasks)

    def _queue(self, task: ScaleTask) -> None:
        self._next_start = max(self._next_start, self.now + self.site.latency) + 1 / self.site.starts
        self._at(self._next_start, lambda: self._started(task))

    def _started(self, task: ScaleTask) -> None:
        if task.state not in slurm.WAITING:
            return
        if not self._free:
            self._at(self.now + 1.0, lambda: self._started(task))
            return
        self._free -= 1
        task.state, task.start, task.since = "RUNNING", task.start + 1, self.now
        for rate, state in ((self.site.failures / DAY, "NODE_FAIL"), (self._preemptions(), "PREEMPTED")):
            if rate:
                self._planned(task, self._random.expovariate(rate), lambda state=state: self._lost(task, state))  # type: ignore[misc]
        self._planned(task, self.site.startup, lambda: self._begun(task))

    def _preemptions(self) -> float:
        return 1 / self.site.preempted if self.site.preempted else 0.0

    def _planned(self, task: ScaleTask, seconds: float, happens: Callable[[], None]) -> None:
        """After so many seconds, if the task still has the same start."""
        start = task.start
        self._at(self.now + seconds, lambda: happens() if (task.start, task.state) == (start, "RUNNING") else None)

    def _lost(self, task: ScaleTask, state: str) -> None:
        """--requeue: it waits, and starts again."""
        self.counts[state] += 1
        self._end(task, "PENDING")
        self._queue(task)

    def _end(self, task: ScaleTask, state: str) -> None:
        if task.state == "RUNNING":
            self.occupied += self.now - task.since
            self._free += 1
        task.state = state

    # A task

    def _begun(self, task: ScaleTask) -> None:
        names = {"SLURM_ARRAY_JOB_ID": task.array, "SLURM_ARRAY_TASK_ID": task.index, "SLURM_RESTART_COUNT": task.start}
        if task.folder not in self._ids:
            self._ids[task.folder] = [item.id for item in read_job(task.folder / "job.json").configurations]
        with mock.patch.dict(os.environ, {name: str(value) for name, value in names.items()}), self._as_a_task():
            own = node._own(task.folder)
            task.places = node._claimed(task.folder, own, task.index, len(self._ids[task.folder]))
        self._say(task, own, {"kind": "begin", "node": f"n{task.index}", "gpus": []})
        self._take(task, own)

    def _take(self, task: ScaleTask, own: Path) -> None:
        assert task.places is not None
        with self._as_a_task():
            place = next(task.places, None)
        if place is None:
            self._say(task, own, {"kind": "end"})
            self._end(task, "COMPLETED")
            return
        name = self._ids[task.folder][place]
        self._say(task, own, {"kind": "event", "event": encode(Event("started", name))})

        def done() -> None:
            self._say(task, own, {"kind": "event", "event": encode(Event("result", name, place=f"n{task.index}"))})
            self._take(task, own)

        self._planned(task, self.seconds[name], done)

    def _say(self, task: ScaleTask, own: Path, message: Mapping[str, Any]) -> None:
        line = json.dumps(message) + "\n"

        def seen() -> None:
            with (own / node.EVENTS).open("a", encoding="utf-8") as file:
                file.write(line)

        if self.site.late:
            self._at(self.now + self.site.late, lambda: self._quietly(seen))
        else:
            self._quietly(seen)

    @contextmanager
    def _as_a_task(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _quietly(self, act: Callable[[], None]) -> None:
        """What the task writes is not what is asked about."""
        before, self._counting = self._counting, False
        try:
            act()
        finally:
            self._counting = before

    # Files

    def touched(self, what: str) -> None:
        """Counts an access to the file system, by who makes it."""
        if self._counting:
            self.counts[f"{'tasks' if self._inside else 'login node'}: {what}"] += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts what is opened, listed, linked and looked for, in Python's own words."""

        def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                self.touched(name)
                return original(*given, **named)

            return call

        with ExitStack() as stack:
            for where, name in ((Path, "exists"), (Path, "open"), (os, "listdir"), (os, "link")):
                stack.enter_context(mock.patch.object(where, name, counting(name, getattr(where, name))))
            yield


def simulate(site: Site) -> dict[str, Any]:
    """What a run on `site` costs: seconds, node seconds, and what is asked of Slurm and of the shared folder."""
    matrix = load(ROOT)
    chance = random.Random(site.seed)
    found = matrix.configurations("random", site.seed, site.configurations)[: site.configurations]
    seconds = {item.id: site.median * chance.lognormvariate(0.0, site.spread) for item in found}
    guessed = {name: value * chance.lognormvariate(0.0, 0.2) for name, value in seconds.items()}
    job = Job("emulator", (), found, 0, costs=guessed if site.known else {})
    simulation = Simulation(site, job, seconds)
    wish: dict[str, Any] = dict.fromkeys(OPTIONS, "") | {"container_image": "", "container_mounts": []}
    wish |= {"tasks": site.nodes, "late_seconds": 70.0, "wait_seconds": ENDLESS}
    said: list[str] = []
    results: Counter[str] = Counter()
    patches: tuple[tuple[Any, str, Any], ...] = (
        (cluster, "time", simulation),
        (slurm, "time", simulation),
        (slurm, "_run", simulation.command),
        (slurm, "SlurmQuestion", InstantQuestion),
    )
    with tempfile.TemporaryDirectory(prefix="scale-") as folder, ExitStack() as stack:
        for where, name, what in patches:
            stack.enter_context(mock.patch.object(where, name, what))
        stack.enter_context(simulation.counted())
        begun = time.process_time()
        lead = cluster.Cluster("run", Path(folder), wish, lambda event: said.append(str(event.get("text", ""))))
        for event in lead.run(job, Limits(ENDLESS, ENDLESS, ENDLESS)):
            results[event.event] += event.event in ("result", "error")
        cpu = time.process_time() - begun - simulation.cpu_inside
    wall, useful = simulation.now, sum(seconds.values())
    ideal = site.latency + site.startup + max(useful / site.nodes, max(seconds.values()))
    asked = simulation.counts
    return {
        "site": asdict(site),
        "results": results["result"],
        "errors": results["error"],
        "wall_seconds": wall,
        "of_the_least_possible": wall / ideal,
        "node_hours": simulation.occupied / 3600,
        "node_hours_lost": (simulation.occupied - useful) / 3600,
        "run_twice": sum("ran twice" in text for text in said),
        "run_again": sum("is run again, by" in text for text in said),
        "lost_tasks": asked["NODE_FAIL"] + asked["PREEMPTED"],
        "slurm_commands": {name: asked[name] for name in ("sbatch", "squeue", "scancel")},
        "files": {name: number for name, number in sorted(asked.items()) if ":" in name},
        "login_node_files_a_second": sum(n for name, n in asked.items() if name.startswith("login")) / wall,
        "login_node_cpu_share": cpu / wall,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulates a site and prints what the login node bears."""
    parser = argparse.ArgumentParser(prog="python -m tools.scale", description=(__doc__ or "").partition("\n")[0])
    usual = asdict(Site())
    for name, value in usual.items():
        if isinstance(value, bool):
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=value)
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value, help="[default: %(default)g]")
    print(json.dumps(simulate(Site(**vars(parser.parse_args(arguments)))), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
