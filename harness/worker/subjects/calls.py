"""What is called over torch's tensors: arrays to tensors and back, and how long many calls take on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def tensor_of(array: NDArray[Any], device: str) -> Any:
    """A tensor of its own, for what is called may write it. 16 unsigned bits are bf16."""
    import torch

    made = torch.from_numpy(np.array(array))
    return (made.view(torch.bfloat16) if array.dtype == np.uint16 else made).to(device)


def array_of(tensor: Any) -> NDArray[Any]:
    """Of bf16 its bit patterns."""
    import torch

    whole = tensor.detach().contiguous()
    found: NDArray[Any] = (whole.view(torch.uint16) if whole.dtype == torch.bfloat16 else whole).cpu().numpy()
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
