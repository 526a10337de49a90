"""How the mutation tool runs our forward kernels: the module's entry says which variant it is.

Three problems each: separate K and V in enough tiles for every ring and buffer to come round twice, with logits so
large that O is rescaled; a window and a gathered index list, again with separate K and V; the same with K = V. Two of
the kernel for many rows.
"""

from __future__ import annotations

import functools

from fmha.emulator import Module
from fmha.emulator.device import Schedule
from fmha.emulator.mutation import MutantTrial
from fmha.harness.contract.protocol import Configuration, Variant
from fmha.harness.judge.oracle.inputs import Inputs, make_inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.reference import Reference, reference
from fmha.harness.kernel_side.variants import VARIANTS, goes_through_row_tiles
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.launch.run_attention import run_attention

BY_ENTRY = {variant.entry: variant for variant in VARIANTS}
MAX_RELATIVE_L2 = 5e-3  # P and the inputs are bf16
MAX_LSE_ERROR = 1e-3  # logits are in the hundreds


def configurations(variant: Variant) -> tuple[Configuration, ...]:
    head_dim, keys = variant.head_dim, variant.shape.keys * variant.shape.ctas
    if goes_through_row_tiles(variant):  # it knows no lists; the second has more row tiles than CTAs
        return (
            Configuration(head_dim, t=300, s_k=5 * keys - 12, mask="causal", data="extreme"),
            Configuration(head_dim, t=3, s_k=keys + 20, batch=160, mask="window", window=keys, kv_lens="ragged"),
        )
    return (
        Configuration(head_dim, t=128, s_k=5 * keys - 12, mask="causal", data="extreme"),
        Configuration(
            head_dim, t=1, heads=variant.shape.rows, s_k=3 * keys, mask="window", window=keys + 20,
            topk=2 * keys + 10, s_sparse=64, sparse_indices="holes",
        ),
        Configuration(
            head_dim, t=1, heads=variant.shape.rows, s_k=keys, kv="shared", topk=5 * keys + 10, s_sparse=64,
            sparse_indices="holes",
        ),
    )  # fmt: skip


@functools.lru_cache
def _problem(configuration: Configuration) -> tuple[Inputs, Reference]:
    inputs = make_inputs(0, configuration)
    return inputs, reference(inputs)


def launch(module: Module, schedule: Schedule, seed: int) -> MutantTrial:
    variant = next(BY_ENTRY[entry] for entry in module.entries if entry in BY_ENTRY)
    rules: list[str] = []
    right = True
    for configuration in configurations(variant):
        inputs, expected = _problem(configuration)
        outputs = run_attention(EmulatorDevice(seed, schedule), module, variant, configuration, inputs)
        rules += [f.rule for f in outputs.report.findings if f.severity == "error"]
        if rules:
            break
        m = measure(configuration, outputs, expected)
        right = right and m.relative_l2 < MAX_RELATIVE_L2 and m.lse_error < MAX_LSE_ERROR
        right = right and not m.nonfinite_mismatches and not m.unwritten
    return MutantTrial(tuple(rules), right)
