"""What rounding alone costs: the numbers that a faultless kernel reaches, and with them the limits in matrix.yaml.

    python -m tests.harness.gate_limits --seeds 200

Runs a suite through attention as the kernel computes it, in NumPy: S and O accumulated in float32,
128 keys at a time, P rounded to bf16 before PV and summed before rounding. Prints the worst of each metric.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import numpy as np

from harness.config import load, parse_filter
from harness.worker.bf16 import from_bf16, round_to_bf16
from harness.worker.devices.base import LaunchReport
from harness.worker.inputs import Inputs, make_inputs
from harness.worker.launch import Outputs
from harness.worker.measure import measure
from harness.worker.protocol import Configuration
from harness.worker.reference import reference_for, visible_keys

TILE = 128
METRICS = ("cosine", "relative_l2", "max_error", "lse_error", "row_max_error", "row_sum_error")


def faultless(configuration: Configuration, inputs: Inputs) -> Outputs:
    """The outputs of a kernel whose only errors are the roundings that its design has."""
    q, k, v = (from_bf16(bits).astype(np.float32) for bits in (inputs.q, inputs.k, inputs.v))
    visible = visible_keys(configuration.t, configuration.s_k, configuration.mask, configuration.window)
    scale = np.float32(inputs.scale * np.log2(np.e))
    rows = (configuration.batch, configuration.t)
    o = np.zeros((*rows, configuration.head_dim), np.float32)
    row_max = np.full(rows, -np.inf, np.float32)
    row_sum = np.zeros(rows, np.float32)
    for start in range(0, configuration.s_k, TILE):
        keys = slice(start, start + TILE)
        scores = np.where(visible[:, keys], q @ k[:, keys].swapaxes(1, 2) * scale, np.float32(-np.inf))
        peak = np.maximum(row_max, scores.max(axis=2))
        shift = np.where(np.isneginf(peak), np.float32(0), peak)
        p = np.exp2(scores - shift[..., np.newaxis])
        rescale = np.exp2(row_max - shift)
        row_sum = row_sum * rescale + p.sum(axis=2)
        rounded = from_bf16(round_to_bf16(p)).astype(np.float32)
        o = o * rescale[..., np.newaxis] + rounded @ v[:, keys]
        row_max = peak
    natural = row_max * np.float32(np.log(2))
    return Outputs(o, natural, row_sum, natural + np.log(row_sum), LaunchReport())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--suite", default="seed")
    parser.add_argument("--filter", action="append", default=[])
    options = parser.parse_args()
    worst: dict[int, dict[str, float]] = {}
    suite = load(Path(__file__).parents[2]).suites[options.suite]
    for configuration in parse_filter(options.filter).select(suite, options.suite):
        row = worst.setdefault(configuration.head_dim, {"cosine": 1.0})
        for seed in range(options.seeds):
            inputs = make_inputs(seed, configuration)
            numbers = asdict(measure(faultless(configuration, inputs), reference_for(configuration, inputs)))
            for name in METRICS:
                pick = min if name == "cosine" else max
                row[name] = pick(row.get(name, 0.0), numbers[name])
    print("head_dim  1-cosine  " + "  ".join(METRICS[1:]))
    for head_dim, row in worst.items():
        figures = [f"{row[name]:{len(name)}.1e}" for name in METRICS[1:]]
        print(f"{head_dim:8}  {1 - row['cosine']:8.1e}  " + "  ".join(figures))


if __name__ == "__main__":
    main()
