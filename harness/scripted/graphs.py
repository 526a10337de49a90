"""`torch.cuda.CUDAGraph`: operations of torch and launches that a capture records, and that a replay does again.

Within a capture everything is run as well, for the shapes of results have to be known. Then what it has changed is put
back, and floating-point memory that was made in it is full of NaN: as on a GPU, nothing has been computed yet.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fmha.harness.scripted.script_machine import HostMemory, Recording, ScriptFinding, ScriptMachine

NOT_WITHIN: Final = "operation not permitted when stream is capturing"
_ALLOCATIONS: Final = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")  # compute nothing
_POISON: Final = 0xFF  # in every byte; NaN in all floating-point types


@contextlib.contextmanager
def replaced(machine: Callable[[], ScriptMachine], tell: Callable[[ScriptFinding], None]) -> Iterator[None]:
    """torch.cuda's graphs are those of this module; what launches find when a graph is replayed is told."""

    class CUDAGraph(_Graph):
        def __init__(self, keep_graph: bool = False) -> None:
            super().__init__(machine, tell)

    def capturing() -> bool:
        return machine().recording is not None

    with contextlib.ExitStack() as stack:
        for name, value in (
            ("CUDAGraph", CUDAGraph),
            ("graph_pool_handle", lambda: (0, 0)),
            ("is_current_stream_capturing", capturing),
        ):
            for module in (torch.cuda, torch.cuda.graphs):
                stack.enter_context(mock.patch.object(module, name, value))
        # A stream of this process, which must not outlive the emulator, and a part of the build for CUDA.
        stack.enter_context(mock.patch.object(torch.cuda.graph, "default_capture_stream", None))
        stack.enter_context(mock.patch.object(torch._C, "_host_emptyCache", return_value=None, create=True))
        yield


def read_by_host(machine: ScriptMachine, tensor: torch.Tensor) -> None:
    """RuntimeError, as from CUDA, within a capture that computes the tensor: its values are not there yet."""
    if machine.recording is not None:
        _read_by_host(machine.recording, tensor)


def wait_for_all(machine: ScriptMachine) -> None:
    """All is done when it returns; within a capture RuntimeError, as from CUDA."""
    if machine.recording is not None:
        _fail(machine.recording, "the host waits")


def _read_by_host(recording: Recording, tensor: torch.Tensor) -> None:
    if _address(tensor) in recording.computed:
        _fail(recording, "the host reads what the graph computes")


def _fail(recording: Recording, why: str) -> NoReturn:
    recording.failed = True
    raise RuntimeError(f"{NOT_WITHIN}: {why}")


class _Graph:
    """In the place of torch.cuda.CUDAGraph, whose methods have these names."""

    def __init__(self, machine: Callable[[], ScriptMachine], tell: Callable[[ScriptFinding], None]) -> None:
        self._machine = machine
        self._tell = tell
        self._capture: _Capture | None = None
        self._recording: Recording | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **options: Any) -> None:
        here = self._machine()
        if here.recording is not None or self._recording is not None:
            raise RuntimeError("a graph is captured once, and no other at the same time; reset() forgets it")
        self._capture = _Capture(here)

    def capture_end(self) -> None:
        if self._capture is None:
            raise RuntimeError("capture_end() without capture_begin()")
        capture, self._capture = self._capture, None
        self._recording = capture.end()

    def replay(self) -> None:
        if self._recording is None:
            raise RuntimeError("replay() of a graph that has not been captured")
        if self._machine().recording is not None:
            raise RuntimeError(NOT_WITHIN)
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for step in self._recording.steps:
                for told in step():
                    self._tell(told)

    def reset(self) -> None:
        self._recording = None

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    def instantiate(self) -> None: ...

    def enable_debug_mode(self) -> None: ...

    def register_generator_state(self, generator: Any) -> None: ...


class _Capture:
    """What is recorded from here to `end`."""

    def __init__(self, machine: ScriptMachine) -> None:
        self._machine = machine
        self._random = torch.get_rng_state()
        self._recording = machine.recording = Recording()
        self._mode = _Recorder(self._recording)
        self._mode.__enter__()

    def end(self) -> Recording | None:
        """None if something in it cannot be captured."""
        self._mode.__exit__(None, None, None)
        self._machine.recording = None
        self._recording.undo()
        for made in self._mode.made:
            if made.dtype.is_floating_point or made.dtype.is_complex:
                storage = made.untyped_storage()
                ctypes.memset(storage.data_ptr(), _POISON, storage.nbytes())
        torch.set_rng_state(self._random)
        return None if self._recording.failed else self._recording


class _Recorder(TorchDispatchMode):  # type: ignore[misc] # torch is skipped by mypy
    """Records torch's operations, below autograd."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, for torch would load all of torch._dynamo to say so."""
        return False

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording
        self.made: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
            for tensor in given:
                _read_by_host(self._recording, tensor)
        written = list(_written(func, args, kwargs))
        for tensor in written:
            self._recording.keep(_memory(tensor))
        again = tree_map_only(torch.Tensor, lambda tensor: tensor.data, (args, kwargs))
        result = func(*args, **kwargs)
        before = {_address(tensor) for tensor in given}
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        is_made = [bool(_address(tensor)) and _address(tensor) not in before for tensor in results]
        made = [tensor for tensor, new in zip(results, is_made, strict=True) if new]
        self.made += made
        self._recording.computed.update(map(_address, (*made, *written)))
        is_computed = func.overloadpacket.__name__ not in _ALLOCATIONS and torch.Tag.inplace_view not in func.tags
        if is_computed and (made or written):
            # Without the version counters of the originals: to autograd a replay is no change.
            outputs = [tensor.data if new else None for tensor, new in zip(results, is_made, strict=True)]
            self._recording.steps.append(lambda: _do_again(func, again, outputs))
        return result


def _do_again(func: Any, given: Any, outputs: list[torch.Tensor | None]) -> list[ScriptFinding]:
    args, kwargs = given
    results = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    for output, result in zip(outputs, results, strict=True):
        if output is not None:
            output.copy_(result)
    return []


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for at, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[at] if at < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _memory(tensor: torch.Tensor) -> HostMemory:
    storage = tensor.untyped_storage()
    return HostMemory("", storage.data_ptr(), storage.nbytes(), storage)
