"""The worker process: `python -m fmha.harness.worker JOB.json` runs a job's configurations and writes JSON events.

Events go to the standard output that the process was started with, one a line. Everything else that is printed, by
libraries too, goes to standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fmha.harness.contract.codec import CodecError, event_to_line, read_job
from fmha.harness.contract.device import DeviceError, DeviceLostError, IllegalError
from fmha.harness.contract.protocol import BuildResult, Cell, Drawn, Event, Job, Measurement, Met, Timed
from fmha.harness.errors import FmhaError, InfrastructureError
from fmha.harness.judge.configuration import OURS
from fmha.harness.judge.schedules import compare_outputs, merge_findings, parse_schedule
from fmha.harness.kernel_side import place_of
from fmha.harness.worker.devices.across import executor_for, goes_across
from fmha.harness.worker.devices.behind import FailedThereError
from fmha.harness.worker.devices.factory import DeviceFactory, device_factory
from fmha.harness.worker.launch.time_builds import UntimedError
from fmha.harness.worker.launch.watched import ChangedError, watched
from fmha.harness.worker.planner.process import KernelSideError
from fmha.harness.worker.planner.sides import Side, side_of
from fmha.harness.worker.processes.groups import die_with_parent
from fmha.harness.worker.subjects.adapter_process import AdapterError, KernelsError
from fmha.harness.worker.subjects.peers import PeerRefusedError, every_peer
from fmha.harness.worker.subjects.subject import AttentionSubject, Subject, SubjectRun

if TYPE_CHECKING:
    from fmha.harness.worker.subjects.declared import Declared

EXIT_BAD_JOB = 2
EXIT_DEVICE_LOST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when every configuration had its event, 2 when the job cannot be read or names no device, and 3 when a
    kernel took the device down: the configurations that remain need another process."""
    options = _parser().parse_args(arguments)
    faulthandler.enable()
    gc.freeze()  # the modules need not be looked through when this process ends, which others wait for
    if options.parent is not None:
        die_with_parent(options.parent)
    stream = _claim_stdout()
    handed = _claim_stdin() if options.handed else None
    with ExitStack() as held:
        try:
            job = read_job(options.job)
            if goes_across(job.device):
                factory: DeviceFactory = held.enter_context(closing(executor_for(job))).open
            else:
                factory = device_factory(job.device)
        except (OSError, CodecError, LookupError, FmhaError) as error:
            print(f"{options.job}: {error}", file=sys.stderr)
            return EXIT_BAD_JOB
        places = map(int, handed) if handed else None
        finished = run_job(job, factory, lambda event: _write(stream, event), places)
    return 0 if finished else EXIT_DEVICE_LOST


def run_job(
    job: Job,
    factory: DeviceFactory,
    emit: Callable[[Event], None],
    places: Iterable[int] | None = None,
) -> bool:
    """Runs the configurations of `places` in the job, or those parts of them, in order, and all where none are given;
    emits `started` before and `result` or `error` after each, then `done`.

    Returns false, and runs no more, after one that took the device down.
    """
    builds = {build.variant.name: build for build in job.builds}
    kernels, peers = _declared(job), every_peer()
    with closing(side_of(job.kernel_side, {**peers, **kernels})) as side:
        subjects: Mapping[str, Subject] = {**peers, OURS: AttentionSubject(side.launch), **kernels}
        for place in range(len(job.configurations) * job.parts) if places is None else places:
            number, part = divmod(place, job.parts)
            configuration = job.configurations[number]
            emit(Event("started", configuration.id))
            try:
                emit(_run_one(_Work(job, factory, side, subjects[configuration.kernel], part), builds, configuration))
            except DeviceLostError as error:
                traceback.print_exc()
                emit(_error(configuration, "crash", str(error)))
                return False
    emit(Event("done"))
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """What all configurations of a job share, and which part of one is run."""

    job: Job
    factory: DeviceFactory
    side: Side
    subject: Subject
    part: int


def _declared(job: Job) -> dict[str, Declared]:
    """Kernels with an adapter, by name."""
    if not job.kernels:
        return {}
    from fmha.harness.worker.subjects.adapter import Adapter
    from fmha.harness.worker.subjects.called import subject_of

    wanted = {configuration.kernel for configuration in job.configurations}
    tree = Path(job.kernel_side) if job.kernel_side else None
    adapters = [
        Adapter(Path(job.root), where, name, tree=tree, planned=_planned(job, name))
        for name, where in job.kernels.items()
        if name in wanted
    ]
    for adapter in adapters:  # all at once: each takes a moment
        adapter.start()
    return {adapter.name: subject_of(adapter, job.tolerances) for adapter in adapters}


def _planned(job: Job, kernel: str) -> dict[str, dict[str, Any]]:
    ids = {configuration.id for configuration in job.configurations if configuration.kernel == kernel}
    return {name: said for name, said in job.planned.items() if name in ids}


def _run_one(work: _Work, builds: dict[str, BuildResult], configuration: Cell) -> Event:
    start = time.monotonic()
    try:
        event = _attempt(work, builds, configuration)
    except IllegalError as error:
        traceback.print_exc()
        event = _error(configuration, "crash", str(error))
    except (DeviceError, InfrastructureError, OSError, MemoryError) as error:
        traceback.print_exc()
        event = _error(configuration, "infra-error", str(error) or type(error).__name__)
    except DeviceLostError:
        raise
    except (KernelSideError, FailedThereError) as error:
        event = _error(configuration, "crash", str(error))
    except ChangedError as error:
        event = dataclasses.replace(_error(configuration, "fail", str(error)), findings=error.findings)
    except PeerRefusedError as error:
        event = _error(configuration, "not-run", str(error))
    except KernelsError as error:
        event = _error(configuration, "crash", error.what)
    except AdapterError as error:
        event = _error(configuration, "adapter-error", error.what)
    except Exception as error:
        traceback.print_exc()
        event = _error(configuration, "crash", f"{type(error).__name__}: {error}{place_of(error)}")
    return dataclasses.replace(event, seconds=time.monotonic() - start)


def _attempt(work: _Work, builds: dict[str, BuildResult], configuration: Cell) -> Event:
    job = work.job
    arch = next(iter(builds.values())).variant.arch if builds else ""
    variant = work.side.variant_for(configuration, arch)
    if isinstance(variant, str):
        return _error(configuration, "not-run", variant)
    build = builds.get(variant.name)
    if build is None or build.error is not None:
        reason = build.error if build is not None and build.error is not None else "it was not built"
        return _error(configuration, "build-error", f"{variant.name}: {reason}")
    inputs = work.subject.inputs(job.seed, configuration)
    expected = work.subject.reference(configuration, inputs)
    reports, hashes, measured = [], [], []
    for schedule in job.schedules[work.part :: job.parts]:
        outputs = _launch(work, build, configuration, inputs, schedule)
        _log(f"{configuration.id}: measuring")
        measured.append(work.subject.measure(configuration, outputs, expected))
        reports.append((schedule, outputs.report.findings))
        hashes.append((schedule, measured[-1].output_hash))
    findings = merge_findings(reports)
    stats = outputs.report.stats if len(job.schedules) == 1 else {**outputs.report.stats, "schedules": len(reports)}
    if job.parts > 1:  # whoever has all parts compares their outputs
        event = Event("result", configuration.id, measured[0], findings=findings, stats=stats, under=tuple(hashes))
    else:
        findings += compare_outputs(hashes)
        event = Event("result", configuration.id, measured[0], findings=findings, stats=stats)
    if work.part > 0:  # what is not of one schedule, the first part has
        return event
    noise = tuple(_drawn(work, build, configuration, seed) for seed in job.noise_seeds)
    met = _met(work, build, configuration, inputs, expected)
    event = dataclasses.replace(event, noise=noise, met=met)
    try:
        return dataclasses.replace(event, timing=_timed(work, build, configuration, inputs, expected, measured[0]))
    except UntimedError as error:
        return dataclasses.replace(event, stats={**stats, "untimed": str(error)})


def _drawn(work: _Work, build: BuildResult, configuration: Cell, seed: int) -> Drawn:
    subject = work.subject
    inputs = subject.inputs(seed, configuration)
    outputs = _launch(work, build, configuration, inputs, work.job.schedules[0], seed)
    expected = subject.reference(configuration, inputs)
    return Drawn(seed, subject.measure(configuration, outputs, expected), outputs.report.findings)


def _met(work: _Work, build: BuildResult, configuration: Cell, inputs: Any, expected: Any) -> tuple[Met, ...]:
    """Under the schedules that the configuration meets besides the job's own."""
    met = []
    for schedule in filter(None, work.job.also.get(configuration.id, "").split(",")):
        outputs = _launch(work, build, configuration, inputs, schedule)
        measured = work.subject.measure(configuration, outputs, expected)
        met.append(Met(schedule, measured, merge_findings([(schedule, outputs.report.findings)])))
    return tuple(met)


def _timed(
    work: _Work,
    build: BuildResult,
    configuration: Cell,
    inputs: Any,
    expected: Any,
    judged: Measurement,
) -> Timed | None:
    job = work.job
    if job.beside is None and not job.timed:
        return None
    _log(f"{configuration.id}: timing " + (f"beside commit {job.beside.commit[:12]}" if job.beside else "alone"))
    name, seed = parse_schedule(job.schedules[0], job.seed)
    device = work.factory(seed, name)
    try:
        if job.beside is None:
            return work.subject.timed_alone(device, build, configuration, inputs, expected, judged)
        return work.subject.timed(device, build, job.beside, configuration, inputs, expected, judged)
    finally:
        device.close()


def _launch(
    work: _Work,
    build: BuildResult,
    configuration: Cell,
    inputs: Any,
    schedule: str,
    seed: int | None = None,
) -> SubjectRun:
    name, seed = parse_schedule(schedule, work.job.seed if seed is None else seed)
    device = work.factory(seed, name)
    try:
        artifact = build.ptx if device.artifact == "ptx" else build.cubin
        module = device.load(Path(artifact)) if artifact else None
        _log(f"{configuration.id}: launching {build.variant.entry} on {device.name}, schedule {schedule}")
        looked_at = watched(device, work.subject.lenient)
        ran = work.subject.run(looked_at, module, build.variant, configuration, inputs)
        looked_at.check(work.subject.writes(configuration), merge_findings([(schedule, ran.report.findings)]))
        return ran
    finally:
        device.close()


def _error(configuration: Cell, status: str, message: str) -> Event:
    return Event("error", configuration.id, status=status, message=message)


def _log(text: str) -> None:
    """Says on standard error where the worker is: the last such line explains a hang."""
    print(text, file=sys.stderr, flush=True)


def _claim_stdout() -> BinaryIO:
    """Takes the standard output for events alone, and points descriptor 1 at standard error."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def _claim_stdin() -> Iterator[bytes]:
    """Takes the standard input for what is handed to us, a line each, and leaves an empty one to everybody else."""
    stream = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return iter(stream.readline, b"")


def _write(stream: BinaryIO, event: Event) -> None:
    stream.write(event_to_line(event))
    stream.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.worker", description="Runs a job's configurations.")
    parser.add_argument("job", type=Path, metavar="JOB.json")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process, the one that starts us, ends")
    parser.add_argument("--handed", action="store_true", help="run the configurations whose places in the job come in")
    return parser


if __name__ == "__main__":
    sys.exit(main())
