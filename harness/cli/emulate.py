"""`fmha emulate`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.dashes import DASHES
from fmha.harness.cli.naming import Which
from fmha.harness.cli.output import write_file
from fmha.harness.errors import ExitCode, UserError

if TYPE_CHECKING:
    from fmha.emulator import Explored
    from fmha.emulator.programs import Keeping, ProgramLaunch, Ran
    from fmha.emulator.timing.launch_time import Modelled
    from fmha.harness.emulate import Emulation, Entry, LaunchFile, OutputComparison

_PYTHON = re.compile(r"python[\d.]*")
PLACES = 4  # findings of one rule that are printed
HELP = """Run one launch of any PTX kernel, or all of a program's or a Python script's, on the emulator; report hazards.

LAUNCH is a YAML file: grid, block, buffers and how they are filled, tensor maps, parameters, outputs and what they must
equal; docs/use/emulator.md shows one. File names in it are relative to it. Hazards or wrong outputs exit with 1.
Without one, the module's kernels and their parameters are listed.

A configuration as fmha run-matrix prints it, of our kernels or of one's own, runs under one schedule; its numbers are
for run-matrix to judge.

After `--` stands a program that nvcc has built with `-cudart shared` and PTX inside, and its arguments. It finds a GPU,
B200 or H200; docs/use/programs.md says what of CUDA there is. The exit code is the program's own unless there was a
hazard, or something was refused.

Or a script that launches Triton kernels, as Python would be called. It is run by the Python that fmha is installed for,
with tensors on the CPU; docs/use/scripts.md says what of CUDA it finds there.

\b
Examples:
  fmha emulate kernel.ptx
  fmha emulate kernel.ptx --launch launch.yaml --schedules 8
  fmha emulate rmsnorm_rows4_columns256 --schedule late
  fmha emulate -- ./program --size 64
  fmha emulate --search 30 -- ./program --size 64
  fmha emulate --arch sm_90a -- python script.py
"""


def command(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KERNEL | -- PROGRAM ...",
            help="PTX, a binary that holds it, a configuration, or a program or script.",
            autocompletion=completion.launches,
        ),
    ],
    launch: Which = None,
    schedules: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=100_000, help="Explore N schedules; a program runs again for each."),
    ] = None,
    search: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.0, max=86_400.0, help="Search interleavings for one that fails."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=2**63 - 1, help="Of the random schedules of a program or a script."),
    ] = None,
    mma_sums: Annotated[
        str | None,
        typer.Option(metavar="SUMS", help="How tcgen05.mma adds, fast or silicon, in place of LAUNCH's own."),
    ] = None,
    arch: Annotated[
        str | None, typer.Option(metavar="ARCH", help="Of a program's GPU, or a script's kernels; sm_100a by default.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of a program's, script's or configuration's launches: realistic, early, late, random or spurious.",
        ),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Of its launches: lenient, or strict.")] = None,
    timing: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="Model how long launches take: whole, or sampled without outputs or checks."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a modelled timeline of one CTA, as fmha trace does.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    if not context.meta[DASHES] and len(words) == 1 and _is_configuration(words[0], launch):
        others = {"--schedules": schedules, "--search": search, "--mma-sums": mma_sums, "--trace": trace}
        others |= {"--seed": seed, "--profile": profile, "--timing": timing, "--arch": arch}
        for option, given in others.items():
            if given is not None:
                step = "fmha trace has times" if option in ("--trace", "--timing") else "fmha run-matrix --case has it"
                raise UserError(f"{option}: is not of a configuration", where=words[0], next_step=step)
        context.obj.action = partial(_run_configuration, words[0], launch, schedule, as_json)
        return
    of_ptx = {"--launch": launch, "--mma-sums": mma_sums, "--trace": trace}
    of_program = {"--arch": arch, "--schedule": schedule, "--seed": seed, "--profile": profile, "--timing": timing}
    script = _PYTHON.fullmatch(Path(words[0]).name) is not None
    program = script or context.meta[DASHES]
    for option, given in (of_ptx if program else of_program).items():
        if given is not None:
            raise typer.BadParameter(f"{option} is for {'PTX' if program else 'a program or a script'}")
    exploring = schedules is not None or search is not None
    if schedules is not None and search is not None:
        raise typer.BadParameter("--search chooses the schedules itself: give it or --schedules")
    if program and exploring:
        for option, chosen in {"--schedule": schedule, "--timing": timing, "--json": as_json}.items():
            if chosen:
                raise typer.BadParameter(f"{option} is of one run, and there are to be several")
    options = RunOptions(arch or "sm_100a", schedule or "realistic", seed or 0, profile or "lenient", schedules, search)
    if script:
        context.obj.action = partial(_run_script, words, options, timing, as_json)
    elif program:
        context.obj.action = partial(_run_program, words, options, timing, as_json)
    elif len(words) > 1:
        raise typer.BadParameter(
            f"{words[1]!r}: one kernel's file is taken; a program is given as -- PROGRAM ARGUMENTS"
        )
    else:
        if launch is None:
            for option, wanted in {**of_ptx, "--schedules": schedules, "--search": search}.items():
                if wanted is not None:
                    raise UserError(f"{option}: there is nothing to run", next_step="give --launch")
        context.obj.action = partial(
            _run, Path(words[0]), Path(launch) if launch else None, schedules, search, mma_sums, trace, as_json
        )


def _is_configuration(word: str, launch: str | None) -> bool:
    """Whether a word can be a configuration's name, and no file's."""
    plain = re.fullmatch(r"\w[\w-]*", word) is not None
    yaml = launch is not None and launch.endswith((".yaml", ".yml"))
    return plain and not yaml and not Path(word).exists() and _PYTHON.fullmatch(word) is None


def _run_configuration(name: str, launch: str | None, schedule: str | None, as_json: bool) -> ExitCode:
    from fmha.harness.see.emulate_configuration import emulated
    from fmha.harness.see.named import named

    ran = emulated(named((name,), launch, schedule=schedule))
    if as_json:
        print(json.dumps(ran.fields(), indent=2))
    else:
        print("\n".join(ran.lines()))
    return ExitCode.PASS if ran.passed else ExitCode.GATE_FAILED


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the launches of a program or a script are run: once, or under several schedules until one fails."""

    arch: str
    schedule: str
    seed: int
    profile: str
    schedules: int | None
    search: float | None

    @property
    def one(self) -> tuple[str, str, str, int]:
        """What a launch is run by: architecture, schedule, profile, seed."""
        return self.arch, self.schedule, self.profile, self.seed


def _explored(words: Sequence[str], options: RunOptions) -> tuple[ExitCode, str]:
    """The same command under other schedules, once it has passed under one; how it ended, and what was tried."""
    from fmha.harness.scripted import again

    command = ["--arch", options.arch, "--profile", options.profile, "--", *words]
    tried = 1
    for schedule, seed in again.others(options.schedules, options.search, options.seed):
        tried += 1
        ran = again.run(command, schedule, seed)
        if not ran.passed:
            for line in ran.lines():
                print(line)
            print(f"again: {again.replay(command, schedule, seed)}")
            return ExitCode.GATE_FAILED, f"FAIL under schedule {schedule}, seed {seed}: number {tried} of those tried"
    return ExitCode.PASS, f"{tried} schedules"


def _tried(options: RunOptions, schedules: str) -> str:
    """What a verdict without a hazard rests on, and what would look further."""
    further = [*(["--profile strict"] if options.profile == "lenient" else [])]
    further += [] if options.schedules or options.search else ["--search 30"]
    looks = f"; {' and '.join(further)} look{'' if len(further) > 1 else 's'} further" if further else ""
    return f" ({options.profile} rules, {schedules}{looks})"


def _keeping(timing: str | None) -> Keeping | None:
    """How time is kept; UserError for a word that says nothing of it."""
    from fmha.emulator import programs

    known = get_args(programs.Keeping)
    if timing is not None and timing not in known:
        raise UserError(f"--timing: {timing!r} is not one of {', '.join(known)}")
    return next((word for word in known if word == timing), None)


def _run_script(words: Sequence[str], options: RunOptions, timing: str | None, as_json: bool) -> int:
    from fmha.emulator import programs
    from fmha.harness.scripted.emulated import checked
    from fmha.harness.scripted.script_output import aside
    from fmha.harness.scripted.script_run import run_script

    keeping, run_as, gpu = _keeping(timing), checked(*options.one), programs.GPUS.get(options.arch)
    if keeping is not None:
        if gpu is None:
            modelled = ", ".join(programs.GPUS)
            raise UserError(f"--timing: no GPU of {options.arch} is modelled", next_step=f"--arch: one of {modelled}")
        run_as = dataclasses.replace(run_as, timing=gpu.timing, whole=keeping == "whole", checks=True)
    with aside() if as_json else contextlib.nullcontext():
        ran = run_script(words[1:], run_as)
    machine = ran.machine
    passed = not ran.failed and not machine.hazards
    times = [
        (f"{made.kernel}, {made.line}", made.grid, made.report.timing.modelled()) if made.report.timing else None
        for made in machine.launches
    ]
    if as_json:
        launches = [
            {"kernel": made.kernel, "line": made.line, "stats": made.report.stats}
            | ({"modelled": _modelled_as_json(time[2])} if time else {})
            for made, time in zip(machine.launches, times, strict=True)
        ]
        found = [dataclasses.asdict(told) for told in machine.findings]
        print(json.dumps({"passed": passed, "failed": ran.failed, "launches": launches, "findings": found}, indent=2))
        return ExitCode.PASS if passed else ExitCode.GATE_FAILED
    if gpu is not None:
        for line in _times((time for time in times if time), gpu.timing):
            print(line)
    executed = sum(made.report.stats["warp_instructions"] for made in machine.launches)
    end = f"; the script ended with {ran.failed}" if ran.failed else ""
    counts = f"{len(machine.launches)} launches, {executed:,.0f} warp instructions, {len(machine.hazards)} hazards{end}"
    code = ExitCode.PASS if passed else ExitCode.GATE_FAILED
    clean = "MODELLED, NOT CHECKED" if keeping == "sampled" and machine.launches else "NO HAZARD"
    return _concluded(words, options, clean if passed else "FAIL", counts, code, len(machine.launches))


def _concluded(words: Sequence[str], options: RunOptions, verdict: str, counts: str, code: int, launches: int) -> int:
    """The last line, after what other schedules show where one has shown nothing."""
    if verdict != "NO HAZARD":
        print(f"{verdict}: {counts}")
        return code
    if not launches:
        print(f"NOTHING LAUNCHED: {counts}")
        return ExitCode.INCOMPLETE
    schedules = f"the schedule {options.schedule}"
    if options.schedules is not None or options.search is not None:
        found, schedules = _explored(words, options)
        if found != ExitCode.PASS:
            print(schedules)
            return found
    print(f"NO HAZARD: {counts}{_tried(options, schedules)}")
    return ExitCode.PASS


def _run_program(words: Sequence[str], options: RunOptions, timing: str | None, as_json: bool) -> int:
    from fmha.emulator import programs
    from fmha.harness.scripted.emulated import checked

    arch = options.arch
    if arch not in programs.GPUS:
        raise UserError(f"--arch: {arch!r} is not one of {', '.join(programs.GPUS)}, the GPUs that a program may find")
    run_as = checked(*options.one)
    keeping = _keeping(timing)
    given = programs.Options(arch, run_as.schedule, run_as.seed, run_as.profile, timing=keeping)
    try:
        ran = programs.run_program(words, given, stdout=sys.stderr if as_json else None)
    except programs.ProgramError as error:
        raise UserError(str(error)) from error
    seen = ran.seen
    incomplete = bool(seen.refused or ran.cut)
    code = ExitCode.GATE_FAILED if seen.hazards else ran.code or (ExitCode.INCOMPLETE if incomplete else ExitCode.PASS)
    if not code and not seen.launches:
        code = ExitCode.INCOMPLETE
    if as_json:
        launches = [_as_json(made) for made in seen.launches]
        found = [dataclasses.asdict(told) for told in seen.findings]
        ended = {"code": ran.code, "signal": ran.signal, "cut": ran.cut}
        told = {"refused": seen.refused, "elapsed": seen.elapsed, "unprinted": seen.unprinted}
        print(
            json.dumps({"passed": not code, "program": ended, "launches": launches, "findings": found} | told, indent=2)
        )
        return code
    from fmha.harness.scripted.hangs import why_it_hangs

    times = ((made.kernel, made.grid, made.modelled) for made in seen.launches if made.modelled is not None)
    for line in (*why_it_hangs(words, given, ran), *_notes(ran), *_times(times, programs.GPUS[arch].timing)):
        print(line)
    executed = sum(made.stats["warp_instructions"] for made in seen.launches)
    passed = "MODELLED, NOT CHECKED" if keeping == "sampled" else "NO HAZARD"
    verdict = "FAIL" if seen.hazards or ran.code else "INCOMPLETE" if incomplete else passed
    end = f"; the program was ended by {ran.signal}" if ran.signal else f"; the program ended with {ran.code}"
    counts = f"{len(seen.launches)} launches, {executed:,.0f} warp instructions, {len(seen.hazards)} hazards"
    return _concluded(words, options, verdict, f"{counts}{end if ran.code else ''}", code, len(seen.launches))


def _as_json(made: ProgramLaunch) -> dict[str, Any]:
    plain = dataclasses.asdict(made)
    if made.modelled is not None:
        plain["modelled"] = _modelled_as_json(made.modelled)
    return plain


def _modelled_as_json(said: Modelled) -> dict[str, Any]:
    return dataclasses.asdict(said) | {"seconds": said.seconds}


def _notes(ran: Ran) -> Iterator[str]:
    """What of a program's run has to be known besides its hazards."""
    if not ran.asked:
        yield "no CUDA call was made"
    for what, times in ran.seen.refused.items():
        yield f"refused: {what}" + (f", {times} times" if times > 1 else "")
    for kernel in ran.cut:
        yield f"{kernel}: was running when the program ended, and was stopped"
    if ran.seen.unprinted:
        yield f"{ran.seen.unprinted} bytes of printf were lost: the program ended without a synchronisation after them"
    if ran.seen.elapsed:
        yield f"times between events were the emulator's own, {ran.seen.elapsed} of them: nothing was measured"


def _times(launches: Iterable[tuple[str, tuple[int, int, int], Modelled]], gpu: str) -> Iterator[str]:
    """What the model says of launches by kernel and grid, those of one kernel and grid together, the longest first."""
    alike: dict[tuple[str, tuple[int, int, int]], list[Modelled]] = {}
    for kernel, grid, modelled in launches:
        alike.setdefault((kernel, grid), []).append(modelled)
    if alike:
        yield f"modelled, on {gpu}:"
        yield "  us in all  launches  us each  bound"
    for (kernel, grid), times in sorted(alike.items(), key=lambda item: -sum(m.seconds for m in item[1])):
        us = sum(m.seconds for m in times) * 1e6
        untrue = ", the model could not follow its waits" if any(m.forced for m in times) else ""
        size = "x".join(map(str, grid))
        yield f"  {us:9.1f}  {len(times):8}  {us / len(times):7.1f}  {times[0].bound:7}  {kernel}, {size} CTAs{untrue}"


def _run(
    ptx: Path,
    launch: Path | None,
    schedules: int | None,
    search: float | None,
    mma_sums: str | None,
    trace: Path | None,
    as_json: bool,
) -> ExitCode:
    from fmha.harness.emulate import emulate, entries, read_launch_file  # here: no other command needs the machine
    from fmha.harness.emulate.launch_file import why_it_hangs

    if launch is None:
        _list(entries(ptx), as_json)
        return ExitCode.PASS
    file = read_launch_file(launch)
    result = emulate(ptx, file, launch.parent, schedules, mma_sums, search)
    hung = next((e for e in result.exploration.findings if e.finding.rule in ("deadlock", "livelock")), None)
    why = why_it_hangs(ptx, file, launch.parent, hung) if hung else []
    if as_json:
        print(json.dumps(_plain(result) | ({"hang": why} if why else {}), indent=2))
    else:
        _show(result, why)
    if trace is not None:
        _trace(ptx, file, launch.parent, trace)
    return ExitCode.PASS if result.passed else ExitCode.GATE_FAILED


def _trace(ptx: Path, file: LaunchFile, folder: Path, output: Path) -> None:
    """On the GPU that the PTX is for."""
    from fmha.emulator import load_ptx
    from fmha.emulator.timing.timeline import Timeline
    from fmha.harness.emulate.launch_file import timed

    gpu = "h200" if load_ptx(ptx).target.startswith("sm_90") else "b200"
    timing = timed(ptx, file, folder, gpu)
    timeline = Timeline.of(timing)
    write_file(output, timeline.document(timing.architecture.clock_mhz.value, timing.sources))
    said = timing.modelled()
    print(f"wrote {output}: on {gpu}, modelled, {said.seconds * 1e6:.1f} us, bound: {said.bound}", file=sys.stderr)


def _list(kernels: tuple[Entry, ...], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"entries": [dataclasses.asdict(e) for e in kernels]}, indent=2))
        return
    for entry in kernels:
        print(f"{entry.name}{_limits(entry)}")
        for p in entry.params:
            name = p.name.removeprefix(entry.name).removeprefix("_")  # compilers begin it with the kernel's
            print(f"  {name}: {p.nbytes} bytes at {p.offset}, aligned to {p.align}")


def _limits(entry: Entry) -> str:
    """What a launch of the kernel must obey."""
    said = []
    if entry.required_block:
        said.append(f"block {list(entry.required_block)}")
    elif entry.max_threads:
        said.append(f"at most {entry.max_threads} threads a block")
    if entry.required_cluster:
        said.append(f"cluster {list(entry.required_cluster)}")
    elif entry.explicit_cluster:
        said.append("a cluster has to be given")
    return f" ({', '.join(said)})" if said else ""


def _plain(result: Emulation) -> dict[str, Any]:
    found = result.exploration.findings
    _, _, first = result.exploration.runs[0]
    return {
        "entry": result.entry,
        "passed": result.passed,
        "mma_sums": result.mma_sums,
        "findings": [dataclasses.asdict(e.finding) | _reproduced(e) for e in found],
        "stats": first.stats,
        **({"searched": result.searched} if result.searched else {}),
        "outputs": [str(path) for path in result.written],
        "comparisons": [dataclasses.asdict(c) for c in result.comparisons],
    }


def _reproduced(explored: Explored) -> dict[str, Any]:
    how = {"schedule": explored.schedule, "seed": explored.seed}
    return how | ({"depth": explored.depth, "steps": explored.steps} if explored.schedule == "pct" else {})


def _show(result: Emulation, why: Sequence[str]) -> None:
    found, runs = result.exploration.findings, result.exploration.runs
    _tell(result)
    for line in why:
        print(line)
    for c in result.comparisons:
        print(_verdict(c, len(runs) > 1))
    for path in result.written:
        print(f"wrote {path}")
    instructions = sum(report.stats["warp_instructions"] for _, _, report in runs)
    seconds = sum(report.stats["seconds"] for _, _, report in runs)
    under = f" under {len(runs)} schedules" if len(runs) > 1 else ""
    sums = ", sums of tcgen05.mma as silicon's" if result.mma_sums == "silicon" else ""
    if result.searched:
        print(result.searched)
    print(f"{result.entry}: {instructions:.0f} warp instructions in {seconds:.3f} s{under}{sums}")
    differing = sum(c.wrong > 0 for c in result.comparisons)
    waived = sum(e.finding.waived is not None for e in found)
    accepted = f" ({waived} waived)" if waived else ""
    counts = f"{len(found)} findings{accepted}"
    if not result.comparisons:
        print(f"{'NO HAZARD' if result.passed else 'FAIL'}: {counts}; no output was compared, none has expect")
        return
    counts += f", {differing} of {len(result.comparisons)} compared outputs differ"
    print(f"{'PASS' if result.passed else 'FAIL'}: {counts}")


def _tell(result: Emulation) -> None:
    """The first few findings of each rule, and how many more there are: loops that are unrolled have them by dozens."""
    told: Counter[str] = Counter()
    exploration = result.exploration
    alike = Counter(explored.finding.cause for explored in exploration.findings)
    known: set[tuple[object, ...]] = set()
    for explored in exploration.findings:
        finding = explored.finding
        if finding.cause in known:
            continue
        known.add(finding.cause)
        told[finding.rule] += 1
        if told[finding.rule] <= PLACES:
            print(explored if len(exploration.runs) > 1 or explored.schedule == "pct" else finding)
            if alike[finding.cause] > 1:
                print(f"  and {alike[finding.cause] - 1} more between the same lines")
            if told[finding.rule] == 1 and finding.remedy:
                print(f"  what to do: {finding.remedy}")
    for rule, places in told.items():
        if places > PLACES:
            print(f"{rule}: at {places - PLACES} more pairs of places (--json lists them all)")


def _verdict(c: OutputComparison, several: bool) -> str:
    verdict = "equal" if c.worst is None else f"{c.wrong} of {c.elements} elements differ, {c.worst}"
    seed = f", seed {c.seed}" if c.schedule == "random" else ""
    under = f" under schedule {c.schedule}{seed}" if several else ""
    return f"{c.buffer}: {verdict}, largest difference {c.largest_difference:.3g}{under}"
