"""torch's tensors as buffers of a kernel of one's own: types, arrays, and where a problem's tensors are made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from fmha.harness.worker.subjects.kernel import Output
from fmha.harness.worker.subjects.tensor_calls import array_of, tensor_of

DTYPES: Final = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.bool: "u8",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
}  # fmt: skip
_ML_DTYPES: Final = {torch.bfloat16: "bfloat16", torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}


def output_of(tensor: torch.Tensor, what: str) -> Output:
    """Shape and dtype of a tensor, for an output."""
    return Output(tuple(tensor.shape), dtype_of(tensor, what))


def dtype_of(tensor: torch.Tensor, what: str) -> str:
    """ValueError for a type that no buffer has."""
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{what} is of {tensor.dtype}, which no buffer is")
    return DTYPES[tensor.dtype]


def as_array(tensor: torch.Tensor, what: str) -> NDArray[Any]:
    """Of NumPy's types, or of ml_dtypes'."""
    dtype_of(tensor, what)
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    array = array_of(tensor)
    if tensor.dtype in _ML_DTYPES:
        import ml_dtypes

        return array.view(getattr(ml_dtypes, _ML_DTYPES[tensor.dtype]))
    return array


def as_tensor(array: NDArray[Any], like: torch.Tensor) -> torch.Tensor:
    """The tensor of a problem that the array was made of, in float64 where it is of floating point."""
    kind = _ML_DTYPES.get(like.dtype, "")
    bits = array.view(f"u{array.itemsize}") if kind else array
    made: torch.Tensor = tensor_of(bits, "cpu", kind)
    if like.dtype == torch.bool:
        return made.to(torch.bool)
    return made.double() if made.is_floating_point() else made


class Placed(TorchFunctionMode):  # type: ignore[misc] # torch is no package of mypy's here
    """Whatever a program says of devices, its tensors are made on this one, and say that they are on a GPU."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0]
        if name == "__get__" and func in _SAYS:
            return _SAYS[func]
        if name == "to" and args and isinstance(args[0], torch.Tensor):
            args = (args[0], *(item for item in args[1:] if not _is_device(item)))
            kwargs.pop("device", None)
            if len(args) == 1 and not kwargs.keys() - {"non_blocking", "copy"}:
                return args[0]
        elif func in _FACTORIES or kwargs.get("device") is not None:
            kwargs["device"] = self._device
        return func(*args, **kwargs)


def _is_device(item: Any) -> bool:
    return isinstance(item, torch.device) or (isinstance(item, str) and item.split(":")[0] in ("cuda", "cpu"))


_SAYS: Final = {
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.device.__get__: torch.device("cuda:0"),
}
_FACTORIES: Final = frozenset(
    getattr(torch, name)
    for name in (
        *("arange", "empty", "empty_strided", "eye", "full", "linspace", "ones", "rand", "randint", "randn"),
        *("randperm", "tensor", "zeros"),
    )
)


@contextmanager
def drawn(seed: int, device: str) -> Iterator[None]:
    """Tensors are made on the device, and what is random follows from the seed. Python's own is the same for all
    seeds: a number that is passed by value is the same wherever it is asked for."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    with torch.no_grad(), Placed(device):
        yield
