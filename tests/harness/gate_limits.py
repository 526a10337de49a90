"""What rounding alone costs: the numbers that a faultless kernel reaches, and with them the limits in matrix.yaml.

    python -m tests.harness.gate_limits --seeds 200
    python -m tests.harness.gate_limits --seeds 200 --output bf16
    python -m tests.harness.gate_limits --seeds 50 --suite extreme
    python -m tests.harness.gate_limits --seeds 25 --suite cover --filter data=steps

Runs a suite through attention as the kernel computes it, in NumPy: S accumulated in float32, 16 elements of head_dim at
a time and truncated each time, as tensor cores do; O in float32, 128 keys at a time; P rounded to bf16 before PV, and
summed before rounding. Prints the worst of each metric.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from fmha.harness.config import load, parse_filter
from fmha.harness.config.matrix_document import GatesSection
from fmha.harness.contract.device import LaunchReport
from fmha.harness.judge.configuration import Configuration, Output
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16
from fmha.harness.judge.oracle.inputs import Inputs, make_inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.outputs import Outputs
from fmha.harness.judge.oracle.reference import denominator, keys_seen, of_kv_head, reference

TILE = 128
MMA_K = 16
PER_HEAD = ("o", "row_max", "row_sum", "lse")  # of Outputs
Array = NDArray[np.float32]


def faultless(configuration: Configuration, inputs: Inputs) -> Outputs:
    """The outputs of a kernel whose only errors are the roundings that its design has."""
    if inputs.k.ndim == 4:  # query heads follow one another as the K/V heads do that they attend
        of_each = [faultless(configuration, of_kv_head(inputs, head)) for head in range(inputs.k.shape[2])]
        named = {name: np.concatenate([getattr(part, name) for part in of_each], axis=2) for name in PER_HEAD}
        return replace(of_each[0], **named)
    batch, t, heads, head_dim = inputs.q.shape
    rows = (batch, t, heads)
    o = np.zeros((*rows, head_dim), np.float32)
    row_max = np.full(rows, -np.inf, np.float32)
    row_sum = np.zeros(rows, np.float32)
    for b, i in np.ndindex(batch, t):
        if inputs.q_lens is not None and i >= inputs.q_lens[b]:
            continue
        q = from_bf16(inputs.q[b, i]).astype(np.float32)
        k, v = (values.astype(np.float32) for values in keys_seen(inputs, b, i))
        o[b, i], row_max[b, i], row_sum[b, i] = _one_query(q, k, v, np.float32(inputs.scale * np.log2(np.e)))
    natural = row_max * np.float32(np.log(2))
    with np.errstate(divide="ignore"):
        lse = natural + np.log(row_sum)
    if configuration.output != "unnormalised":
        with np.errstate(over="ignore"):
            o = o / denominator(natural, row_sum, inputs.sink).astype(np.float32)[..., np.newaxis]
    return Outputs(round_to_bf16(o) if configuration.output == "bf16" else o, natural, row_sum, lse, LaunchReport())


def _one_query(q: Array, k: Array, v: Array, scale: np.float32) -> tuple[Array, Array, Array]:
    """O, row max in base 2 and row sum of [heads, head_dim] queries that see all of k, a tile at a time."""
    o = np.zeros((len(q), v.shape[1]), np.float32)
    row_max = np.full(len(q), -np.inf, np.float32)
    row_sum = np.zeros(len(q), np.float32)
    for start in range(0, len(k), TILE):
        keys = slice(start, start + TILE)
        scores = _scores(q, k[keys]) * scale
        peak = np.maximum(row_max, scores.max(axis=1))
        p = np.exp2(scores - peak[:, np.newaxis])
        rescale = np.exp2(row_max - peak)
        row_sum = row_sum * rescale + p.sum(axis=1)
        rounded = from_bf16(round_to_bf16(p)).astype(np.float32)
        o = o * rescale[:, np.newaxis] + rounded @ v[keys]
        row_max = peak
    return o, row_max, row_sum


def _scores(q: Array, k: Array) -> Array:
    """q k^T in float32, rounded towards zero after every instruction's 16 elements."""
    total = np.zeros((len(q), len(k)), np.float32)
    for start in range(0, q.shape[1], MMA_K):
        part = slice(start, start + MMA_K)
        exact = total + q[:, part].astype(np.float64) @ k[:, part].T.astype(np.float64)
        total = exact.astype(np.float32)
        total = np.where(np.abs(total) > np.abs(exact), np.nextafter(total, np.float32(0)), total)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--suite", default="seed")
    parser.add_argument("--filter", action="append", default=[])
    parser.add_argument("--output", choices=get_args(Output), help="in place of what the suite says")
    options = parser.parse_args()
    worst: dict[tuple[str, int], dict[str, float]] = {}
    matrix = load(Path(__file__).parents[2])
    for seed in range(options.seeds):
        suite = matrix.configurations(options.suite, seed)
        for configuration in parse_filter(options.filter).select(suite, options.suite):
            if options.output:
                configuration = replace(configuration, output=options.output)
            row = worst.setdefault((nature(configuration), configuration.head_dim), {"cosine": 1.0})
            inputs = make_inputs(seed, configuration)
            numbers = asdict(measure(configuration, faultless(configuration, inputs), reference(inputs)))
            for name in METRICS:
                pick = min if name == "cosine" else max
                row[name] = pick(row.get(name, 0.0), numbers[name])
    print("nature   head_dim  1-cosine  " + "  ".join(list(METRICS)[1:]))
    for (kind, head_dim), row in sorted(worst.items()):
        figures = [f"{row[name]:{len(name)}.1e}" for name in list(METRICS)[1:]]
        print(f"{kind:8} {head_dim:8}  {1 - row['cosine']:8.1e}  " + "  ".join(figures))


def nature(configuration: Configuration) -> str:
    """Which of the gates' sections a configuration falls under."""
    named = [word for word in (configuration.data, configuration.output) if word in GatesSection.natures()]
    return (*named, "default")[0]


if __name__ == "__main__":
    main()
