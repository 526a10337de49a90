"""An answer's host code over tensors that have no memory: what it allocates and launches is noted, in order.

Without values there is nothing that it could compute, look up, or keep from another call. Of torch's operations those
run that allocate, fill, copy or look at a shape. Any other one is refused by its name: what torch computes is not the
answer's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fmha.harness.problems.events import (
    Allocated,
    LaunchEvent,
    Ordered,
    TorchAnswerError,
    address_of,
    buffer_of,
    copied,
    filled,
)
from fmha.harness.problems.streams import Events

_EMPTY: Final = frozenset(
    f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)
# Each with what it is filled with; None: with its `fill_value`.
_FILLED: Final[Mapping[str, float | None]] = {
    **{f"aten::{name}": 0 for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten::{name}": 1 for name in ("ones", "ones_like", "new_ones")},
    **{f"aten::{name}": None for name in ("full", "full_like", "new_full")},
}
_FILLS: Final = frozenset(("aten::zero_", "aten::fill_"))
_COPIES: Final = frozenset(("aten::clone", "aten::copy_"))
_SHAPES: Final = frozenset(("aten::sym_size", "aten::is_same_size", "aten::detach_", "aten::set_"))
# at::ScalarType's numbers.
_NUMBERS: Final = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
    torch.float32: 6, torch.float64: 7, torch.bool: 11, torch.bfloat16: 15,
}  # fmt: skip
_BY_NUMBER: Final = {number: dtype for dtype, number in _NUMBERS.items()}


class AnswerRecorder(TorchDispatchMode):  # type: ignore[misc] # torch is no package of mypy's here
    """`lenient` until the answer's forward is called: a model's parameters may be drawn, their values are dropped."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._source = str(source)
        self._numbers: dict[int, int] = {}  # of storages
        self._kept: dict[int, torch.Tensor] = {}  # each buffer's bytes
        self.lenient = True
        self.events = Events()
        self.nbytes: dict[int, int] = {}

    @property
    def next_buffer(self) -> int:
        """The number that the next buffer gets."""
        return len(self.nbytes) + 1

    def buffer(self, tensor: torch.Tensor) -> int:
        """The number of its storage from now on, if it has none yet."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self.next_buffer
            self._numbers[storage._cdata] = number
            self._kept[number] = tensor
            self.nbytes[number] = storage.nbytes()
        return number

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor's memory; None for memory that was not seen before."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def address(self, tensor: torch.Tensor) -> int:
        """An address that stands for a tensor's. AnswerError for memory that nobody has declared."""
        number = self.known(tensor)
        if number is None:
            raise TorchAnswerError(
                self._placed("a launch is given a tensor that is no argument, no parameter of its model")
            )
        return address_of(number, tensor.storage_offset() * tensor.element_size())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done here is not the answer's."""
        before, self.lenient = self.lenient, True
        try:
            yield
        finally:
            self.lenient = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if self.lenient or func.is_view or name in _SHAPES:
            return func(*args, **kwargs)
        if name in _EMPTY or name in _FILLED:
            made = func(*args, **kwargs)
            self.buffer(made)
            if name in _FILLED:
                value = _FILLED[name]
                self._fill(made, kwargs.get("fill_value", args[1] if len(args) > 1 else 0) if value is None else value)
            return made
        if name in _FILLS:
            value = args[1] if name == "aten::fill_" else 0
            if not isinstance(value, torch.Tensor):
                self._fill(args[0], value)
                return args[0]
        if name in _COPIES and (copy := self._copied(func, args, kwargs)) is not None:
            return copy
        raise TorchAnswerError(
            self._placed(f"torch computes {name}, and what it computes is not the answer's: only launches are judged")
        )

    def _fill(self, tensor: torch.Tensor, value: float) -> None:
        if not tensor.is_contiguous():
            raise TorchAnswerError(self._placed("a part of a tensor is filled that is not contiguous"))
        item = torch.full((1,), value, dtype=tensor.dtype, device="cpu").view(torch.uint8).tolist()
        pattern = int.from_bytes(bytes(item), "little")
        self.events.add(filled(self.address(tensor), tensor.element_size(), pattern, tensor.nbytes))

    def _copied(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        """None where torch would do more than copy bytes."""
        into, source = (None, args[0]) if func._schema.name == "aten::clone" else args[:2]
        made: torch.Tensor = func(*args, **kwargs) if into is None else into
        plain = made.is_contiguous() and source.is_contiguous()
        if not plain or made.dtype != source.dtype or made.shape != source.shape:
            return None
        self.buffer(made)
        self.events.add(copied(self.address(made), self.address(source), source.nbytes))
        return made

    # What an extension's host code is given, and what it has done.

    def words(self, argument: Any) -> list[str]:
        """An argument as fmha_calls.h reads it."""
        if argument is None:
            return ["none"]
        if isinstance(argument, torch.Tensor):
            if argument.dtype not in _NUMBERS:
                raise TorchAnswerError(f"an extension is given a tensor of {argument.dtype}, which is not passed")
            shape, strides = [*map(str, argument.shape)], [*map(str, argument.stride())]
            number = str(_NUMBERS[argument.dtype])
            return ["tensor", str(self.address(argument)), number, str(argument.dim()), *shape, *strides]
        if isinstance(argument, list | tuple):
            return ["list", str(len(argument)), *(word for item in argument for word in self.words(item))]
        if isinstance(argument, bool | int | np.integer):
            return ["whole", str(int(argument))]
        if isinstance(argument, float | np.floating):
            return ["real", repr(float(argument))]
        raise TorchAnswerError(f"an extension is given {type(argument).__name__}: tensors and numbers are passed")

    def took(self, result: str, done: list[LaunchEvent | Allocated | Ordered]) -> Any:
        """Notes what it has done; what it returned."""
        for item in done:
            if isinstance(item, Ordered):
                self.events.order(item)
            elif isinstance(item, LaunchEvent):
                self.events.add(item)
            else:
                self._allocated(item.address, item.nbytes)
        return self._read(iter(result.split()))

    def _allocated(self, address: int, nbytes: int) -> None:
        with self.paused():
            room = torch.empty(-(-nbytes // 8) * 8, dtype=torch.uint8, device="meta")
        number = self.buffer(room)
        self.nbytes[number] = nbytes
        assert buffer_of(address) == (number, 0)

    def _read(self, words: Iterator[str]) -> Any:
        kind = next(words, "none")
        if kind == "list":
            return tuple(self._read(words) for _ in range(int(next(words))))
        if kind == "real":
            return float(next(words))
        if kind != "tensor":
            return None
        address, number, dims = (int(next(words)) for _ in range(3))
        sizes, strides = ([int(next(words)) for _ in range(dims)] for _ in range(2))
        found = buffer_of(address)
        if found is None:
            raise TorchAnswerError("an extension returns a tensor that it has not allocated")
        dtype = _BY_NUMBER[number]
        with self.paused():
            empty = torch.empty(0, dtype=dtype, device="meta")
            offset = found[1] // max(1, dtype.itemsize)
            return empty.set_(self._kept[found[0]].untyped_storage()).as_strided(sizes, strides, offset)

    def _placed(self, what: str) -> str:
        """With the line of the answer that is running."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename == self._source:
                return f"{what} ({Path(self._source).name}:{frame.f_lineno})"
            frame = frame.f_back
        return what


@contextmanager
def a_gpu(order: Callable[[Ordered], None]) -> Iterator[None]:
    """torch.cuda as host code finds it on a machine with a GPU, as far as it asks without launching. `order` is told
    what it waits for."""
    said: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_capability": lambda device=None: (9, 0),
        "synchronize": lambda device=None: order(Ordered("wait")),
        "current_stream": lambda device=None: _Stream(order),
        "empty_cache": lambda: None,
    }
    before = {name: getattr(torch.cuda, name) for name in said}
    try:
        for name, value in said.items():
            setattr(torch.cuda, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(torch.cuda, name, value)


@dataclass(frozen=True, slots=True)
class _Stream:
    order: Callable[[Ordered], None]
    cuda_stream: int = 0

    def synchronize(self) -> None:
        self.order(Ordered("wait_stream"))
