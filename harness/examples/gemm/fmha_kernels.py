"""What fmha has to know of the kernel in gemm.cu. matrix.yaml names this class."""

from collections.abc import Mapping

import numpy as np

from fmha import Build, Case, Field, Kernel, Launch, Output, from_bf16, to_bf16


class Gemm(Kernel):
    """C = A B^T: A [m, k] and B [n, k] in bf16, C [m, n] in float32."""

    source = "gemm.cu"
    fields = (Field("m"), Field("n"), Field("k"), Field("tiles", default=4, most=8))

    def build(self, case: Case, arch: str) -> Build:
        return Build("gemm", {"N_TILES": case.tiles})

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "a": to_bf16(random.standard_normal((case.m, case.k))),
            "b": to_bf16(random.standard_normal((case.n, case.k))),
        }

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"c": Output((case.m, case.n), "f32")}

    def launches(self, case: Case) -> list[Launch]:
        grid = (-(-case.m // 64), -(-case.n // (8 * case.tiles)), 1)
        return [Launch(grid, (128, 1, 1), ["a", "b", "c", case.m, case.n, case.k])]

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"c": from_bf16(inputs["a"]) @ from_bf16(inputs["b"]).T}
