"""The sm_100a attention kernel of this repository as anybody's kernel, with an adapter: test_own_kernels.py."""

from __future__ import annotations

import math

import numpy as np

from fmha import Build, Field, Kernel, Launch, Output, Struct, TensorMap, from_bf16, to_bf16

HEADS = 4
ROWS, KEYS, STAGES = 128, 128, 4  # kernel/include/fmha_launch.h, of head_dim 64 and 128
MAPS, POINTERS, NUMBERS = ("q", "k", "v"), 640, 744  # offsets of FmhaParams, kernel/include/fmha_params.h
NORMALISE, UNLIMITED = 1, -1


class Attention(Kernel):
    source = "kernel/sm100/fmha_fwd.cu"
    sources = ("kernel",)
    flags = ("-std=c++17", "-O3", "-lineinfo", "-Ikernel/include", "-Ikernel")
    archs = ("sm_100a",)
    fields = (Field("head_dim"), Field("t"), Field("keys"), Field("splits", default=1))

    def build(self, case, arch):
        defines = {"FMHA_HEAD_DIM": case.head_dim, "FMHA_P_IN_SHARED": 0, "FMHA_ENTRY": "forward"}
        shared = 1024 + (ROWS + STAGES * KEYS) * case.head_dim * 2 + 128
        return Build("forward", defines, shared, others=("fmha_combine",))

    def inputs(self, case, random):
        def drawn(rows):
            return to_bf16(random.standard_normal((rows, case.head_dim), dtype=np.float32))

        return {"q": drawn(case.t * HEADS), "k": drawn(case.keys), "v": drawn(case.keys)}

    def outputs(self, case):
        rows = case.t * HEADS
        return {"o": Output((rows, case.head_dim))} | {name: Output((rows,)) for name in ("row_max", "row_sum", "lse")}

    def scratch(self, case):
        if case.splits == 1:
            return {}
        rows = case.splits * case.t * HEADS
        one = {name: Output((rows,)) for name in ("partial_max", "partial_sum")}
        return {"partial_o": Output((rows, case.head_dim)), **one}

    def launches(self, case):
        params, rows = self.params(case), case.t * HEADS
        shared = self.build(case, "sm_100a").shared_bytes
        made = [Launch((-(-rows // ROWS), case.splits, 1), (192, 1, 1), [params], shared)]
        if case.splits > 1:
            made.append(Launch((-(-rows // 4), 1, 1), (128, 1, 1), [params], entry="fmha_combine"))
        return made

    def params(self, case):
        at = {}
        for place, (name, rows, box) in enumerate(
            (("q", case.t * HEADS, ROWS), ("k", case.keys, KEYS), ("v", case.keys, KEYS))
        ):
            size = 2 * case.head_dim
            dims, strides = (case.head_dim, rows, 1), (size, rows * size)
            at[128 * place] = TensorMap(name, "bf16", dims, strides, (64, box, 1), "128B")
        for place, name in enumerate((*self.outputs(case), *self.scratch(case))):
            at[POINTERS + 8 * place] = name
        numbers = (1, case.t, HEADS, case.keys, 0, 0, case.splits, UNLIMITED, UNLIMITED)
        at |= {NUMBERS + 4 * place: number for place, number in enumerate(numbers)}
        at |= {780: 1 / math.sqrt(case.head_dim), 784: NORMALISE, 788: case.head_dim}
        return Struct(896, at)

    def reference(self, case, inputs):
        q, k, v = (from_bf16(inputs[name]).astype(np.float64) for name in ("q", "k", "v"))
        s = q @ k.T / math.sqrt(case.head_dim)
        largest = s.max(axis=1)
        p = np.exp(s - largest[:, None])
        total = p.sum(axis=1)
        return {"o": p @ v / total[:, None], "row_max": largest, "row_sum": total, "lse": largest + np.log(total)}
