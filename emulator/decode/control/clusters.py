"""Clusters and the launch around a CTA: mapa, getctarank, setmaxnreg, griddepcontrol, clusterlaunchcontrol."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder, width_of
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Immediate, Sink, Vector


def _space(m: Modifiers) -> str:
    return "shared::cluster" if m.take("shared::cluster") else "generic"


def mapa(b: Builder, m: Modifiers) -> None:
    """mapa: the address of another CTA's shared memory."""
    space = _space(m)
    type_name = m.type(("u32", "u64"))
    m.done()
    if len(b.instruction.operands) != 3:
        b.fail("3 operands are expected")
    if space == "generic" and type_name != "u64":
        b.fail("generic addresses have 64 bits")
    d, a, rank = b.instruction.operands
    src = [b.src(a, type_name), b.src(rank, "u32")]
    b.emit("mapa", type_name, dst=[b.dst(d, type_name)], src=src, mods=SPACES[space] << MODS["space_shift"])


def getctarank(b: Builder, m: Modifiers) -> None:
    """getctarank: whose shared memory an address is in."""
    space = _space(m)
    type_name = m.type(("u32", "u64"))
    m.done()
    d, a = b.operands(2)
    mods = SPACES[space] << MODS["space_shift"]
    width = width_of(type_name)
    b.emit("getctarank", type_name, dst=[b.dst(d, "u32")], src=[b.src(a, type_name)], mods=mods, width_src=width)


def setmaxnreg(b: Builder, m: Modifiers) -> None:
    """setmaxnreg: checked, for the machine has registers enough."""
    mods = m.choose({"inc": 0, "dec": MODS["setmaxnreg_dec"]})
    m.need("sync", "aligned", "u32")
    m.done()
    (count,) = b.operands(1)
    if not isinstance(count, Immediate) or count.bits % 8 or not 24 <= count.bits <= 256:
        b.fail("a constant register count in 24..256 and a multiple of 8 is expected")
    limit = b.function.directives.get("maxnreg", (0,))[0]
    b.emit("setmaxnreg", immediate=int(limit) << 16 | count.bits, mods=mods, aligned=True)


def clusterlaunchcontrol(b: Builder, m: Modifiers) -> None:
    """clusterlaunchcontrol: the request for another cluster, and what is read from the answer."""
    if m.take("try_cancel"):
        m.need("async")
        m.take("shared::cta")
        m.need("mbarrier::complete_tx::bytes")
        mods = MODS["bulk_multicast"] if m.take("multicast::cluster::all") else 0
        m.need("b128")
        m.done()
        address, barrier = b.operands(2)
        src = [b.address_value(address, "shared", 32), b.address_value(barrier, "shared", 32)]
        b.emit("clc_try_cancel", "b128", src=src, mods=mods)
        return
    m.need("query_cancel")
    if m.take("is_canceled"):
        m.need("pred", "b128")
        m.done()
        p, response = b.operands(2)
        b.emit("clc_canceled", "b128", dst=[b.dst(p, "pred")], src=[b.src(response, "b128")])
        return
    _first_ctaid(b, m)


def _first_ctaid(b: Builder, m: Modifiers) -> None:
    axis = m.choose({"get_first_ctaid": -1, "get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2})
    if axis < 0:
        m.need("v4")
    m.need("b32", "b128")
    m.done()
    d, response = b.operands(2)
    dst = [-1, -1, -1]
    if axis >= 0:
        dst[axis] = b.dst(d, "b32")
    else:
        if not isinstance(d, Vector) or len(d.items) != 4:
            b.fail("4 destination registers are expected")
        dst = [b.dst(x, "b32") for x in d.items[:3]]
        if not isinstance(d.items[3], Sink):
            b.dst(d.items[3], "b32")  # the fourth element has no defined value: it stays as it was
    b.emit("clc_ctaid", "b32", dst=dst, src=[b.src(response, "b128")])


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "mapa": mapa,
    "getctarank": getctarank,
    "setmaxnreg": setmaxnreg,
    "clusterlaunchcontrol": clusterlaunchcontrol,
}
