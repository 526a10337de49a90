"""Triton's compiler up to PTX: ptxas is left out, because the PTX is what the emulator runs and what fmha assembles."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock


@contextlib.contextmanager
def ptx_for_cubin() -> Iterator[None]:
    """What Triton compiles has its PTX for a cubin, in a cache of its own, where no GPU would be handed it."""
    from triton.backends.nvidia.compiler import CUDABackend

    folder = os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache")
    own = {"TRITON_CACHE_DIR": folder if folder.endswith("/fmha-ptx") else f"{folder}/fmha-ptx"}
    with mock.patch.dict(os.environ, own), mock.patch.object(CUDABackend, "make_cubin", _ptx):
        yield


def _ptx(backend: Any, src: str, *rest: Any) -> bytes:
    return src.encode()
