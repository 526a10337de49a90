"""CTA and cluster barriers, fences, mbarriers (PTX ISA 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Address, Immediate, Sink

_BAR_REDUCTIONS = {"popc": 9, "and": 6, "or": 7}


def bar(b: Builder, m: Modifiers) -> None:
    """bar, barrier: .sync, .arrive and .red. `bar` is `barrier.aligned`."""
    m.take("cta")
    action = m.choose({name: name for name in ("sync", "arrive", "red")})
    reduction = m.choose(_BAR_REDUCTIONS) if action == "red" else 0
    aligned = m.take("aligned") or b.instruction.opcode == "bar"
    result = ("u32" if reduction == _BAR_REDUCTIONS["popc"] else "pred") if reduction else None
    if result:
        m.need(result)
    m.done()
    mods = reduction << MODS["reduce_shift"] | (MODS["bar_arrive_only"] if action == "arrive" else 0)
    mods |= 0 if aligned else MODS["bar_lanes"]
    operands = list(b.instruction.operands)
    dst, predicate = [], []
    if result:
        if len(operands) not in (3, 4):
            b.fail("3 or 4 operands are expected")
        dst = [b.dst(operands.pop(0), result)]
        unit, negated = b.pred(operands.pop())
        predicate = [unit]
        mods |= MODS["bar_negated"] if negated else 0
    if len(operands) not in (1, 2) or (action == "arrive" and len(operands) == 1):
        b.fail("a barrier and, with .arrive, a thread count are expected")
    if len(operands) == 2:
        mods |= MODS["bar_has_count"]
    src = [*(b.src(x, "u32") for x in operands), *predicate]
    # For every lane the same, then: the core does not compare them.
    constant = int(all(isinstance(operand, Immediate) for operand in operands))
    b.emit("bar_red" if result else "bar", "u32", dst=dst, src=src, mods=mods, aligned=aligned, immediate=constant)


def fence(b: Builder, m: Modifiers) -> None:
    """fence: of memory, of proxies, of the initialisation of mbarriers."""
    if m.take("proxy"):
        _proxy_fence(b, m)
        return
    both = MODS["acquire"] | MODS["release"]
    sequential = both | MODS["sequential"]
    mods = m.choose({"sc": sequential, "acq_rel": both, "acquire": MODS["acquire"], "release": MODS["release"]}, both)
    if any(map(m.has, _SYNC_RESTRICT)):
        _sync_restrict(b, m, mods)
        mods |= MODS["fence_shared"]
    else:
        mods |= m.choose({"cta": MODS["cta_scope"], "cluster": 0, "gpu": 0, "sys": 0})
    m.done()
    b.emit("fence_acq_rel", mods=mods)


# The spaces that a fence may be restricted to, and the one semantics it then has (PTX ISA 9.7.13.4).
_SYNC_RESTRICT = {
    "sync_restrict::shared::cta": MODS["release"],
    "sync_restrict::shared::cluster": MODS["acquire"],
}


def _sync_restrict(b: Builder, m: Modifiers, semantics: int) -> None:
    if m.choose(_SYNC_RESTRICT) != semantics:
        b.fail(".release is restricted to .shared::cta, .acquire to .shared::cluster")
    m.need("cluster")


def _proxy_fence(b: Builder, m: Modifiers) -> None:
    if m.take("tensormap::generic"):
        _tensormap_fence(b, m)
        return
    if m.take("alias"):  # the machine has one address for each byte
        m.done()
        b.emit("nop")
        return
    if m.take("async::generic"):  # a proxy fence and a fence of one direction
        semantics = m.choose({"acquire": MODS["acquire"], "release": MODS["release"]})
        _sync_restrict(b, m, semantics)
        m.done()
        shared = MODS["fence_shared"]
        fences = [("fence_proxy_async", shared), ("fence_acq_rel", semantics | shared)]
        for op, mods in fences if semantics == MODS["release"] else reversed(fences):
            b.emit(op, mods=mods)
        return
    m.need("async")
    shared, everywhere = MODS["fence_shared"], MODS["fence_shared"] | MODS["fence_global"]
    spaces = {"global": MODS["fence_global"], "shared::cta": shared, "shared::cluster": shared}
    mods = m.choose(spaces, everywhere)
    m.done()
    b.emit("fence_proxy_async", mods=mods)


def _tensormap_fence(b: Builder, m: Modifiers) -> None:
    acquire = m.choose({"acquire": True, "release": False})
    m.choose({"cta": 0, "cluster": 1, "gpu": 2, "sys": 3})
    m.done()
    if not acquire:
        b.emit("fence")
        return
    address, size = b.operands(2)
    if not isinstance(size, Immediate) or size.bits != 128:
        b.fail("the size of a tensor map, 128, is expected")
    b.emit("tensormap_fence", "b64", src=[b.address_value(address, "generic", 64)])


def membar(b: Builder, m: Modifiers) -> None:
    """membar, the older name of a sequential fence."""
    if m.take("proxy"):
        _proxy_fence(b, m)
        return
    scope = m.choose({"cta": MODS["cta_scope"], "gl": 0, "sys": 0})
    m.done()
    b.emit("fence_acq_rel", mods=MODS["acquire"] | MODS["release"] | MODS["sequential"] | scope)


_SHARED = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "shared::cluster"}


def mbarrier(b: Builder, m: Modifiers) -> None:
    """mbarrier.*: all but what a line of syntax describes."""
    action = m.choose({name: name for name in ("arrive", "arrive_drop", "test_wait", "try_wait")})
    # Without a space the address is generic; a number within the shared window means the same either way.
    space = m.choose(_SHARED, "shared")
    if action in ("test_wait", "try_wait"):
        if space == "shared::cluster":
            b.fail(f"mbarrier.{action} has no .shared::cluster form")
        _wait(b, m, action, space)
    else:
        _arrive(b, m, space, drop=action == "arrive_drop")


def _semantics(m: Modifiers) -> int:
    relaxed = m.choose({"relaxed": True, "acquire": False, "release": False}, False)
    # One that is not written is taken for the widest that the operation may need.
    scope = m.choose({"cta": MODS["cta_scope"], "cluster": 0}, 0)
    return scope | (MODS["mbar_relaxed"] if relaxed else 0)


def _arrive(b: Builder, m: Modifiers, space: str, *, drop: bool) -> None:
    mods = MODS["mbar_drop"] if drop else 0
    mods |= MODS["mbar_expect_tx"] if m.take("expect_tx") else 0
    mods |= MODS["mbar_no_complete"] if m.take("noComplete") else 0
    mods |= _semantics(m)
    m.need("b64")
    m.done()
    operands = list(b.instruction.operands)
    with_state = bool(operands) and not isinstance(operands[0], Address)
    if with_state and space == "shared::cluster" and not isinstance(operands[0], Sink):
        b.fail("an arrival at .shared::cluster returns no state: the sink _ is expected")
    state = [b.dst(operands.pop(0), "b64")] if with_state else []
    needs_two = mods & (MODS["mbar_expect_tx"] | MODS["mbar_no_complete"])
    if not 1 <= len(operands) <= 2 or (needs_two and len(operands) != 2):
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
    "bar": bar,
    "barrier": bar,
    "fence": fence,
    "membar": membar,
    "mbarrier": mbarrier,
}
