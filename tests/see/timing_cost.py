"""What it costs to keep time: `python -m tests.see.timing_cost`.

A prefill CTA of 128 rows over 8192 keys at head_dim 128, of either architecture's kernel, on one core: processor time
of the launch alone, and of the launch with a recording and the model's answer, both with the copies of inputs and
outputs; the best of five.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fmha.emulator.timing.architecture import NAMES, architecture
from fmha.harness import account
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.launch.run_attention import run_attention

ROOT = Path(__file__).resolve().parents[2]
CASE = parse_id("hd128_t128_sk8192_out-bf16")
TIMES = 5


def main() -> None:
    for gpu in NAMES:
        arch = architecture(gpu).arch
        variant = variant_for(CASE, arch)
        assert not isinstance(variant, str), variant
        (built,) = build_variants(ROOT, [variant], account.folder("builds"), 300.0, 1, lambda _: None)
        if built.error is not None:
            sys.exit(f"{variant.name}: {built.error}")
        inputs = make_inputs(0, CASE)
        took: dict[bool, list[float]] = {False: [], True: []}
        for timed in (False, True) * TIMES:
            device = EmulatorDevice(0, "realistic", checks=False, threads=1, timing=gpu if timed else None)
            module = device.load(Path(built.ptx))
            before = time.process_time()
            run_attention(device, module, variant, CASE, inputs)
            for _, timing in device.timings:
                timing.modelled()
            took[timed].append(time.process_time() - before)
        plain, on = min(took[False]), min(took[True])
        print(f"{gpu}, {arch}: {plain * 1e3:.0f} ms without, {on * 1e3:.0f} ms with timing: {on / plain:.2f} times")


if __name__ == "__main__":
    main()
