"""How fast the machine runs whole kernels: `python -m tests.emulator.attention_speed`.

Ours: a CTA of 128 rows over 512 keys by head_dim, the best of some launches, with the conflict checks on and off; eight
such CTAs on one thread and on two. Those of Triton and CuTe DSL on their tests' cases. The default suite of the matrix,
on one core and on two. What one thread does is measured in processor time of that thread, which others on the machine
disturb least; what two do, and the matrix, in wall time.

`rest`: nanoseconds a warp instruction without the multiplications of tcgen05.mma and wgmma, of which one instruction
makes 10^5 to 10^6. Their time is that of the loops over D, K and N alone: reading and decoding operands, checks and
everything else stay in the rest. It is the least of all launches, by the clock on the wall, so that what others on the
machine take from it is not subtracted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fmha.emulator.device import MMA_SUMS, Device, MmaSums
from fmha.emulator.machine_speed import describe_host
from fmha.harness import account
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.kernel_side.variants import VARIANTS, knows_heads, knows_pages
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.launch.run_attention import run_attention
from tests.emulator.thirdparty.running import NAMES, execute

ROOT = Path(__file__).parents[2]
ROWS, KEYS, CTAS, PAGE = 128, 512, 8, 64


@dataclass(frozen=True)
class Cost:
    seconds: float  # of the kernel's launches, by the clock on the wall
    thread_seconds: float  # processor time of the thread that launched them
    product_seconds: float  # of the multiplications of tcgen05.mma and wgmma
    warp_instructions: float

    @property
    def nanoseconds(self) -> float:
        return 1e9 * self.thread_seconds / self.warp_instructions

    @property
    def rest(self) -> float:
        return 1e9 * (self.thread_seconds - self.product_seconds) / self.warp_instructions


def best_of(costs: Iterable[Cost], threads: int = 1) -> Cost:
    """The fastest, with the least time that any took for its multiplications."""
    every = list(costs)
    best = min(every, key=lambda c: c.thread_seconds if threads == 1 else c.seconds)
    return replace(best, product_seconds=min(c.product_seconds for c in every))


def cost(ptx: Path, variant: Variant, batch: int, checks: bool, threads: int, repeat: int, sums: MmaSums) -> Cost:
    """The best of `repeat` runs. RuntimeError when the machine has something to say about the kernel."""
    configuration = Configuration(
        variant.head_dim,
        t=ROWS,
        s_k=KEYS,
        batch=batch,
        p_path=variant.p_path,
        layout="fused" if knows_heads(variant) else "bshd",
        page_size=PAGE if knows_pages(variant) else 0,
    )
    inputs = make_inputs(0, configuration)

    def runs() -> Iterator[Cost]:
        for _ in range(repeat):
            device = EmulatorDevice(0, "realistic", checks, threads, sums)
            report = run_attention(device, device.load(ptx), variant, configuration, inputs).report
            if report.findings:
                raise RuntimeError(f"{variant.name}: {report.findings[0].message}")
            yield _cost_of(report.stats)

    return best_of(runs(), threads)


def _cost_of(stats: Mapping[str, float]) -> Cost:
    return Cost(stats["seconds"], stats["thread_seconds"], stats["product_seconds"], stats["warp_instructions"])


def print_kernels(repeat: int, sums: MmaSums) -> None:
    cache = account.folder("builds")
    builds = build_variants(ROOT, VARIANTS, cache, 600, len(os.sched_getaffinity(0)), lambda _: None)
    print(f"\n{ROWS} rows x {KEYS} keys: ms a CTA, ns a warp instruction, rest; {CTAS} CTAs on one and two threads: ms")
    print(f"{'kernel':22} {'checks on':>21} {'off':>21} {'1 thread':>10} {'2 threads':>10}")
    for build in builds:
        if build.error is not None:
            raise RuntimeError(f"{build.variant.name}: {build.error}")
        ptx = Path(build.ptx)
        on, off = (cost(ptx, build.variant, 1, checks, 1, repeat, sums) for checks in (True, False))
        one, two = (cost(ptx, build.variant, CTAS, True, threads, repeat, sums) for threads in (1, 2))
        columns = " ".join(f"{1e3 * c.thread_seconds:9.2f} {c.nanoseconds:6.0f} {c.rest:4.0f}" for c in (on, off))
        print(f"{build.variant.name:22} {columns} {1e3 * one.seconds:10.1f} {1e3 * two.seconds:10.1f}", flush=True)


def print_thirdparty(repeat: int, sums: MmaSums) -> None:
    print("\nkernels of Triton and CuTe DSL, checks on: warp instructions, MMAs, ms, ns a warp instruction, rest")
    for name in NAMES:
        stats = [execute(name, Device(profile="lenient", mma_sums=sums))[0].stats for _ in range(repeat)]
        c = best_of(map(_cost_of, stats))
        counts = f"{c.warp_instructions:8.0f} {stats[0]['mma']:5.0f}"
        print(f"{name:26} {counts} {1e3 * c.thread_seconds:9.2f} {c.nanoseconds:6.0f} {c.rest:4.0f}", flush=True)


def matrix_seconds(cores: Sequence[int]) -> float:
    """Wall time of the matrix's default suite on these cores, the kernels built."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fmha", "run-matrix", "--results", folder]
        start = time.monotonic()
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        seconds = time.monotonic() - start
    if ended.returncode:
        raise RuntimeError(f"the matrix ends with exit code {ended.returncode}: {ended.stderr[-500:]}")
    return seconds


def print_matrix() -> None:
    cores = sorted(os.sched_getaffinity(0))
    print("\nthe matrix's default suite, kernels built: seconds of wall time")
    for n in (1, 2):
        if n <= len(cores):
            print(f"{n} core{'s' if n > 1 else ''}: {matrix_seconds(cores[:n]):.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.attention_speed", description=__doc__)
    parser.add_argument("--repeat", type=int, default=20, help="launches, of which the best counts")
    parser.add_argument("--mma-sums", choices=MMA_SUMS, default="fast", help="of the kernels; the matrix has its own")
    options = parser.parse_args()
    print(describe_host())
    print_kernels(options.repeat, options.mma_sums)
    print_thirdparty(options.repeat, options.mma_sums)
    print_matrix()
    return 0


if __name__ == "__main__":
    sys.exit(main())
