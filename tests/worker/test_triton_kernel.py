"""Kernels of Triton's as they are written: decorators, packages, helpers, and what the JIT takes of numbers."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fmha.harness.judge.case import Case, Field, parse_case
from fmha.harness.triton_kernel import TritonKernel
from fmha.harness.worker.subjects.kernel import Output
from fmha.harness.worker.subjects.repository_modules import module_of

pytestmark = pytest.mark.triton

SCALE = """
import triton
import triton.language as tl
from ours.ops.helpers import twice


def zero_it(args):
    args["seen"].zero_()


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None})
@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 1024}, num_warps=1),
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 128}, num_warps=4, pre_hook=zero_it),
    ],
    key=["n"],
    prune_configs_by={"early_config_prune": lambda configs, named, **given: configs[1:] if given["n"] > 1 else configs},
)
@triton.jit
def scale(x, bias, seen, n, stride, factor, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 1024)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * stride, mask=at < n)
    if HAS_BIAS:
        value += tl.load(bias + at, mask=at < n)
    tl.store(x + at * stride, twice(value) * factor, mask=at < n)
"""


class Scale(TritonKernel):
    source = "src/ours/ops/scale.py"
    name = "scale"
    bare = ("ours",)
    fields: ClassVar[tuple[Field, ...]] = (
        Field("n"),
        Field("stride"),
        Field("bias", choices=("no", "yes"), default="no"),
    )
    signature: ClassVar = {"x": "*fp32", "bias": "*fp32", "seen": "*i32"}

    def constants(self, case: Case) -> Mapping[str, Any]:
        return {}

    def grid(self, case: Case) -> tuple[int, int, int]:
        return -(-case.n // self.meta(case)["BLOCK"]), 1, 1

    def arguments(self, case: Case) -> Mapping[str, Any]:
        bias = "bias" if case.bias == "yes" else None
        return {"x": "x", "bias": bias, "seen": "seen", "n": case.n, "stride": case.stride, "factor": 0.5}

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, Any]:
        return {"x": random.random(case.n * case.stride, np.float32), "bias": random.random(case.n, np.float32)}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"x": Output((case.n * case.stride,), first="input"), "seen": Output((1,), "i32", first="zeros")}

    def reference(self, case: Case, inputs: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


class Chosen(Scale):
    fields: ClassVar[tuple[Field, ...]] = (*Scale.fields, Field("choice", least=0))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package below src/ whose own `__init__.py` cannot be run here, with a helper beside the kernel."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    ops = tmp_path / "src/ours/ops"
    ops.mkdir(parents=True)
    (ops.parent / "__init__.py").write_text("raise ImportError('this needs a GPU')\n")
    (ops / "__init__.py").write_text("")
    (ops / "scale.py").write_text(SCALE)
    (ops / "helpers.py").write_text("import triton\n\n\n@triton.jit\ndef twice(x):\n    return x + x\n")
    path, modules = sys.path[:], set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("ours", "_fmha_kernel")):
            del sys.modules[name]


def made(kernel: type[TritonKernel], root: Path) -> TritonKernel:
    found = kernel()
    found.root = root
    return found


def case(kernel: TritonKernel, values: str) -> Case:
    return parse_case("scale", kernel.fields, f"scale_{values}")


def test_tritons_own_pick_is_the_first_that_is_left_and_fits(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = made(Scale, root)
    built = kernel.build(case(kernel, "n100_stride3"), "sm_90a")
    assert dict(built.defines) | {"BLOCK": "64", "HAS_BIAS": "False", "autotune": "1_of_3"} == dict(built.defines)
    said = capsys.readouterr().out
    assert "autotune has 3 configurations; number 1 is the first that fits: BLOCK=64 num_warps=" in said
    (launch,) = kernel.launches(case(kernel, "n100_stride3"))
    assert (launch.grid, launch.block) == ((2, 1, 1), (64, 1, 1))


def test_a_choice_is_an_axis(root: Path) -> None:
    kernel = made(Chosen, root)
    one, two = (kernel.build(case(kernel, f"n100_stride3_choice{number}"), "sm_90a") for number in (1, 2))
    assert (one.defines["BLOCK"], two.defines["BLOCK"]) == ("64", "128")
    (launch,) = kernel.launches(case(kernel, "n100_stride3_choice2"))
    assert launch.block == (128, 1, 1)
    with pytest.raises(ValueError, match="choice is 3; the autotuner has 3 configurations, from 0 on"):
        kernel.compile(case(kernel, "n100_stride3_choice3"), "sm_90a")
    with pytest.raises(Exception, match="static_assert"):
        kernel.compile(case(kernel, "n100_stride3_choice0"), "sm_90a")


def test_a_pre_hook_that_zeroes_asks_for_zeros(root: Path) -> None:
    class Poisoned(Chosen):
        def outputs(self, case: Case) -> dict[str, Output]:
            return {"seen": Output((1,), "i32")}

    kernel = made(Poisoned, root)
    with pytest.raises(ValueError, match="pre_hook zeroes seen: declare it as Output"):
        kernel.compile(case(kernel, "n100_stride3_choice2"), "sm_90a")


def test_numbers_are_specialised_as_by_the_jit(root: Path) -> None:
    """1 is compiled in and is no argument; what 16 divides is told; the rest of one type shares a build."""
    kernel = made(Scale, root)

    def built(values: str) -> tuple[Mapping[str, Any], int]:
        item = case(kernel, values)
        (launch,) = kernel.launches(item)
        return kernel.build(item, "sm_90a").defines, len(launch.args)

    plain, taken = built("n100_stride3")
    assert built("n101_stride5") == (plain, taken)
    assert "stride" not in plain
    one, fewer = built("n100_stride1")
    assert (one["stride"], fewer) == ("1", taken - 1)
    assert built("n112_stride3")[0]["n"] == "div16"
    assert built("n100_stride3_bias-yes")[1] == taken + 1  # what was None is a pointer
    assert plain["bias"] == "None"


@pytest.mark.torch
@pytest.mark.parametrize("values", ["n100_stride3", "n128_stride1_bias-yes", "n1_stride16"])
def test_the_ptx_is_what_a_launch_compiles(root: Path, values: str) -> None:
    """Beside the same launch in a script, by Triton's own launcher and tensors of torch's."""
    import torch

    import fmha

    kernel = made(Scale, root)
    item = case(kernel, values)
    judged = kernel.compile(item, "sm_90a")
    with fmha.emulated(arch="sm_90a"):
        x = torch.ones(item.n * item.stride, device="cuda")
        bias = torch.ones(item.n, device="cuda") if item.bias == "yes" else None
        seen = torch.zeros(1, dtype=torch.int32, device="cuda")
        function = module_of(root, kernel.source, kernel.bare).scale
        launched = function[lambda meta: (-(-item.n // meta["BLOCK"]),)](
            x, bias, seen, n=item.n, stride=item.stride, factor=0.5
        )

    def same(text: str) -> str:
        return re.sub(r"(?m)^\.version.*$|^\s*\.section \.debug_(?s:.*)", "", text)

    assert same(judged) == same(launched.asm["ptx"])


def test_what_decorators_choose_is_not_given_by_halves(root: Path) -> None:
    class Half(Scale):
        def constants(self, case: Case) -> Mapping[str, Any]:
            return {"num_warps": 1}

    class Whole(Scale):
        def constants(self, case: Case) -> Mapping[str, Any]:
            return {"BLOCK": 32, "num_warps": 1}

    half, whole = made(Half, root), made(Whole, root)
    with pytest.raises(
        ValueError, match=r"num_warps is chosen by @triton.autotune: leave it out of constants, or give BLOCK"
    ):
        half.compile(case(half, "n100_stride3"), "sm_90a")
    assert "autotune" not in whole.build(case(whole, "n100_stride3"), "sm_90a").defines
    assert whole.launches(case(whole, "n100_stride3"))[0].grid == (4, 1, 1)


def test_a_buffer_has_a_type(root: Path) -> None:
    class Untyped(Scale):
        signature: ClassVar = {"x": "*fp23", "seen": "*i32"}

    kernel = made(Untyped, root)
    with pytest.raises(ValueError, match=r"x is the buffer 'x', and signature gives it \*fp23: \*i1, "):
        kernel.compile(case(kernel, "n100_stride3"), "sm_90a")


def test_a_package_is_the_repositorys(root: Path, tmp_path: Path) -> None:
    """Not one of the same name that was imported before, as from what is installed."""
    other = tmp_path / "other"
    (other / "ours/ops").mkdir(parents=True)
    for name in ("__init__.py", "ops/__init__.py", "ops/scale.py"):
        (other / "ours" / name).write_text("")
    sys.path.insert(0, str(other))
    importlib.import_module("ours.ops.scale")
    kernel = made(Scale, root)
    with pytest.raises(ValueError, match=r"and not src/ours/ops/scale.py: it was imported before"):
        kernel.compile(case(kernel, "n100_stride3"), "sm_90a")


def test_a_bare_package_that_is_not_there(root: Path) -> None:
    with pytest.raises(ValueError, match="bare has theirs, and there is no folder src/theirs"):
        module_of(root, Scale.source, ("theirs",))
