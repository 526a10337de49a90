"""Cases of address.cu."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Case, Out


def cases() -> Iterator[Case]:
    for entry in ("dynamic_only", "after_static", "aligned_after_static", "sizes"):
        out = Out(np.full(8, 0xEEEE, np.uint32))
        yield Case(f"address/{entry}", "address", entry, (out,), block=(1, 1, 1), shared=4096)
    out = Out(np.full(32, 0xEEEE, np.uint32))
    yield Case("address/cluster_ranks", "address", "ranks", (out,), grid=(2, 1, 1), block=(1, 1, 1), cluster=(2, 1, 1))
