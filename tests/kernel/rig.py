"""Problems for the forward kernels, run on a device and compared with fmha.harness.judge.oracle.reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import Device
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.inputs import Inputs, SparseArrays, softmax_scale
from fmha.harness.judge.oracle.outputs import POISON, POISON_BF16, Outputs
from fmha.harness.judge.oracle.reference import Reference, reference
from fmha.harness.kernel_side.launch import Call
from fmha.harness.worker.launch.run_attention import run_call

Bits = NDArray[np.uint16]
OF_INPUTS = frozenset(field.name for field in dataclasses.fields(Inputs))
OF_BOTH = OF_INPUTS & frozenset(field.name for field in dataclasses.fields(Call))  # the reference's and the kernel's


@dataclass(frozen=True)
class Problem:
    """What is attended over, and what else of `Call` is not its default, by the names there."""

    inputs: Inputs
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def replace(self, **fields: Any) -> Problem:
        """With other fields of the inputs, and all others of `Call`."""
        of_inputs = {name: fields.pop(name) for name in OF_INPUTS & fields.keys()}
        return Problem(dataclasses.replace(self.inputs, **of_inputs), {**self.asked, **fields})

    @property
    def normalise(self) -> bool:
        return self.call.normalise

    @property
    def output_bf16(self) -> bool:
        return self.call.output_bf16

    @property
    def call(self) -> Call:
        batch, t, heads, head_dim = self.inputs.q.shape
        sparse = self.inputs.sparse
        return Call(
            head_dim=head_dim,
            batch=batch,
            t=t,
            heads=heads,
            s_k=self.inputs.k.shape[1],
            s_sparse=0 if sparse is None else sparse.k.shape[1],
            topk=0 if sparse is None else sparse.indices.shape[2],
            shared_kv=self.inputs.v is None,
            **{name: getattr(self.inputs, name) for name in OF_BOTH},
            **self.asked,
        )


def make_problem(
    head_dim: int,
    t: int,
    s_k: int,
    *,
    heads: int = 1,
    batch: int = 1,
    shared_kv: bool = False,
    s_sparse: int = 0,
    topk: int = 0,
    sparse_lens: NDArray[np.int32] | None = None,
    amplitude: float = 1.0,
    **fields: Any,
) -> Problem:
    """Standard normal tensors (Q times `amplitude`); a tenth of the index list is -1 or out of range."""
    rng = np.random.default_rng([head_dim, t, s_k, heads, batch])

    def normal(*shape: int) -> Bits:
        return round_to_bf16(rng.standard_normal(shape))

    q = round_to_bf16(amplitude * rng.standard_normal((batch, t, heads, head_dim)))
    v = None if shared_kv else normal(batch, s_k, head_dim)
    inputs = Inputs(q, normal(batch, s_k, head_dim), v, softmax_scale(head_dim))
    if topk:
        indices = rng.integers(0, max(s_sparse, 1), (batch, t, topk))
        outside = rng.choice([-1, s_sparse, 2**31 - 1, -(2**31)], indices.shape)
        indices = np.where(rng.random(indices.shape) < 0.1, outside, indices).astype(np.int32)
        rows = (batch, s_sparse, head_dim)
        sparse = SparseArrays(normal(*rows), None if shared_kv else normal(*rows), indices, sparse_lens)
        inputs = dataclasses.replace(inputs, sparse=sparse)
    return Problem(inputs).replace(**fields)


def run(device: Device, artifacts: Mapping[str, Path], variant: Variant, problem: Problem) -> Outputs:
    """Launches `variant`, and its combine kernel when the problem has splits; `artifacts` by variant name."""
    return run_call(device, device.load(artifacts[variant.name]), variant, problem.call, problem.inputs)


def unwritten(outputs: Outputs) -> int:
    """Elements that still hold the poison."""
    words = [array.view(np.uint32) for array in (outputs.row_max, outputs.row_sum, outputs.lse)]
    count = sum(int(np.count_nonzero(word == POISON)) for word in words)
    o = outputs.o
    return count + int(np.count_nonzero(o == POISON_BF16 if o.dtype == np.uint16 else o.view(np.uint32) == POISON))


@dataclass(frozen=True)
class Errors:
    """Of one run: cosine and relative L2 of O over rows that see a key; LSE and row_max absolute, row_sum relative."""

    cosine: float
    relative_l2: float
    lse: float
    row_max: float
    row_sum: float
    nonfinite: int  # elements whose class (finite, infinity, NaN) is not the reference's; elements of empty rows not 0


def errors(got: Outputs, problem: Problem, expected: Reference | None = None) -> Errors:
    expected = expected or reference(problem.inputs)
    expected_o = expected.o if problem.normalise else expected.o_unnormalised
    statistics = (got.row_max, expected.row_max), (got.row_sum, expected.row_sum), (got.lse, expected.lse)
    nonfinite = 0
    for left, right in ((got.o_values, expected_o), *statistics):
        same = np.where(np.isfinite(right), np.isfinite(left), left == right)
        nonfinite += int(np.count_nonzero(~same))
    seen = expected.row_sum > 0
    nonfinite += int(np.count_nonzero(got.o_values[~seen])) + int(np.count_nonzero(got.row_sum[~seen]))
    if not seen.any():
        return Errors(1.0, 0.0, 0.0, 0.0, 0.0, nonfinite)
    a, b = got.o_values[seen].ravel(), expected_o[seen].ravel()
    norm = float(np.linalg.norm(b))
    with np.errstate(all="ignore"):
        (row_max, row_sum, lse) = ((left.astype(np.float64)[seen], right[seen]) for left, right in statistics)
        return Errors(
            cosine=float(a @ b / (np.linalg.norm(a) * norm)) if norm else 1.0,
            relative_l2=float(np.linalg.norm(a - b)) / norm if norm else float(np.linalg.norm(a)),
            lse=float(np.abs(lse[0] - lse[1]).max()),
            row_max=float(np.abs(row_max[0] - row_max[1]).max()),
            row_sum=float(np.abs(row_sum[0] / row_sum[1] - 1).max()),
            nonfinite=nonfinite,
        )
