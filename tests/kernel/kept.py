"""Which of our kernels `make test` compiles.

Those of an architecture are template arguments of one source. Of sm_90a it has every shape of a CTA once, among them
every kind, which leaves out what a call has no use for. Of sm_100a it has every head_dim, both paths of P, few rows in
both numbers, and what goes through row tiles, in one CTA and in two; `make run` has the others. `make test-all` has
all."""

from __future__ import annotations

import pytest

from fmha.harness.contract.protocol import Variant

KEPT = {
    "sm100_hd64_ptmem",
    "sm100_hd64_rows32",
    "sm100_hd128_prefill",
    "sm100_hd256_rows64",
    "sm100_hd256_pair256",
    "sm100_hd512_psmem",
    "sm90_hd64",
    "sm90_hd64_rows64_plain",
    "sm90_hd64_rows192_dense_paged_lengths",
    "sm90_hd128_dense_heads_lengths",
    "sm90_hd128_rows64_dense_heads",
    "sm90_hd128_rows192_dense",
    "sm90_hd256_rows64",
    "sm90_hd256_rows128_dense",
    "sm90_hd256_dense_paged",
    "sm90_hd512",
}


def marks(variant: Variant) -> list[pytest.MarkDecorator]:
    """What a test that needs this kernel is marked with."""
    return [] if variant.name in KEPT else [pytest.mark.nightly]
