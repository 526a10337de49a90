"""cvt and cvt.pack (PTX ISA 9.7.9.21, 9.7.9.22)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS, TYPES
from fmha.emulator.decode.builder import Builder, width_of
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Register, Vector

_INTEGERS = {f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)}
_FLOATS = {"f16", "bf16", "f32", "f64"}
_NARROW = ("e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2")
_HALVES = ("f16x2", "bf16x2")
_OF = tuple(name for name in TYPES if name in {*_INTEGERS, *_FLOATS, *_NARROW, *_HALVES, "ue8m0x2", "s2f6x2"})
_TO = tuple(name for name in (*_OF, "tf32") if name != "s2f6x2")
_SIGNIFICAND = {"bf16": 8, "f16": 11, "tf32": 11, "f32": 24, "f64": 53}

_ROUNDING = {name: MODS[name] for name in ("rn", "rz", "rm", "rp", "rna")} | {
    f"{name}i": MODS[name] | MODS["round_int"] for name in ("rn", "rz", "rm", "rp")
}


def convert(b: Builder, m: Modifiers) -> None:
    """cvt, of every pair of types that is modelled."""
    if m.take("pack"):
        _pack_integers(b, m)
        return
    if m.take("rs"):
        _stochastic(b, m)
        return
    rounding = m.choose(_ROUNDING, -1)
    mods = max(rounding, 0)
    flags = [name for name in ("ftz", "sat", "relu", "satfinite") if m.take(name)]
    for name in flags:
        mods |= MODS[name]
    if m.take("scaled::n2::ue8m0"):
        flags.append("scaled")
        mods |= MODS["scaled"]
    to, of = m.type(_TO), m.type(_OF)
    m.done()
    if to in _NARROW or of in (*_NARROW, "s2f6x2") or "ue8m0x2" in (to, of) or to in _HALVES:
        _check_packed(b, to, of, rounding, set(flags))
        _emit_packed(b, to, of, mods)
        return
    _check_scalar(b, to, of, rounding, set(flags))
    d, s = b.operands(2)
    width_dst = width_of(d.type) if isinstance(d, Register) else width_of(to)
    width_src = width_of(s.type) if isinstance(s, Register) else width_of(of)
    dst, src = b.dst(d, to, any_width=True), b.src(s, of, any_width=True)
    b.emit("cvt", to, type2=of, dst=[dst], src=[src], mods=mods, width_dst=width_dst, width_src=width_src)


def _refuse(b: Builder, to: str, of: str) -> None:
    b.fail(f"there is no conversion from .{of} to .{to} with these modifiers")


def _check_packed(b: Builder, to: str, of: str, rounding: int, flags: set[str]) -> None:
    """The table of packed conversions: for each pair of types its roundings, and the flags it needs and may have."""
    rn, rz, rp = MODS["rn"], MODS["rz"], MODS["rp"]
    if to in _HALVES and of == "f32":
        roundings, needs, may = {rn, rz}, set(), {"relu", "satfinite"}
    elif to in _NARROW and of in ("f32", "f16x2", "bf16x2"):
        roundings, needs, may = {rn}, {"satfinite"}, {"relu"}
    elif to == "f16x2" and of in _NARROW:
        roundings, needs, may = {rn}, set(), {"relu"}
    elif to == "bf16x2" and of in (*_NARROW, "s2f6x2"):
        roundings, needs, may = {rn}, set(), {"relu", "satfinite", "scaled"}
    elif to == "ue8m0x2" and of in ("f32", "bf16x2"):
        roundings, needs, may = {rz, rp}, set(), {"satfinite"}
    elif to == "bf16x2" and of == "ue8m0x2":
        roundings, needs, may = {rn}, set(), set()
    else:
        _refuse(b, to, of)
        return
    if rounding not in roundings or not needs <= flags <= needs | may:
        _refuse(b, to, of)


def _emit_packed(b: Builder, to: str, of: str, mods: int) -> None:
    scaled = bool(mods & MODS["scaled"])
    d, *s = b.operands(3 if of == "f32" or scaled else 2)
    width_dst = width_of(d.type) if isinstance(d, Register) else width_of(to)
    width_src = width_of(s[0].type) if isinstance(s[0], Register) else width_of(of)
    dst = [b.dst(d, to, any_width=True)]
    src = [b.src(x, of, any_width=of == "e2m1x2") for x in (s[:1] if scaled else s)]
    if scaled:
        src.append(b.src(s[1], "b16"))
    b.emit("cvt_pack", to, type2=of, dst=dst, src=src, mods=mods, width_dst=width_dst, width_src=width_src)


def _check_scalar(b: Builder, to: str, of: str, rounding: int, flags: set[str]) -> None:
    to_int, of_int = to in _INTEGERS, of in _INTEGERS
    if not (to_int or to in _FLOATS or to == "tf32") or not (of_int or of in _FLOATS):
        _refuse(b, to, of)
    integral = rounding >= 0 and bool(rounding & MODS["round_int"])
    if to == "tf32":
        roundings = {MODS["rna"], MODS["rn"], MODS["rz"]}
        if of != "f32" or rounding not in roundings or not flags <= {"relu", "satfinite"}:
            _refuse(b, to, of)
    elif to_int and of_int:
        if rounding >= 0 or not flags <= {"sat"}:
            _refuse(b, to, of)
    elif to_int:
        if not integral:
            b.fail("a conversion to an integer needs .rni, .rzi, .rmi or .rpi")
    elif of_int:
        if rounding < 0 or integral or rounding & MODS["rna"]:
            b.fail("a conversion from an integer needs .rn, .rz, .rm or .rp")
    else:
        _check_float_to_float(b, to, of, rounding, flags, integral)
    if "ftz" in flags and "f32" not in (to, of):
        b.fail(".ftz needs a .f32 type")


def _check_float_to_float(b: Builder, to: str, of: str, rounding: int, flags: set[str], integral: bool) -> None:
    exact = _SIGNIFICAND[to] >= _SIGNIFICAND[of] and not (to == "f16" and of == "bf16")
    if integral and to != of:
        _refuse(b, to, of)
    if not exact and rounding < 0:
        b.fail(f"a conversion from .{of} to .{to} needs a rounding")
    if rounding >= 0 and rounding & MODS["rna"]:
        _refuse(b, to, of)
    if flags & {"relu", "satfinite"} and (to not in ("f16", "bf16") or rounding not in (MODS["rn"], MODS["rz"])):
        _refuse(b, to, of)


_FOURS = {f"{name.removesuffix('x2')}x4": name for name in _NARROW}


def _stochastic(b: Builder, m: Modifiers) -> None:
    """cvt.rs: `d, a, b, rbits` to pairs of halves, `d, {a, b, e, f}, rbits` to four narrow elements."""
    mods = MODS["relu"] if m.take("relu") else 0
    finite = m.take("satfinite")
    mods |= MODS["satfinite"] if finite else 0
    pair = m.choose({name: name for name in _HALVES}, "")
    to = pair or m.choose(_FOURS)
    m.need("f32")
    m.done()
    if not b.module.target.startswith(("sm_100a", "sm_103a")):
        b.fail(f"cvt.rs needs target sm_100a or sm_103a, the module is for {b.module.target}")
    if not pair and not finite:
        b.fail("cvt.rs to four elements needs .satfinite")
    d, *s = b.operands(4 if pair else 3)
    if not pair:
        if not isinstance(s[0], Vector) or len(s[0].items) != 4:
            b.fail("a vector of four sources is expected")
        s = [*s[0].items, s[1]]
    result = "b16" if to == "e2m1x2" else "b32"
    src = [*(b.src(x, "f32") for x in s[:-1]), b.src(s[-1], "b32")]
    b.emit("cvt_stochastic", to, dst=[b.dst(d, result)], src=src, mods=mods, width_dst=width_of(result), width_src=32)


_PACKED_INTEGERS = {f"{sign}{bits}": (bits, sign == "s") for sign in "us" for bits in (2, 4, 8, 16)}


def _pack_integers(b: Builder, m: Modifiers) -> None:
    m.need("sat")
    bits, signed = m.choose(_PACKED_INTEGERS)
    third = bits < 16
    m.need("s32")
    if third:
        m.need("b32")
    m.done()
    d, *s = b.operands(4 if third else 3)
    src = [b.src(x, "b32") for x in s]
    b.emit("cvt_int_pack", "b32", dst=[b.dst(d, "b32")], src=src, immediate=bits | signed << 8)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"cvt": convert}
