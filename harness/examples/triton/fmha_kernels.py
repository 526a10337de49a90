"""What fmha has to know of the kernel in attention.py. matrix.yaml names this class."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fmha import Case, Field, Output, TritonKernel, from_bf16, to_bf16

HEADS = 2


class Attention(TritonKernel):
    """o = softmax(q k^T / sqrt(d)) v and lse, the natural logarithm of the softmax's sum, of each head."""

    source = "attention.py"
    name = "attention"
    fields = (
        Field("t"),
        Field("s"),
        Field("d", default=64, least=16, most=128),
        Field("mask", choices=("none", "causal"), default="none"),
    )
    signature: ClassVar = {"q": "*bf16", "k": "*bf16", "v": "*bf16", "o": "*fp32", "lse": "*fp32"}

    def fault(self, case: Case) -> str | None:
        return "d must be a power of two" if case.d & (case.d - 1) else None

    def constants(self, case: Case) -> Mapping[str, Any]:
        return {"BM": 64, "BN": 64, "D": case.d, "CAUSAL": case.mask == "causal", "num_warps": 4, "num_stages": 2}

    def grid(self, case: Case) -> tuple[int, int, int]:
        return -(-case.t // 64), HEADS, 1

    def arguments(self, case: Case) -> Mapping[str, Any]:
        scale = float(case.d) ** -0.5
        return {**{name: name for name in ("q", "k", "v", "o", "lse")}, "T": case.t, "S": case.s, "scale": scale}

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
        rows = {"q": case.t, "k": case.s, "v": case.s}
        return {name: to_bf16(random.standard_normal((HEADS, n, case.d))) for name, n in rows.items()}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"o": Output((HEADS, case.t, case.d)), "lse": Output((HEADS, case.t))}

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        q, k, v = (from_bf16(inputs[name]) for name in ("q", "k", "v"))
        scores = q @ k.transpose(0, 2, 1) * float(case.d) ** -0.5
        if case.mask == "causal":
            scores = np.where(np.arange(case.s)[None, None, :] <= np.arange(case.t)[None, :, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        total = weights.sum(-1)
        return {"o": weights @ v / total[..., None], "lse": np.log(total) + scores.max(-1)}
