"""Runs the library of mistakes: `python -m tools.mutants [OPTIONS]`, or `make mutants`.

Writes results/mutants.json and the tables of docs/reference/mutants.md, unless only a part of the library was run.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmha.harness.config import Matrix, load
from fmha.harness.contract.protocol import Configuration
from fmha.harness.errors import FmhaError
from fmha.harness.worker.compilers.sources import hash_sources
from tools.mutants import library, mutants_page
from tools.mutants.campaign import CampaignError, CampaignPlan, cases_of, kept_of, part_of, run
from tools.mutants.examine import Suite
from tools.mutants.kept_verdicts import CaseOutcome, MutantCase
from tools.mutants.mutant_order import Hints

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "results" / "mutants.json"
DRAWN = 2**31  # the seed that the default run is taken to have drawn: the first that one may draw


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the default run kills all that is not argued equivalent; 1 otherwise; 2 for what cannot be run; 3 when the
    kernels themselves do not pass."""
    options = _parser().parse_args(arguments)
    options.folder = options.folder.resolve()  # compilers run elsewhere
    try:
        everything = library.load(options.file or library.FOLDER)
        mutants = _chosen(everything, options)
    except library.LibraryError as error:
        return _fail(2, str(error))
    if reasons := library.refused(mutants, ROOT):
        return _fail(2, "\n".join(["mutants that do not apply any more; rewrite or remove them:", *reasons]))
    cases = cases_of(mutants, options.arch or library.ARCHES)
    try:
        cases = part_of(cases, options.part) if options.part else cases
    except ValueError as error:
        return _fail(2, f"--part: {error}")
    if not cases:
        return _fail(2, "no mutant is left of this selection")
    try:
        plan = _plan(load(ROOT), options)
        if options.kept:
            outcomes = list(kept_of(cases, plan, options.folder))
        else:
            outcomes = list(run(cases, plan, options.folder, _Progress(len(cases)), options.part))
    except FmhaError as error:
        return _fail(2, str(error))
    except CampaignError as error:
        return _fail(3, str(error))
    data = mutants_page.record(
        outcomes, plan, hash_sources(ROOT), everything, _recorded() if options.file is None else None
    )
    if options.record:
        options.record.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return _told(data, write=options.file is None and (options.write or len(outcomes) == data["library"]))


# What `make run` runs is for the kernels of sm_100a; for those of sm_90a it is the same with their own `cover`.
COVER = {"sm_100a": "cover", "sm_90a": "cover-sm90"}


def default_runs(matrix: Matrix) -> dict[str, Suite]:
    """The default run of each architecture."""
    named = matrix.named(matrix.default_suite)
    assert "cover" in named
    runs = {arch: ",".join(cover if name == "cover" else name for name in named) for arch, cover in COVER.items()}
    return {arch: _suite(matrix, "default", suites, DRAWN) for arch, suites in runs.items()}


def _suite(matrix: Matrix, name: str, suites: str, drawn: int | None = None) -> Suite:
    found = matrix.configurations(suites, matrix.seed)
    return Suite(name, tuple(item for item in found if isinstance(item, Configuration)), drawn)


def _plan(matrix: Matrix, options: argparse.Namespace) -> CampaignPlan:
    apart = {*matrix.named(matrix.default_suite), *COVER.values()}
    named = [] if options.default_only else options.suite or [name for name in matrix.suite_names if name not in apart]
    others = tuple(_suite(matrix, name, name) for name in named)
    plan = CampaignPlan(
        ROOT,
        matrix,
        default_runs(matrix),
        others,
        options.folder / "builds",
        every=options.every,
        whole=options.whole,
        seconds=options.seconds,
        within=options.within,
        jobs=options.jobs,
        hints=_hints(),
    )
    return plan if options.afresh else replace(plan, recorded=mutants_page.outcomes_of(_recorded(), plan))


def _recorded() -> dict[str, Any]:
    """results/mutants.json; a record of nothing where there is none."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"cases": []}
    return found


def _hints() -> Hints:
    recorded = _recorded()
    cases = [*recorded.get("earlier", ()), *recorded["cases"]]
    return Hints.of(cases, [mutant for mutant in library.load() if not library.refused([mutant], ROOT)], ROOT)


def _chosen(mutants: Sequence[library.Mutant], options: argparse.Namespace) -> list[library.Mutant]:
    held = library.held_out(mutants)
    chosen = [m for m in mutants if not options.only or any(fnmatch.fnmatch(m.name, glob) for glob in options.only)]
    chosen = [m for m in chosen if not options.kind or m.kind in options.kind]
    if options.held_out is not None:
        chosen = [m for m in chosen if (m.name in held) == options.held_out]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    return chosen


class _Progress:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def __call__(self, case: MutantCase, outcome: CaseOutcome) -> None:
        self._done += 1
        first = next((f"{name}: {kill.kind} {', '.join(kill.by)[:80]}, {kill.configuration}"
                      for name, kill in outcome.suites.items() if kill), "")  # fmt: skip
        took = f"{outcome.seconds:.0f} s"
        print(
            f"[{self._done}/{self._total}] {case.title}: {outcome.status}, {took} {first}", file=sys.stderr, flush=True
        )


def _told(data: dict[str, Any], *, write: bool) -> int:
    live, wrong = mutants_page.survivors(data), mutants_page.refuted(data)
    for case in live:
        print(f"survived: {case['name']} on {case['arch']}: {case['did']}")
    for title in wrong:
        print(f"argued equivalent, and noticed: {title}")
    if same := data["same_code"]:
        print(f"compiled to the kernel's own code: {', '.join(case['title'] for case in same)}")
    print(json.dumps({name: data["score"][name] for name in ("all", *library.ARCHES, "held out")}, indent=1))
    if write:
        RECORD.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        document = ROOT / "docs/reference/mutants.md"
        head = document.read_text(encoding="utf-8").partition(mutants_page.MARK)[0]
        document.write_text(head + mutants_page.tables(data), encoding="utf-8")
        print("wrote results/mutants.json and docs/reference/mutants.md")
    return 1 if live or wrong else 0


def _fail(code: int, message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--only", action="append", metavar="GLOB", help="mutants of these names; may be repeated")
    add("--arch", action="append", choices=library.ARCHES, help="may be repeated  [default: all]")
    add("--class", dest="kind", action="append", choices=library.CLASSES, help="may be repeated  [default: all]")
    add("--default-only", action="store_true", help="run no suite besides the default run")
    add("--held-out", action=argparse.BooleanOptionalAction, help="those held out alone, or all but them")
    add("--sample", type=int, metavar="N", help="N of the selection, drawn by --seed")
    add("--seed", type=int, default=0, help="of the sample  [default: %(default)s]")
    add("--file", type=Path, metavar="PATH", help="other mistakes than the library's: a YAML file, or a folder of them")
    add("--record", type=Path, metavar="PATH", help="write what was seen of the selection there, as JSON")
    add("--suite", action="append", help="what survivors are run against besides the default run  [default: all]")
    add("--every", action="store_true", help="run every suite, also once the default run has noticed a mutant")
    add("--whole", action="store_true", help="run all of a suite, for every configuration that notices a mutant")
    add("--seconds", type=float, default=60.0, help="of processor time for a configuration  [default: %(default)g]")
    add("--within", type=float, default=math.inf, metavar="SECONDS", help="of processor time, then a case stays open")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once  [default: the cores]")
    add(
        "--folder",
        type=Path,
        default=ROOT / "build" / "mutants",
        help="of outcomes, to go on from  [default: %(default)s]",
    )
    add("--part", default="", metavar="K/N", help="the K-th of N parts, for N machines that share --folder")
    add("--kept", action="store_true", help="run nothing: tell what --folder and results/mutants.json have")
    add("--afresh", action="store_true", help="run what results/mutants.json has, too")
    add("--write", action="store_true", help="write record and page of a part of the library, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
