"""Adapters of kernels that change what they are given."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fmha import Build, Field, Kernel, Launch, Output, from_dtype, to_dtype


class Ours(Kernel):
    source = "kernels.cu"
    fields = (Field("n"),)

    def build(self, case, arch):
        return Build(type(self).__name__.lower())


class Rope(Ours):
    HEADS, DIM = 2, 16

    def inputs(self, case, random):
        x = random.standard_normal((case.n, self.HEADS, self.DIM), np.float32)
        return {"x": x, "angles": random.random((case.n, self.DIM // 2), np.float32)}

    def outputs(self, case):
        return {"x": Output((case.n, self.HEADS, self.DIM), first="input")}

    def launches(self, case):
        return [Launch((case.n, 1, 1), (32, 1, 1), ["x", "angles", self.HEADS, self.DIM])]

    def reference(self, case, inputs):
        x, angles = inputs["x"].astype(np.float64), inputs["angles"].astype(np.float64)[:, None, :]
        a, b = np.split(x, 2, axis=-1)
        c, s = np.cos(angles), np.sin(angles)
        return {"x": np.concatenate([a * c - b * s, a * s + b * c], axis=-1)}


class AdamW(Ours):
    def inputs(self, case, random):
        p, m, g = random.standard_normal((3, case.n), np.float32)
        return {"p": p, "m": m, "v": random.random(case.n, np.float32), "g": g}

    def outputs(self, case):
        return {name: Output((case.n,), first="input") for name in "pmv"}

    def launches(self, case):
        return [Launch((-(-case.n // 64), 1, 1), (64, 1, 1), ["p", "m", "v", "g", case.n, 0.01, 0.1, 3])]

    def reference(self, case, inputs):
        p, m, v, g = (inputs[name].astype(np.float64) for name in "pmvg")
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.999**3)) + 1e-8)
        return {"p": p - 0.01 * (step + 0.1 * p), "m": m, "v": v}


class Residual(Ours):
    fields = (Field("n"), Field("dtype", choices=("f32", "bf16"), default="f32"))

    def build(self, case, arch):
        return Build("residual::add<__nv_bfloat16>" if case.dtype == "bf16" else "add<float>")

    def inputs(self, case, random):
        kind = ml_dtypes.bfloat16 if case.dtype == "bf16" else np.float32
        return {name: random.standard_normal(case.n).astype(kind) for name in "xy"}

    def outputs(self, case):
        return {"x": Output((case.n,), case.dtype, first="input")}

    def launches(self, case):
        return [Launch((-(-case.n // 64), 1, 1), (64, 1, 1), ["x", "y", case.n])]

    def reference(self, case, inputs):
        return {"x": inputs["x"].astype(np.float64) + inputs["y"].astype(np.float64)}


class Gemm(Ours):
    def build(self, case, arch):
        return Build("gemm<16>")

    def inputs(self, case, random):
        shapes = {"a": (case.n, 16), "b": (16, 32), "c": (case.n, 32)}
        return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}

    def outputs(self, case):
        return {"c": Output((case.n, 32), first="input")}

    def launches(self, case):
        return [Launch((case.n, 1, 1), (32, 1, 1), ["a", "b", "c", 32, 0.5])]

    def reference(self, case, inputs):
        a, b, c = (inputs[name].astype(np.float64) for name in "abc")
        return {"c": a @ b + 0.5 * c}


class Histogram(Ours):
    def inputs(self, case, random):
        return {"x": random.integers(0, 256, case.n, np.uint8)}

    def outputs(self, case):
        return {"bins": Output((256,), "u32", first="zeros"), "total": Output((1,), "i64", first="zeros")}

    def launches(self, case):
        return [Launch((-(-case.n // 64), 1, 1), (64, 1, 1), ["x", "bins", "total", case.n])]

    def reference(self, case, inputs):
        return {"bins": np.bincount(inputs["x"], minlength=256), "total": [inputs["x"].sum(dtype=np.int64)]}


class Quantise(Ours):
    COLUMNS = 96

    def inputs(self, case, random):
        return {"x": to_dtype(random.standard_normal((case.n, self.COLUMNS)), "bf16")}

    def outputs(self, case):
        return {"q": Output((case.n, self.COLUMNS), "e4m3"), "scale": Output((case.n,))}

    def launches(self, case):
        return [Launch((case.n, 1, 1), (32, 1, 1), ["x", "q", "scale", self.COLUMNS])]

    def reference(self, case, inputs):
        x = from_dtype(inputs["x"], "bf16")
        scale = (np.abs(x).max(1).astype(np.float32) / np.float32(448)).astype(np.float64)
        return {"q": from_dtype(to_dtype(x / scale[:, None], "e4m3", saturate=True), "e4m3"), "scale": scale}
