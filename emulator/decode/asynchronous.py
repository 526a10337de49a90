"""Bulk tensor copies (PTX ISA 9.7.9.25-27)."""

from __future__ import annotations

from collections.abc import Callable

from emulator._core import MODS
from emulator.decode.builder import Builder
from emulator.decode.modifiers import Modifiers
from emulator.ptx import TensorAddress


def copy(b: Builder, m: Modifiers) -> None:
    """cp.async.bulk.tensor, global to shared, tiled."""
    m.need("async", "bulk", "tensor")
    dims = m.choose({f"{n}d": n for n in range(1, 6)})
    space = m.choose({"shared::cta": "shared", "shared::cluster": "shared::cluster"})
    m.need("global")
    m.take("tile")
    m.need("mbarrier::complete_tx::bytes")
    hint = m.take("L2::cache_hint")
    m.done()
    operands = b.instruction.operands
    if len(operands) != 3 + hint:
        b.fail(f"{3 + hint} operands are expected")
    destination, tensor, barrier = operands[:3]
    if not isinstance(tensor, TensorAddress) or len(tensor.coordinates) != dims:
        b.fail(f"a tensor map and {dims} coordinates are expected")
    src = [
        b.address_value(destination, space, 32),
        b.address_value(tensor.descriptor, "generic", 64),
        *(b.src(c, "s32") for c in tensor.coordinates),
        b.address_value(barrier, space, 32),
    ]
    b.emit("tma_load", src=src, mods=dims << MODS["tma_dim_shift"])


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"cp": copy}
