"""Which kernels of sm_90a `make test` compiles.

They are 53, of which it has twelve: ten shapes of a CTA, each in up to seven kinds, which leave out what a call has no
use for. Shape and kind are template arguments of one source. `make test` has every shape and every kind at least once,
`make test-all` each pair."""

from __future__ import annotations

import pytest

from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side.choice import ARCH

KEPT = {
    "sm90_hd64",
    "sm90_hd64_rows64",
    "sm90_hd64_rows192_dense_paged_lengths",
    "sm90_hd128",
    "sm90_hd128_plain",
    "sm90_hd128_rows64_dense_heads",
    "sm90_hd128_rows192_dense",
    "sm90_hd128_dense_heads_lengths",
    "sm90_hd256_rows64",
    "sm90_hd256_rows128_dense",
    "sm90_hd256_dense_paged",
    "sm90_hd512",
}


def marks(variant: Variant) -> list[pytest.MarkDecorator]:
    """What a test that needs this kernel is marked with."""
    return [pytest.mark.nightly] if variant.arch == ARCH and variant.name not in KEPT else []
