"""A legal instruction for an opcode as it is written in PTX: "add.rn.f32x2" -> "add.rn.f32x2 %d1, %d2, %d3;"."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator.decode.table import Form, SyntaxOperand, line_of

_REGISTERS = {1: "%p", 8: "%h", 16: "%h", 32: "%r", 64: "%d", 128: "%q"}
_WIDTHS = {"pred": 1, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "bf16": 16, "e4m3x2": 16, "e5m2x2": 16, "ue8m0x2": 16}
HEADER = """.version 9.0
.target sm_100a
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 list);
.visible .entry k(.param .align 16 .b8 par[256])
{
  .reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<300>; .reg .b64 %d<40>; .reg .b128 %q<9>;
  .param .align 16 .b8 arg[64];
  .param .b64 arg0;
  .param .b32 status0;
  .local .align 16 .b8 frame[64];
  .shared .align 16 .b8 tile[64];
L0:
table: .branchtargets L0, L1;
  %s
L1:
  ret;
}
"""


def module(opcode: str) -> str:
    """A whole module around the sample of an opcode."""
    return HEADER.replace("%s", sample(opcode))


def sample(opcode: str) -> str:
    name, *modifiers = opcode.split(".")
    found = line_of(name, tuple(modifiers))
    operands = _of_line(found[0], modifiers) if found else _FAMILIES.get(name, _plain)(name, modifiers)
    return f"{opcode} {operands};".replace(" ;", ";")


def _of_line(form: Form, modifiers: list[str]) -> str:
    """The operands that a line of the table names."""
    type_name = next(filter(_is_type, modifiers), "")
    return ", ".join(_operand(operand, type_name, n + 1) for n, operand in enumerate(form.operands))


def _operand(operand: SyntaxOperand, type_name: str, number: int) -> str:
    if operand.space:
        return f"[{'%r' if operand.space == 'shared' else '%d'}{number}]"
    if operand.constant:
        return str(number)
    register = _reg(operand.type or type_name, number)
    return f"{register}|{_reg(operand.pair, number)}" if operand.pair else register


def _width(type_name: str) -> int:
    return _WIDTHS[type_name] if type_name in _WIDTHS else int("".join(c for c in type_name if c.isdigit()))


def _is_type(name: str) -> bool:
    return name in _WIDTHS or (name[0] in "bsuf" and name[1:].isdigit())


def _reg(type_name: str, number: int) -> str:
    return f"{_REGISTERS[_width(type_name)]}{number}"


def _regs(prefix: str, count: int, first: int = 1) -> str:
    return "{" + ", ".join(f"{prefix}{first + n}" for n in range(count)) + "}"


_SOURCES = {
    "mov": 1,
    "neg": 1,
    "abs": 1,
    "rcp": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "mad": 3,
    "fma": 3,
}


def _plain(name: str, modifiers: list[str]) -> str:
    type_name = [x for x in modifiers if _is_type(x)][-1]
    sources = [_reg(type_name, n + 2) for n in range(_SOURCES.get(name, 2))]
    result = type_name
    if "wide" in modifiers:
        result = f"b{2 * _width(type_name)}"
        sources[2:] = [_reg(result, 4)] * (name == "mad")
    return ", ".join([_reg(result, 1), *sources])


def _setp(_: str, modifiers: list[str]) -> str:
    return f"%p1, {_reg(modifiers[-1], 1)}, {_reg(modifiers[-1], 2)}"


def _selp(_: str, modifiers: list[str]) -> str:
    return ", ".join([*(_reg(modifiers[-1], n) for n in (1, 2, 3)), "%p1"])


def _cvt(_: str, modifiers: list[str]) -> str:
    to, of = (x for x in modifiers if _is_type(x))
    packs = to.endswith("x2") and of == "f32"
    return ", ".join([_reg(to, 1), _reg(of, 2), *([_reg(of, 3)] if packs else [])])


def _space(modifiers: list[str]) -> str:
    return next((x.split("::")[0] for x in modifiers if x.split("::")[0] in ("global", "shared", "local", "param")), "")


def _items(modifiers: list[str]) -> str:
    type_name = [x for x in modifiers if _is_type(x)][-1]
    count = next((int(x[1:]) for x in modifiers if x in ("v2", "v4", "v8")), 0)
    prefix = _REGISTERS[_width(type_name)]
    return _regs(prefix, count, 3) if count else f"{prefix}3"


def _load(_: str, modifiers: list[str]) -> str:
    address = {"shared": "[%r1]", "param": "[par+16]"}.get(_space(modifiers), "[%d1]")
    return f"{_items(modifiers)}, {address}"


def _store(_: str, modifiers: list[str]) -> str:
    address = {"shared": "[%r1]", "param": "[arg+16]"}.get(_space(modifiers), "[%d1]")
    return f"{address}, {_items(modifiers)}"


def _copy(_: str, modifiers: list[str]) -> str:
    """cp.async and cp.async.bulk."""
    if "bulk" not in modifiers:
        return "[%r1], [%d1], 16"
    out = modifiers.index("global") < next(n for n, x in enumerate(modifiers) if x.startswith("shared"))
    hint = ["%d9"] if "L2::cache_hint" in modifiers else []
    if "tensor" not in modifiers:
        return ", ".join(["[%d1]", "[%r1]", "%r2", *hint])
    dims = next(int(x[0]) for x in modifiers if x in ("1d", "2d", "3d", "4d", "5d"))
    box = f"[%d2, {_regs('%r', 5 if 'tile::gather4' in modifiers else dims, 10)}]"
    if out:
        return ", ".join([box, "[%r1]", *hint])
    mask = ["%h1"] if "multicast::cluster" in modifiers else []
    return ", ".join(["[%r1]", box, "[%r2]", *mask, *hint])


def _mbarrier(_: str, modifiers: list[str]) -> str:
    remote = "shared::cluster" in modifiers
    match modifiers[0]:
        case "try_wait":
            return "%p1, [%r1], %r2"
    count = ", %r2" if "expect_tx" in modifiers else ""
    return f"{'_' if remote else '%d1'}, [%r1]{count}"


_TCGEN05_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4}


def _tcgen05(_: str, modifiers: list[str]) -> str:
    match modifiers[0]:
        case "ld" | "st":
            shape = next(x for x in modifiers if x in _TCGEN05_REGISTERS)
            repeat = next(int(x[1:]) for x in modifiers if x[0] == "x" and x[1:].isdigit())
            registers = _regs("%r", repeat * _TCGEN05_REGISTERS[shape], 10)
            return f"{registers}, [%r1]" if modifiers[0] == "ld" else f"[%r1], {registers}"
        case "mma":
            return "[%r1], %d1, %d2, %r2, %p1"
        case "cp":
            return "[%r1], %d1"
        case "commit":
            address = "[%r1]" if any(x.startswith("shared") for x in modifiers) else "[%d1]"
            return f"{address}, %h1" if "multicast::cluster" in modifiers else address
    return ""


def _barrier(_: str, modifiers: list[str]) -> str:
    return "1, 64"


def _matrix(name: str, modifiers: list[str]) -> str:
    registers = _regs("%r", next(int(x[1:]) for x in modifiers if x in ("x1", "x2", "x4")), 10)
    return f"{registers}, [%r1]" if name == "ldmatrix" else f"[%r1], {registers}"


def _cancel(_: str, modifiers: list[str]) -> str:
    if modifiers[0] == "try_cancel":
        return "[%r1], [%r2]"
    return "%p1, %q1" if "pred" in modifiers else "{%r1, %r2, %r3, %r4}, %q1"


def _cvta(_: str, __: list[str]) -> str:
    return "%d1, %d2"


def _vote(_: str, modifiers: list[str]) -> str:
    return f"{'%p2' if modifiers[-1] == 'pred' else '%r1'}, %p1, -1"


def _fixed(operands: str) -> Callable[[str, list[str]], str]:
    return lambda _, __: operands


_FAMILIES: dict[str, Callable[[str, list[str]], str]] = {
    "setp": _setp,
    "selp": _selp,
    "cvt": _cvt,
    "cvta": _cvta,
    "ld": _load,
    "st": _store,
    "cp": _copy,
    "mbarrier": _mbarrier,
    "tcgen05": _tcgen05,
    "bar": _barrier,
    "barrier": _barrier,
    "ldmatrix": _matrix,
    "stmatrix": _matrix,
    "clusterlaunchcontrol": _cancel,
    "vote": _vote,
    "bra": _fixed("L1"),
    "brx": _fixed("%r1, table"),
    "call": _fixed("(status0), vprintf, (arg0, arg0)"),
    "createpolicy": _fixed("%d1, 0f3F800000"),
    "fence": _fixed(""),
    "brkpt": _fixed(""),
    "mapa": _fixed("%r1, %r2, %r3"),
    "mma": _fixed("{%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%r9, %r10}, {%r1, %r2, %r3, %r4}"),
    "prefetch": _fixed("[%d1]"),
    "setmaxnreg": _fixed("64"),
    "shfl": _fixed("%r1|%p1, %r2, %r3, 31, -1"),
}
