"""Branches, exits, CTA barriers, fences, mbarriers (PTX ISA 9.7.12, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable

from emulator._core import MODS
from emulator.decode.builder import Builder
from emulator.decode.modifiers import Modifiers
from emulator.ptx import Address, LabelRef


def branch(b: Builder, m: Modifiers) -> None:
    m.take("uni")
    m.done()
    label = b.instruction.operands[0]
    if not isinstance(label, LabelRef):
        b.fail("a label is expected")
    b.emit("bra", target=b.function.labels[label.name])


def leave(b: Builder, m: Modifiers) -> None:
    m.take("uni")
    m.done()
    b.emit("ret")


def trap(b: Builder, m: Modifiers) -> None:
    m.done()
    b.emit("trap")


def bar(b: Builder, m: Modifiers) -> None:
    """bar, barrier: .sync and .arrive; bar.warp.sync. `bar` is `barrier.aligned`."""
    if m.take("warp"):
        m.need("sync")
        m.done()
        b.emit("bar_warp", "b32", src=[b.src(b.instruction.operands[0], "b32")])
        return
    m.take("cta")
    mods = 0 if m.choose({"sync": True, "arrive": False}) else MODS["bar_arrive_only"]
    aligned = m.take("aligned") or b.instruction.opcode == "bar"
    m.done()
    if not aligned:
        b.fail("barriers of single lanes (without .aligned) are not modelled")
    operands = b.instruction.operands
    if len(operands) not in (1, 2):
        b.fail("1 or 2 operands are expected")
    if len(operands) == 2:
        mods |= MODS["bar_has_count"]
    b.emit("bar", "u32", src=[b.src(x, "u32") for x in operands], mods=mods, aligned=True)


def fence(b: Builder, m: Modifiers) -> None:
    if m.take("proxy"):
        m.need("async")
        m.choose({"global": 0, "shared::cta": 1, "shared::cluster": 2}, 3)
        m.done()
        b.emit("fence_proxy_async")
        return
    if m.take("mbarrier_init"):
        m.need("release", "cluster")
        m.done()
        b.emit("fence_mbarrier_init")
        return
    both = MODS["acquire"] | MODS["release"]
    mods = m.choose({"sc": both, "acq_rel": both, "acquire": MODS["acquire"], "release": MODS["release"]}, both)
    m.choose({"cta": 0, "cluster": 1, "gpu": 2, "sys": 3})
    m.done()
    b.emit("fence_acq_rel", mods=mods)


def membar(b: Builder, m: Modifiers) -> None:
    m.choose({"cta": 0, "gl": 1, "sys": 2})
    m.done()
    b.emit("fence_acq_rel", mods=MODS["acquire"] | MODS["release"])


_SHARED = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "shared::cluster"}


def mbarrier(b: Builder, m: Modifiers) -> None:
    action = m.choose({name: name for name in ("init", "inval", "arrive", "expect_tx", "test_wait", "try_wait")})
    space = m.choose(_SHARED, "shared")
    if action in ("test_wait", "try_wait"):
        _wait(b, m, action, space)
    elif action == "arrive":
        _arrive(b, m, space)
    else:
        if action == "expect_tx":
            m.take("relaxed")
            m.choose({"cta": 0, "cluster": 1}, 2)
        m.need("b64")
        m.done()
        address, *rest = b.instruction.operands
        if len(rest) != (action != "inval"):
            b.fail("wrong number of operands")
        unit, width, offset = b.address(address, space)
        src = [unit, *(b.src(x, "u32") for x in rest)]
        op = {"init": "mbar_init", "inval": "mbar_inval", "expect_tx": "mbar_expect_tx"}[action]
        b.emit(op, "b64", src=src, immediate=offset, width_src=width)


def _semantics(m: Modifiers) -> int:
    relaxed = m.choose({"relaxed": True, "acquire": False, "release": False}, False)
    m.choose({"cta": 0, "cluster": 1}, 2)
    return MODS["mbar_relaxed"] if relaxed else 0


def _arrive(b: Builder, m: Modifiers, space: str) -> None:
    mods = MODS["mbar_expect_tx"] if m.take("expect_tx") else 0
    mods |= _semantics(m)
    m.need("b64")
    m.done()
    operands = list(b.instruction.operands)
    with_state = not isinstance(operands[0], Address)
    state = [b.dst(operands.pop(0), "b64")] if with_state else []
    if not 1 <= len(operands) <= 2 or (mods & MODS["mbar_expect_tx"] and len(operands) != 2):
        b.fail("wrong number of operands")
    unit, width, offset = b.address(operands[0], space)
    src = [unit, *(b.src(x, "u32") for x in operands[1:])]
    b.emit("mbar_arrive", "b64", dst=state, src=src, mods=mods, immediate=offset, width_src=width)


def _wait(b: Builder, m: Modifiers, action: str, space: str) -> None:
    mods = MODS["mbar_blocking"] if action == "try_wait" else 0
    parity = m.take("parity")
    mods |= (MODS["mbar_parity"] if parity else 0) | _semantics(m)
    m.need("b64")
    m.done()
    operands = b.instruction.operands
    if len(operands) not in (3, 4):
        b.fail("3 or 4 operands are expected")
    p, address, phase, *hint = operands
    for x in hint:
        b.src(x, "u32")
    unit, width, offset = b.address(address, space)
    src = [unit, b.src(phase, "u32" if parity else "b64")]
    b.emit("mbar_wait", "b64", dst=[b.dst(p, "pred")], src=src, mods=mods, immediate=offset, width_src=width)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "bra": branch,
    "ret": leave,
    "exit": leave,
    "trap": trap,
    "bar": bar,
    "barrier": bar,
    "fence": fence,
    "membar": membar,
    "mbarrier": mbarrier,
}
