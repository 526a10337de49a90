"""What is called over torch's tensors: arrays to tensors and back, and how long many calls take on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def tensor_of(array: NDArray[Any], device: str, kind: str = "") -> Any:
    """A tensor of its own, for what is called may write it. `kind` is ml_dtypes' name of its type, where it is of one
    of those; else 16 unsigned bits are bf16."""
    import torch

    made = torch.from_numpy(np.array(array))
    wanted = getattr(torch, kind, None) if kind else torch.bfloat16 if array.dtype == np.uint16 else None
    return (made if wanted is None else made.view(wanted)).to(device)


def array_of(tensor: Any) -> NDArray[Any]:
    """Of bf16 and smaller floating-point types their bit patterns."""
    import torch

    whole = tensor.detach().contiguous()
    bits = {2: torch.uint16, 1: torch.uint8}.get(whole.dtype.itemsize)
    numpys_own = whole.dtype in (torch.float16, torch.int16, torch.uint16, torch.int8, torch.uint8, torch.bool)
    found: NDArray[Any] = (whole if bits is None or numpys_own else whole.view(bits)).cpu().numpy()
    return found


def batch_of_calls(call: Callable[[], Any], times: int) -> Callable[[], float]:
    """So many calls as a CUDA graph of torch's: seconds on the GPU, as our own launches are timed."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def replay() -> float:
        events[0].record()
        graph.replay()
        events[1].record()
        events[1].synchronize()
        return float(events[0].elapsed_time(events[1])) * 1e-3

    return replay
