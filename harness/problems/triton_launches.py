"""Launches of Triton's kernels by an answer's host code: compiled by Triton's JIT, noted and not run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import util
from typing import Any, Final

import numpy as np
import torch

from fmha.harness.contract.device import SINGLE
from fmha.harness.problems.events import FILLS, LaunchEvent, TorchAnswerError
from fmha.harness.problems.recorder import AnswerRecorder

_FORMS: Final[Mapping[str, str]] = {
    **{f"i{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    "i1": "u1", "u1": "u1", "fp16": "f2", "fp32": "f4", "fp64": "f8",
}  # fmt: skip


class TritonLaunches:
    """`kernel[grid](...)` of what is decorated by Triton, however deep."""

    def __init__(self, arch: str, recorder: AnswerRecorder) -> None:
        self._arch, self._recorder = arch, recorder
        self.ptx: list[str] = []

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Nothing is replaced where Triton is not installed."""
        if util.find_spec("triton") is None:
            yield
            return
        from triton.runtime.jit import KernelInterface

        before = KernelInterface.__getitem__

        def launching(function: Any, grid: Any) -> Any:
            return lambda *args, **kwargs: self._launch(function, grid, args, kwargs)

        KernelInterface.__getitem__ = launching
        try:
            yield
        finally:
            KernelInterface.__getitem__ = before

    def _launch(self, function: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        from fmha.harness.triton_choice import candidates
        from fmha.harness.triton_target import compiled, target

        given = dict(zip(function.arg_names, args, strict=False)) | dict(kwargs)
        mocks = {name: _Stand(item) if isinstance(item, torch.Tensor) else item for name, item in given.items()}
        with target(self._arch), self._recorder.paused():
            chosen = next(iter(candidates(function, mocks, {}, None)))
            made = compiled(chosen.function, chosen.given)
        meta = made.metadata
        sizes = grid(dict(chosen.given)) if callable(grid) else grid
        x, y, z = (*sizes, 1, 1)[:3]
        ctas = getattr(meta, "num_ctas", 1)
        text, entry = self._named(made.asm["ptx"], meta.name)
        self.ptx.append(text)
        kinds = {name: kind for name, kind in made.src.signature.items() if kind != "constexpr"}
        parameters = [self._passed(name, kind, {**chosen.given, **given}[name]) for name, kind in kinds.items()]
        taken = re.search(r"\.entry\s+\w+\s*\((.*?)\)", text, re.DOTALL)
        parameters += [bytes(8)] * ((taken[1].count(".param") if taken else 0) - len(parameters))
        block = 32 * getattr(meta, "total_num_warps", meta.num_warps)
        cluster = (ctas, 1, 1) if ctas > 1 else SINGLE
        self._recorder.events.add(
            LaunchEvent(entry, (x * ctas, y, z), (block, 1, 1), cluster, meta.shared, 0, tuple(parameters))
        )

    def _named(self, text: str, name: str) -> tuple[str, str]:
        """Under another name where one of this name compiles to something else."""
        for number in range(len(self.ptx) + 1):
            entry = f"{name}_{number}" if number else name
            renamed = re.sub(rf"\b{re.escape(name)}\b", entry, text)
            others = [item for item in self.ptx if re.search(rf"\.entry\s+{re.escape(entry)}\b", item)]
            if not others or renamed in others:
                return renamed, entry
        raise AssertionError

    def _passed(self, name: str, kind: str, value: Any) -> bytes:
        if isinstance(value, torch.Tensor):
            return np.uint64(self._recorder.address(value)).tobytes()
        if kind not in _FORMS:
            raise TorchAnswerError(
                f"{name} is passed to a kernel of Triton's as {kind}: tensors and numbers are passed"
            )
        return np.array(value).astype(_FORMS[kind]).tobytes()


class _Stand:
    """A tensor as decorators and the JIT see it. Buffers begin at multiples of 256."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype, self.shape, self._tensor = tensor.dtype, tuple(tensor.shape), tensor

    def stride(self, *at: int) -> Any:
        return self._tensor.stride(*at)

    def numel(self) -> int:
        return int(self._tensor.numel())

    def data_ptr(self) -> int:
        return int(self._tensor.storage_offset() * self._tensor.element_size())

    def ptr_range(self) -> int:
        return 0


def merged(texts: list[str]) -> str:
    """One module of several: the header of the first, and what each declares once."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < 2:
        return "".join(distinct)
    made, seen = [distinct[0]], set(_declarations(distinct[0]))
    for number, text in enumerate(distinct[1:], start=1):
        body = re.sub(r"(?m)^\.(version|target|address_size).*\n", "", text)
        # Files of source lines have numbers of their module; a debugger's sections are of one.
        body = re.sub(r"(?ms)^\s*\.section\s+\.debug_\w+\s*\{.*?^\s*\}\n?", "", body)
        for word in (r"\.file\s+", r"\.loc\s+", r"inlined_at\s+"):
            body = re.sub(rf"({word})(\d+)", partial(_moved_by, 100 * number), body)
        for line in _declarations(text):
            if line in seen:
                body = body.replace(line + "\n", "", 1)
        for entry in FILLS:  # each extension has them
            if any(f".entry {entry}(" in item for item in made):
                body = re.sub(rf"(?s)[^\n]*\.entry {entry}\(.*?\n}}\n", "", body, count=1)
        seen.update(_declarations(text))
        made.append(body)
    return "\n".join(made)


def _moved_by(distance: int, found: re.Match[str]) -> str:
    """The number behind a word, so much further."""
    return f"{found[1]}{int(found[2]) + distance}"


def _declarations(text: str) -> list[str]:
    return re.findall(r"(?m)^\.extern .*;$", text)
