"""The debugger's front end for a terminal, and for scripts: commands in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from fmha.emulator import _core
from fmha.emulator.debug.barrier_phases import warps_named
from fmha.emulator.debug.observe import words
from fmha.emulator.debug.session import DebugSession, Go, Stop, WrongCommandError, number, parse_break
from fmha.emulator.ptx.parsed_module import Address, Negated, PredicatePair, Register, Selected, TensorAddress, Vector

HELP: Final = """\
break WHERE [if %r == N]   at a PTX line, FILE:LINE, or `barrier 0xOFFSET`; delete removes all
continue, c                to the next break, hazard or hang
step [N], s                the next instruction of this warp
any                        the next instruction of any warp
async                      to the end of the next asynchronous operation
back, b                    the instruction of this warp before this one
reverse                    to the break before this place
where                      every warp: its place, and what it waits for
barriers                   every mbarrier of this CTA: phase, arrivals and bytes that are missing
pending                    asynchronous operations that are not complete
print [%r ...]             registers; without names those of this instruction
smem OFFSET [WORDS]        shared memory
tmem LANE COLUMN [COUNT]   tensor memory
hazards on|off             whether hazards stop the launch
quit, q"""
_GOES: Final[dict[str, Go]] = {
    "continue": "continue",
    "c": "continue",
    "any": "any",
    "async": "async",
    "back": "back",
    "b": "back",
    "reverse": "reverse",
    "quit": "quit",
    "q": "quit",
}
_LANES: Final = 4  # whose values are printed where they differ


class Terminal:
    """Reads a command a line from `lines`; ends when there are none."""

    def __init__(self, lines: Iterator[str], say: Callable[[str], None]) -> None:
        self._lines, self._say = lines, say
        self._steps = 0

    def __call__(self, session: DebugSession, stop: Stop) -> Go:
        if self._steps and not stop.ended and stop.why == "step":
            self._steps -= 1
            return "step"
        self._steps = 0
        self._say(_place(session, stop))
        for line in self._lines:
            words_of = line.split()
            if not words_of or words_of[0].startswith("#"):
                continue
            if words_of[0] in ("step", "s"):
                self._steps = int(words_of[1]) - 1 if words_of[1:] and words_of[1].isdigit() else 0
                return "step"
            if words_of[0] in _GOES:
                return _GOES[words_of[0]]
            try:
                for said in answer(session, stop, words_of, line):
                    self._say(said)
            except WrongCommandError as error:
                self._say(f"{error}")
        return "quit"


def answer(session: DebugSession, stop: Stop, command: list[str], line: str) -> Iterator[str]:
    """To a command that leaves the launch where it is; WrongCommandError for one that is none."""
    match command:
        case ["help"]:
            yield HELP
        case ["break", _, *_]:
            made = parse_break(line.split(None, 1)[1])
            if made.barrier < 0 and not session.places(made):
                raise WrongCommandError(f"no instruction is at {made.text}")
            session.breaks.append(made)
            yield f"break at {made.text}"
        case ["delete"]:
            session.breaks.clear()
        case ["hazards", ("on" | "off") as which]:
            session.hazards = which == "on"
        case ["where"]:
            yield from where(session)
        case ["barriers"]:
            yield from barriers(session, max(stop.rank, 0))
        case ["pending"]:
            yield from pending(session)
        case ["print", *names]:
            yield from registers(session, stop, names)
        case ["smem", offset, *count]:
            yield from shared(session, stop, number(offset), number(count[0]) if count else 4)
        case ["tmem", lane, column, *count]:
            yield from tensor(session, stop, number(lane), number(column), number(count[0]) if count else 4)
        case _:
            raise WrongCommandError(f"{line!r}: no such command; help lists them")


def _place(session: DebugSession, stop: Stop) -> str:
    if stop.ended:
        return stop.why
    who = f"CTA {stop.cta}, warp {stop.warp}" if stop.warp >= 0 else "the machine"
    return f"[{stop.launch}:{stop.event}] {stop.why}: {who} at {session.line(stop.pc)}"


def where(session: DebugSession) -> Iterator[str]:
    """Warps at one place that wait for one thing are one line."""
    groups: dict[tuple[int, int, str], list[int]] = {}
    for warp in session.observer.warps():
        for f in warp["fragments"] if warp["live"] else []:
            groups.setdefault((warp["cta"], f["pc"], f["for"]), []).append(warp["warp"])
    for (cta, pc, why), members in groups.items():
        yield f"CTA {cta}, {warps_named(members)}, {session.line(pc)}" + (f"; waits for {why}" if why else "")


def barriers(session: DebugSession, rank: int) -> Iterator[str]:
    """Of a CTA's mbarriers a line each: arrivals, bytes that are outstanding, phase, and the warps that wait."""
    waiting: dict[int, list[int]] = {}
    for warp in session.observer.warps():
        for f in warp["fragments"]:
            if f["mbarrier"] and f["rank"] == rank:
                waiting.setdefault(f["offset"], []).append(warp["warp"])
    for bar in sorted(session.observer.mbarriers(rank), key=lambda b: int(b["offset"])):
        arrivals = f"{bar['pending']} of {bar['expected']} arrivals"
        state = f"phase {bar['phase']}, {arrivals} and {bar['tx']} bytes missing"
        who = f"; {warps_named(waiting[bar['offset']])} waiting" if bar["offset"] in waiting else ""
        yield f"mbarrier 0x{bar['offset']:x}: {state}{who}"


def pending(session: DebugSession) -> Iterator[str]:
    """A line for each asynchronous operation that is under way."""
    for op in session.observer.pending():
        what = "tensor core" if op["tensor"] else "copy"
        yield f"{what}, issued by warp {op['warp']} of CTA {op['cta']} at {session.line(op['pc'])}"


def registers(session: DebugSession, stop: Stop, names: list[str]) -> Iterator[str]:
    """Values of registers in the lanes of the stopped warp; without names, those of its instruction."""
    if stop.warp < 0:
        raise WrongCommandError("no warp is at an instruction here")
    for name in names or _named(session, stop.pc):
        try:
            values = session.register(name, stop.rank, stop.warp, stop.pc)
        except WrongCommandError as error:
            if names:
                raise
            yield f"{name}: {error}"
            continue
        lanes = [lane for lane in range(32) if stop.mask >> lane & 1] or list(range(32))
        found = [int(values[lane]) for lane in lanes]
        if len(set(found)) == 1:
            yield f"{name} = {_written(found[0])}"
        else:
            some = ", ".join(f"lane {lane} {_written(x)}" for lane, x in list(zip(lanes, found, strict=True))[:_LANES])
            yield f"{name} = {some}, ..."
    yield from _descriptors(session, stop)


def _written(bits: int) -> str:
    if bits < 2:
        return str(bits)
    real = float(np.array([bits & 0xFFFFFFFF], np.uint32).view(np.float32)[0])
    return f"0x{bits:x} ({bits})" if bits >> 32 or not 1e-6 < abs(real) < 1e9 else f"0x{bits:x} ({real:g})"


def _named(session: DebugSession, pc: int) -> list[str]:
    """The registers that an instruction names, in order."""
    found: list[str] = []

    def look(operand: object) -> None:
        match operand:
            case Register():
                found.append(operand.name)
            case Vector(items=items):
                for item in items:
                    look(item)
            case Address(base=base):
                look(base)
            case TensorAddress(descriptor=descriptor, coordinates=coordinates):
                look(descriptor)
                for item in coordinates:
                    look(item)
            case Negated(register=register) | Selected(register=register):
                look(register)
            case PredicatePair(first=first, second=second):
                look(first)
                look(second)

    instruction = session.sources[pc]
    if instruction.guard:
        found.append(instruction.guard.register.name)
    for operand in instruction.operands:
        look(operand)
    return list(dict.fromkeys(found))


def _descriptors(session: DebugSession, stop: Stop) -> Iterator[str]:
    """The descriptors of a tcgen05.mma, in words."""
    instruction = session.sources[stop.pc]
    if not instruction.mnemonic.startswith("tcgen05.mma"):
        return
    lane = (stop.mask & -stop.mask).bit_length() - 1
    for which, operand in zip("AB", instruction.operands[1:3], strict=True):
        if isinstance(operand, Register):
            bits = int(session.register(operand.name, stop.rank, stop.warp, stop.pc)[lane])
            found = _core.decode_matrix(bits)
            yield f"{which}: " + found.get("wrong", "".join(f"{k} {v}, " for k, v in found.items()).rstrip(", "))


def shared(session: DebugSession, stop: Stop, offset: int, count: int) -> Iterator[str]:
    """Words of shared memory in hexadecimal, 16 bytes a line. WrongCommandError beyond its end."""
    memory = words(session.observer.shared(max(stop.rank, 0)), np.uint8)
    if offset % 4 or not 0 <= offset <= len(memory) - 4 * count:
        raise WrongCommandError(f"shared memory ends at 0x{len(memory):x}; offsets are multiples of 4")
    for at in range(offset, offset + 4 * count, 16):
        row = memory[at : min(at + 16, offset + 4 * count)].view(np.uint32)
        yield f"0x{at:05x}: {' '.join(f'{int(x):08x}' for x in row)}"


def tensor(session: DebugSession, stop: Stop, lane: int, column: int, count: int) -> Iterator[str]:
    """Columns of one lane of tensor memory, as floats and as words. WrongCommandError for what is not there."""
    memory = words(session.observer.tensor(max(stop.rank, 0)))
    if not len(memory):
        raise WrongCommandError("nothing is allocated in tensor memory")
    if not (0 <= lane < 128 and column >= 0 and column + count <= 512):
        raise WrongCommandError("tensor memory has 128 lanes of 512 columns")
    row = memory.reshape(128, 512)[lane, column : column + count]
    floats = row.copy().view(np.float32)
    yield f"lane {lane}, column {column}: " + " ".join(
        f"{int(x):08x} ({f:g})" for x, f in zip(row, floats, strict=True)
    )
