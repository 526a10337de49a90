"""Adapters that tests write down: kernels of one's own as files, asked in processes of their own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from fmha.harness.worker.subjects.adapter import Adapter

# y = 2 x of so many numbers, by a kernel in twice.cu.
TWICE = """
import numpy as np
from fmha import Build, CallableKernel, Case, Field, Kernel, Launch, Output, Struct, from_bf16, to_bf16


class Twice(Kernel):
    source = "twice.cu"
    fields = (Field("size"),)

    def build(self, case, arch):
        return Build("twice")

    def inputs(self, case, random):
        return {"x": random.standard_normal(case.size).astype(np.float32)}

    def outputs(self, case):
        return {"y": Output((case.size,))}

    def launches(self, case):
        return [Launch((1, 1, 1), (32, 1, 1), ["x", "y"])] * 2

    def reference(self, case, inputs):
        return {"y": 2.0 * inputs["x"].astype(np.float64)}
"""
# The same in bf16, called.
CALLED = """
import numpy as np
from fmha import CallableKernel, Field, Output, from_bf16, to_bf16


class Twice(CallableKernel):
    fields = (Field("size"),)

    def inputs(self, case, random):
        return {"x": to_bf16(random.standard_normal(case.size))}

    def outputs(self, case):
        return {"y": Output((case.size,), "bf16")}

    def reference(self, case, inputs):
        return {"y": 2 * from_bf16(inputs["x"])}

    def call(self, case, tensors):
        return lambda: {"y": tensors["x"].mul_(2)}
"""


def adapter_of(folder: Path, text: str, more: str = "", *, limit: float = 60.0, **attributes: Any) -> Adapter:
    """The class Twice of `text`, with methods or attributes of `more`, or others of `attributes`, in `folder`."""
    body = textwrap.indent(textwrap.dedent(more), "    ")
    body += "".join(f"    {name} = {value!r}\n" for name, value in attributes.items())
    (folder / "adapter.py").write_text(f"{text}\n{body}")
    (folder / "twice.cu").write_text("// nothing is compiled\n")
    return Adapter(folder, "adapter.py:Twice", "twice", limit_seconds=limit)
