"""Kernels that hang, crash and are no kernels, on the emulator behind its wall: real workers, executors and signals."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from fmha.harness.contract.device import DeviceError, DeviceLostError, LaunchConfig
from fmha.harness.contract.protocol import BuildResult, Configuration, Event, Job
from fmha.harness.kernel_side.params import PARAMS_BYTES
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.across import Executor
from fmha.harness.worker.devices.behind import FailedThereError
from fmha.harness.worker.pool.supervise import run_worker
from tests.integration.processes import alive, eventually

PLENTY, PATIENCE = 120.0, 8.0
MUTANTS = 50
ENDLESS = f"""\
.version 9.0
.target sm_100a
.address_size 64
.visible .entry {VARIANTS[0].entry}(.param .align 64 .b8 params[{PARAMS_BYTES}])
{{
$forever:
    bra $forever;
}}
"""
# Of every kind of what a module has: types, spaces, labels, predicates, vectors, atomics, barriers, shared memory.
SMALL = """\
.version 9.0
.target sm_100a
.address_size 64
.global .align 4 .b32 counter[4] = {1, 2, 3, 4};
.visible .entry small(.param .u64 small_param_0, .param .u32 small_param_1)
{
    .reg .pred %p<3>;
    .reg .b16 %h<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<5>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd1, [small_param_0];
    ld.param.u32 %r1, [small_param_1];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    mov.u32 %r3, tile;
    shl.b32 %r4, %r2, 2;
    add.s32 %r5, %r3, %r4;
    st.shared.f32 [%r5], %f1;
    bar.sync 0;
    xor.b32 %r6, %r4, 4;
    add.s32 %r7, %r3, %r6;
    ld.shared.f32 %f2, [%r7];
    fma.rn.f32 %f3, %f1, %f2, %f2;
    ex2.approx.ftz.f32 %f4, %f3;
    shfl.sync.bfly.b32 %r8|%p1, %r2, 1, 31, -1;
    setp.lt.u32 %p2, %r8, %r1;
$loop:
    @%p2 atom.global.add.u32 %r9, [counter], 1;
    sub.s32 %r1, %r1, 1;
    setp.gt.s32 %p2, %r1, 0;
    @%p2 bra $loop;
    st.global.f32 [%rd3], %f4;
    ret;
}
"""


def job(folder: Path, ptx: str, *ts: int) -> Job:
    file = folder / "build" / "k.ptx"
    file.parent.mkdir()
    file.write_text(ptx)
    build = BuildResult(VARIANTS[0], str(file), "", None, "", "", (), 0.0, False)
    return Job("emulator", (build,), tuple(Configuration(64, t, 128) for t in ts), seed=0)


def executors() -> list[psutil.Process]:
    """Those that run now below this process, wrappers included."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any("devices.executor" in word for word in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def launching(folder: Path) -> bool:
    return any("launching" in path.read_text() for path in folder.glob("*.stderr"))


def test_a_kernel_that_hangs_is_a_timeout_with_the_usual_words(tmp_path: Path, repository: Path) -> None:
    """The worker is silent with its executor, and both are ended."""
    seen: list[int] = []
    events: list[Event] = []
    for event in run_worker(job(tmp_path, ENDLESS, 1), tmp_path / "run", PATIENCE, PLENTY, repository):
        if event.event == "started":
            eventually(lambda: launching(tmp_path / "run"))
            seen += [process.pid for process in executors()]
        events.append(event)
    assert [event.event for event in events] == ["started", "error", "done"]
    said = f"hd64_t1_sk128: launching {VARIANTS[0].entry} on emulator, schedule realistic"
    assert (events[1].status, events[1].message) == ("timeout", f"silent for 8 s, killed; it last said: {said}")
    assert seen
    assert not eventually_gone(seen)


def eventually_gone(pids: list[int]) -> list[int]:
    eventually(lambda: not alive(pids))
    return alive(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_an_executor_killed_in_a_launch_is_a_crash_and_the_rest_runs(
    tmp_path: Path, repository: Path, number: signal.Signals
) -> None:
    ended: dict[str, Event] = {}
    for event in run_worker(job(tmp_path, ENDLESS, 1, 2), tmp_path / "run", PATIENCE, PLENTY, repository):
        if event.event == "started" and not ended:
            eventually(lambda: launching(tmp_path / "run"))
            executors()[-1].send_signal(number)  # the innermost
        elif event.event == "error":
            ended[event.config] = event
    first, second = ended.values()
    assert first.status == "crash"
    assert first.message.startswith(f"executor killed by {number.name}")
    assert second.status == "timeout", "another worker and executor had it"


def test_executors_end_with_a_worker_that_is_killed(tmp_path: Path, repository: Path) -> None:
    """And with whoever wants no more events."""
    events = run_worker(job(tmp_path, ENDLESS, 1), tmp_path / "run", PLENTY, PLENTY, repository)
    assert next(events).event == "started"
    assert eventually(lambda: launching(tmp_path / "run"))
    pids = [process.pid for process in executors()]
    assert pids
    events.close()
    assert not eventually_gone(pids)


@contextmanager
def ended_after(seconds: float, executor: Executor) -> Iterator[None]:
    """What a worker's supervisor does to kernels that hang."""
    timer = threading.Timer(seconds, os.kill, (executor.behind.pid, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def mutated(text: str, seed: int) -> str:
    """One or two lines of a module changed."""
    generator = random.Random(seed)
    words = re.findall(r"[\w.%$]+", text)
    for _ in range(generator.randint(1, 2)):
        lines = text.split("\n")
        at = generator.randrange(3, len(lines) - 1)
        lines[at] = changed(lines[at], words, generator)
        text = "\n".join(lines)
    return text


def changed(line: str, words: list[str], generator: random.Random) -> str:
    """Left out, twice, or with another word, number, type, register, or a character more."""
    middle = len(line) // 2
    return generator.choice(
        [
            "",
            f"{line}\n{line}",
            re.sub(r"[\w.%$]+", lambda _: generator.choice(words), line, count=1),
            re.sub(r"\d+", str(generator.choice([0, 1, 31, 2**31, 2**32 - 1, 2**64, -1])), line, count=1),
            re.sub(r"\.(u|s|b|f)(16|32|64)", generator.choice([".b8", ".f64", ".u16", ".v4.b32"]), line),
            line.replace("%r", "%rd") if "%r" in line else line.replace("%f", "%h"),
            line[:middle] + chr(generator.randrange(1, 0x110)) + line[middle:],
        ]
    )


def test_mutated_modules_cost_nobody_but_themselves(tmp_path: Path) -> None:
    """Fifty modules by seed: each loads and runs, or is refused, or fails, or takes its executor down. This process,
    which stands for the worker, goes on, and a right module runs after each as before."""
    made: dict[str, int] = {}
    files = [tmp_path / f"{seed}.ptx" for seed in range(MUTANTS + 1)]
    for seed, file in enumerate(files):
        file.write_text(SMALL if seed == MUTANTS else mutated(SMALL, seed))
    right = files[MUTANTS]
    executor = Executor("emulator", files)
    try:
        for file in files:
            with ended_after(PATIENCE, executor):
                try:
                    ran = launched(executor, file)
                    how = "ran" if ran else "ran, with hazards"
                except (DeviceError, FailedThereError) as error:
                    how = type(error).__name__
                except DeviceLostError:
                    how = "lost"
                    executor.close()
                    executor = Executor("emulator", files)
            made[how] = made.get(how, 0) + 1
            assert launched(executor, right), f"after {file.name}"
    finally:
        executor.close()
    assert sum(made.values()) == MUTANTS + 1
    assert made["DeviceError"] > 5, f"mutations that are none: {made}"


def launched(executor: Executor, file: Path) -> bool:
    """Whether it left no hazard."""
    device = executor.open(0, "realistic")
    try:
        address = device.alloc(256, "words")
        device.upload(address, np.zeros(64, np.uint32))
        module = device.load(file)
        params = (address.to_bytes(8, "little"), (3).to_bytes(4, "little"))
        report = device.launch(module, "small", LaunchConfig((1, 1, 1), (32, 1, 1)), params)
        assert len(device.download(address, 256)) == 256
        return not any(finding.severity == "error" for finding in report.findings)
    finally:
        device.close()


@pytest.mark.nvcc
@pytest.mark.parametrize("seed", range(6))
def test_a_mutated_kernel_of_ours_is_an_event_like_any_other(
    builds: dict[str, BuildResult], tmp_path: Path, seed: int
) -> None:
    text = Path(builds[VARIANTS[0].name].ptx).read_text()
    made = job(tmp_path, mutated(text, seed), 1)
    events: list[Event] = []
    executor = Executor("emulator", [Path(made.builds[0].ptx)])
    try:
        with ended_after(30.0, executor):
            run_job(made, executor.open, events.append)
    finally:
        executor.close()
    assert [event.event for event in events][:1] == ["started"]
    assert events[1].event == "result" or events[1].status in ("infra-error", "crash")
