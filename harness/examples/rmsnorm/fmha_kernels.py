"""What fmha has to know of the kernel in rmsnorm.cu. matrix.yaml names this class."""

from collections.abc import Mapping

import numpy as np

from fmha import Build, Case, Field, Kernel, Launch, Output, from_bf16, to_bf16

EPSILON = 1e-5


class RmsNorm(Kernel):
    """y = x / sqrt(mean(x^2) + epsilon) * weight, over the columns of each row."""

    source = "rmsnorm.cu"
    fields = (Field("rows"), Field("columns"), Field("threads", default=128, least=32, most=1024))

    def fault(self, case: Case) -> str | None:
        return "threads must be a multiple of 32" if case.threads % 32 else None

    def build(self, case: Case, arch: str) -> Build:
        return Build("rmsnorm", {"THREADS": case.threads})

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "x": to_bf16(random.standard_normal((case.rows, case.columns))),
            "weight": random.standard_normal(case.columns).astype(np.float32),
        }

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"y": Output((case.rows, case.columns), "f32")}

    def launches(self, case: Case) -> list[Launch]:
        return [Launch((case.rows, 1, 1), (case.threads, 1, 1), ["x", "weight", "y", case.columns, EPSILON])]

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = from_bf16(inputs["x"])
        scale = 1.0 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + EPSILON)
        return {"y": x * scale * inputs["weight"].astype(np.float64)}
