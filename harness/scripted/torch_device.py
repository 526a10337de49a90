"""torch without a GPU, for code that asks for one: what goes to `cuda` is on the CPU, and says that it is on `cuda`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from fmha.emulator.device import MAX_SHARED_BYTES
from fmha.harness.scripted import graphs
from fmha.harness.scripted.script_machine import REGISTERS, ScriptMachine

_CPU = torch.device("cpu")
_GPU = torch.device("cuda", 0)
_DEVICE = torch.Tensor.device.__get__
_IS_CUDA = torch.Tensor.is_cuda.__get__
_COPIES = (torch.Tensor.cuda, torch.Tensor.cpu)
_PINS = (torch.Tensor.pin_memory,)
_READS = (torch.Tensor.cpu, torch.Tensor.tolist, torch.Tensor.numpy)  # what the host waits for


@contextlib.contextmanager
def replaced(machine: Callable[[], ScriptMachine]) -> Iterator[None]:
    """torch's CUDA device is the emulator. Tensors of the code within are on the CPU, wherever it puts them."""
    names = _cuda(machine)
    with contextlib.ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        stack.enter_context(mock.patch.object(DeviceContext, "__init__", _context_on_cpu))
        stack.enter_context(mock.patch.object(torch.Tensor, "record_stream", return_value=None))
        stack.enter_context(mock.patch.object(torch.cuda.nvtx, "_nvtx", _RANGES))
        # What Inductor's code takes from below torch.cuda; a build without CUDA lacks the first.
        stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", return_value=0, create=True))
        stack.enter_context(mock.patch.object(torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided))
        stack.enter_context(_OnCpu(machine))
        yield


class _OnCpu(TorchFunctionMode):  # type: ignore[misc] # torch is skipped by mypy
    def __init__(self, machine: Callable[[], ScriptMachine]) -> None:
        super().__init__()
        self._machine = machine

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _IS_CUDA:
            return args[0].device.type == "cpu"
        if func == _DEVICE:
            found = func(*args)
            return _GPU if found.type == "cpu" else found
        if func in _READS:
            graphs.read_by_host(self._machine(), args[0])
        if func in _COPIES:  # of a GPU's memory, or to it
            return args[0].clone()
        if func in _PINS:
            return args[0]
        if func is torch.Tensor.to and any(map(_is_device, (*args[1:2], (kwargs or {}).get("device")))):
            kwargs = (kwargs or {}) | {"copy": True}
        named = {name: _here(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        named.pop("pin_memory", None)
        if func is torch.Tensor.to:
            return func(args[0], *map(_here, args[1:]), **named)
        return func(*(_here(value) if isinstance(value, torch.device) else value for value in args), **named)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"))


def _here(value: Any) -> Any:
    """`cpu` for what means a GPU."""
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return _CPU
    return _CPU if type(value) is int else value


class _Generator(torch.Generator):  # type: ignore[misc]
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, _here(device))


_begin_context = DeviceContext.__init__


def _context_on_cpu(context: Any, device: Any) -> None:
    """Of `with torch.device("cuda")` and `set_default_device`, whose mode stands below that of this module."""
    _begin_context(context, _here(torch.device(device)))


def _empty_strided(size: Any, stride: Any, dtype: Any) -> Any:
    return torch.empty_strided(size, stride, dtype=dtype)


class _Device:
    """There is one."""

    def __init__(self, device: Any = None) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


# NVTX, with nobody who looks on.
_RANGES = SimpleNamespace(
    **dict.fromkeys(("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA"), lambda *rest: 0)
)


class _Stream:
    """Launches and copies are done when they return."""

    cuda_stream = 0

    def __init__(self, *rest: Any, **options: Any) -> None: ...

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None: ...


class _Event:
    """Its times are the emulator's own."""

    def __init__(self, *rest: Any, **options: Any) -> None:
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def wait(self, stream: Any = None) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: _Event) -> float:
        return 1e3 * (later._at - self._at)


def _cuda(machine: Callable[[], ScriptMachine]) -> dict[str, Any]:
    """What of torch.cuda has another answer."""

    def nothing() -> Callable[..., None]:
        """A function of its own for each name: torch._dynamo looks for its rule of each by the function."""
        return lambda *rest, **options: None

    def properties(device: Any = None) -> SimpleNamespace:
        major, minor = divmod(machine().number, 10)
        return SimpleNamespace(
            name="fmha emulator",
            major=major,
            minor=minor,
            multi_processor_count=machine().multiprocessors,
            total_memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            shared_memory_per_block=48 << 10,
            shared_memory_per_block_optin=MAX_SHARED_BYTES,
            shared_memory_per_multiprocessor=MAX_SHARED_BYTES + 1024,
            L2_cache_size=126 << 20,  # a B200's
            max_threads_per_multi_processor=2048,
            max_threads_per_block=1024,
            regs_per_multiprocessor=REGISTERS,
            warp_size=32,
        )

    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: "fmha emulator",
        "get_device_capability": lambda device=None: divmod(machine().number, 10),
        "get_device_properties": properties,
        "set_device": nothing(),
        "device": _Device,
        "_exchange_device": lambda device: 0,  # by which torch.cuda's own guards set and restore the device
        "_maybe_exchange_device": lambda device: 0,
        "init": nothing(),
        "mem_get_info": lambda device=None: (properties().total_memory,) * 2,
        "reset_peak_memory_stats": nothing(),
        "ipc_collect": nothing(),
        "can_device_access_peer": lambda device, peer: False,
        "synchronize": lambda device=None: graphs.wait_for_all(machine()),
        "_sleep": nothing(),
        "empty_cache": nothing(),
        "manual_seed": nothing(),
        "manual_seed_all": nothing(),
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "default_generators": (torch.default_generator,),
        "default_stream": lambda device=None: _Stream(),
        "current_stream": lambda device=None: _Stream(),
        "stream": lambda stream: contextlib.nullcontext(),
        "Stream": _Stream,
        "Event": _Event,
    }
