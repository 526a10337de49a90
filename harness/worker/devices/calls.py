"""The host's part of a call whose plan is known: what its tensors are, and kept launches over their addresses.

`calls.cpp` has both, compiled, and `native/` plans calls of new sizes, for which there is no Python. What is below
stands in for the first two where fmha was not compiled, as on the hosts that runs are sent to, and for tensors of torch
before 2.10, of which DLPack's functions do not tell.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Hashable, Sequence
from types import BuiltinFunctionType
from typing import Any

ALIGNMENT = 16  # of what a tensor map begins with
# The functions of the driver that Launches takes, in this order.
ENTRIES = ("LaunchKernelEx", "TensorMapReplaceAddress", "CtxGetCurrent", "CtxSetCurrent")

# What a type of tensors has whose operators do something else than to compute; torch's own has a function that says no.
DISPATCH = "__torch_dispatch__"

# (place, source, beyond): where in memory a pointer or a tensor map is, which of a call's addresses it gets, and how
# many bytes further. An address 0 is none: a pointer is 0 then, and a map stays as it is.
Field = tuple[int, int, int]

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_MOVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# Threads that share a stream share what the launches of one call hand on to each other: no call comes between them.
_launching = threading.Lock()


def read_tensors(tensors: Sequence[Any]) -> tuple[Hashable, bytes] | None:
    """The form of torch's tensors, some of them None, and their addresses, of 8 bytes each and 0 for None.

    The form is what a plan depends on: which there are, shapes, strides, dtypes, devices, and how far off its alignment
    an address is. None where one is no tensor, or is one without memory of its own: a FakeTensor, say.
    """
    if not all(x is None or isinstance(getattr(type(x), DISPATCH, None), BuiltinFunctionType) for x in tensors):
        return None
    try:
        addresses = [0 if x is None else x.data_ptr() for x in tensors]
        if any(x is not None and not address and x.numel() for x, address in zip(tensors, addresses, strict=True)):
            return None
        forms = [
            x is None or (x.shape, x.is_contiguous() or x.stride(), x.dtype, x.get_device(), address % ALIGNMENT)
            for x, address in zip(tensors, addresses, strict=True)
        ]
    except (AttributeError, TypeError, RuntimeError):
        return None
    return tuple(forms), struct.pack(f"<{len(addresses)}Q", *addresses)


class KeptLaunches:
    """Launches of one struct of parameters, in one context. `entries` are the addresses of ENTRIES, `arguments` that of
    the array of one pointer to the struct; `maps` and `pointers` are places within it."""

    def __init__(
        self,
        entries: Sequence[int],
        context: int,
        arguments: int,
        maps: Sequence[Field],
        pointers: Sequence[Field],
        /,
    ) -> None:
        launch, move, current, enter = entries
        self._launch, self._move, self._arguments = _ENTRY(launch), _MOVE(move), arguments
        self._current, self._enter, self._context = _CONTEXT(current), _CONTEXT(enter), context
        self._maps = maps
        self._pointers = [(ctypes.c_uint64.from_address(at), source, beyond) for at, source, beyond in pointers]
        self._known = [0] * len(maps)  # the addresses that the maps have

    def __call__(self, configured: bytes, addresses: bytes, /, *more: int) -> int:
        """`configured` are the addresses of each launch's function and of its config; a call's addresses are those of
        `addresses`, then `more`. Returns the driver's answer, 0 for success; of a tensor map its negative."""
        at = *(word for (word,) in struct.iter_unpack("<Q", addresses)), *more
        before = ctypes.c_void_p()
        if refused := self._current(ctypes.addressof(before)):
            return int(refused)
        if before.value == self._context:
            return self._make(configured, at)
        if refused := self._enter(self._context):
            return int(refused)
        try:
            return self._make(configured, at)
        finally:
            self._enter(before.value)

    def _make(self, configured: bytes, at: Sequence[int]) -> int:
        with _launching:
            for i, (place, source, beyond) in enumerate(self._maps):
                address = at[source] and at[source] + beyond
                if address and address != self._known[i]:
                    self._known[i] = 0  # where one is refused, it is not known
                    if refused := self._move(place, address):
                        return -int(refused)
                    self._known[i] = address
            for pointer, source, beyond in self._pointers:
                pointer.value = at[source] and at[source] + beyond
            for function, config in struct.iter_unpack("<2Q", configured):
                if refused := self._launch(config, function, self._arguments, None):
                    return int(refused)
        return 0


try:
    from fmha.harness.worker.devices._calls import Launches as Launches
    from fmha.harness.worker.devices._calls import Planner as Planner
    from fmha.harness.worker.devices._calls import read as read
except ModuleNotFoundError:  # one that is there and broken is not passed over
    Launches, Planner, read = KeptLaunches, None, read_tensors  # type: ignore[assignment, misc]
