"""What fmha has to know of the kernel in gemm.py. matrix.yaml names this class."""

import re
import runpy
import tempfile
from collections.abc import Mapping

import numpy as np

from fmha import Build, Case, Field, Kernel, Launch, Output, from_bf16, to_bf16


class CuteGemm(Kernel):
    """C = A B^T: A [m, k] and B [n, k] in bf16, C [m, n] in float32. A CTA has `rows` by `columns` of C."""

    source = "gemm.py"
    fields = (
        Field("m"),
        Field("n"),
        Field("k"),
        Field("rows", default=64, least=32, most=128),
        Field("columns", default=64, least=32, most=128),
    )

    def fault(self, case: Case) -> str | None:
        if case.k % 8:
            return "k must be a multiple of 8: 16 bytes are copied at once"
        return "rows and columns must be multiples of 32" if case.rows % 32 or case.columns % 32 else None

    def build(self, case: Case, arch: str) -> Build:
        return Build("gemm", {"ROWS": case.rows, "COLUMNS": case.columns}, 2 * 40 * (case.rows + case.columns))

    def compile(self, case: Case, arch: str) -> str:
        """The DSL compiles the function that launches, for arguments of these types; we take the kernel's PTX."""
        import cutlass
        from cutlass import cute
        from cutlass.cute.runtime import make_ptr

        launch = runpy.run_path(str(self.root / self.source))["launch"]
        bf16, f32 = (make_ptr(kind, 0, cute.AddressSpace.gmem, 16) for kind in (cutlass.BFloat16, cutlass.Float32))
        with tempfile.TemporaryDirectory() as folder:
            options = f"--gpu-arch {arch} --generate-line-info --keep-ptx --dump-dir {folder}"
            made = cute.compile(launch, bf16, bf16, f32, 1, 1, 1, case.rows, case.columns, options=options)
            return re.sub(r"\bkernel_cutlass_gemm_\w+?_0\b", "gemm", made.__ptx__)

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "a": to_bf16(random.standard_normal((case.m, case.k))),
            "b": to_bf16(random.standard_normal((case.n, case.k))),
        }

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"c": Output((case.m, case.n), "f32")}

    def launches(self, case: Case) -> list[Launch]:
        grid = (-(-case.m // case.rows), -(-case.n // case.columns), 1)
        shared = self.build(case, "").shared_bytes
        return [Launch(grid, (128, 1, 1), ["a", "b", "c", case.m, case.n, case.k], shared)]

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"c": from_bf16(inputs["a"]) @ from_bf16(inputs["b"]).T}
