"""python -m fmha.emulator.mutation KERNEL.ptx --launch SPEC: the table, the score and the JSON record."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from fmha.emulator.device import load_ptx
from fmha.emulator.mutation.notice import (
    Launch,
    MutantOutcome,
    MutationError,
    Plan,
    check_original,
    check_reached,
    run_mutant,
    schedule_plan,
)
from fmha.emulator.mutation.operators import PtxMutant, mutants_of
from fmha.emulator.mutation.proof import check_separation
from fmha.emulator.mutation.redundant import Redundant, load_redundant


def load_launch(spec: str) -> Launch:
    """`FILE.py`, `FILE.py:NAME` or `MODULE:NAME`; the name is `launch` unless given."""
    where, _, name = spec.partition(":")
    if where.endswith(".py"):
        found = importlib.util.spec_from_file_location(Path(where).stem, where)
        if found is None or found.loader is None or not Path(where).is_file():
            raise MutationError(f"--launch {spec}: no such file")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    launch: Launch = getattr(module, name or "launch")
    return launch


class _Worker:
    """One process's state: the launch function is loaded once, by its spec, since functions do not travel."""

    launch: Launch
    plan: Plan
    kernel: str
    redundant: tuple[Redundant, ...]

    @classmethod
    def begin(cls, spec: str, plan: Plan, kernel: str, redundant: tuple[Redundant, ...]) -> None:
        cls.launch, cls.plan, cls.kernel, cls.redundant = staticmethod(load_launch(spec)), plan, kernel, redundant

    @classmethod
    def run(cls, mutant: PtxMutant) -> MutantOutcome:
        return run_mutant(mutant, cls.launch, cls.plan, cls.kernel, cls.redundant)


def sample(mutants: list[PtxMutant], every: int, seed: int) -> list[PtxMutant]:
    """Every `every`-th mutant of an order drawn from `seed`, back in the kernel's order."""
    order = list(mutants)
    random.Random(seed).shuffle(order)
    return sorted(order[::every], key=lambda m: m.index)


def summary(outcomes: Sequence[MutantOutcome]) -> dict[str, Any]:
    """Counts of outcomes, and the share that was killed of those that change something."""
    counts = Counter(o.status for o in outcomes)
    judged = len(outcomes) - counts["invalid"] - counts["unreached"]
    good = counts["killed"] + counts["redundant"]
    killers = Counter(o.by for o in outcomes if o.status == "killed")
    return {
        "mutants": len(outcomes),
        **{status: counts[status] for status in ("killed", "redundant", "survived", "unreached", "invalid")},
        "score": good / judged if judged else None,
        "killed_by": dict(killers.most_common()),
    }


def record(outcome: MutantOutcome) -> dict[str, Any]:
    """An outcome as JSON."""
    m = outcome.mutant
    fields = {"index": m.index, "kind": m.kind, "what": m.what, "line": m.line, "ptx": m.text[:160], "source": m.source}
    fields |= {"status": outcome.status, "by": outcome.by}
    return fields | ({"schedule": outcome.schedule, "seed": outcome.seed} if outcome.status == "killed" else {})


def main(arguments: Sequence[str]) -> int:
    """Mutates a kernel as the command line says. 0 where every mutant is killed or proven to change nothing."""
    parser = argparse.ArgumentParser(prog="python -m fmha.emulator.mutation", description=__doc__)
    parser.add_argument("kernel", type=Path, help="PTX of the kernel")
    parser.add_argument("--launch", required=True, help="FILE.py[:NAME] or MODULE:NAME, a Launch")
    parser.add_argument("--entry", help="the entry to mutate; the module's only one by default")
    parser.add_argument("--name", help="the kernel's name in the redundant list; the entry's by default")
    parser.add_argument("--redundant", type=Path, help="YAML list of mutants that are proven to change nothing")
    parser.add_argument("--random", type=int, default=8, help="random schedules after realistic, early and late")
    parser.add_argument("--every", type=int, default=1, help="run one mutant in so many")
    parser.add_argument("--seed", type=int, default=0, help="of the sample drawn by --every")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args(arguments)
    ptx = options.kernel.read_text()
    module = load_ptx(ptx)
    entry = options.entry or next(iter(module.entries))
    name = options.name or entry
    redundant = load_redundant(options.redundant) if options.redundant else ()
    plan = schedule_plan(options.random)
    try:
        check_original(ptx, load_launch(options.launch), plan)
    except MutationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    mutants = sample(list(mutants_of(ptx, module.parsed.functions[entry])), options.every, options.seed)
    state = (options.launch, plan, name, redundant)
    with ProcessPoolExecutor(options.jobs, initializer=_Worker.begin, initargs=state) as pool:
        outcomes = list(pool.map(_Worker.run, mutants, chunksize=4))
    launch = load_launch(options.launch)
    function = module.parsed.functions[entry]
    outcomes = [check_reached(o, ptx, function, launch) for o in outcomes]
    outcomes = [check_separation(o, ptx, function, launch, plan) for o in outcomes]
    for o in outcomes:
        m = o.mutant
        print(f"{m.index:4} {o.status:9} line {m.line:5} {m.what:28} {o.by:28} {m.text[:60]}")
    result = summary(outcomes)
    print(json.dumps(result, indent=1))
    if options.json:
        command = "python -m fmha.emulator.mutation " + shlex.join(arguments)
        body = {"kernel": name, "command": command, "plan": plan, **result, "outcomes": [record(o) for o in outcomes]}
        options.json.write_text(json.dumps(body, indent=1) + "\n")
    return 0 if result["survived"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
