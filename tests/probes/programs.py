"""Programs made at random from the instructions of scalar.py: branches, loops, switches and calls whose lanes diverge,
what a warp does together, memory of every space. Which of them a seed gives is fixed: a generator of its own.

Each thread keeps 10 registers of 32 bits, 4 of 64, 4 of 16 and 4 predicates. After each statement of the outermost
level they are folded to one word a thread, and those of a warp are added: the first word that differs says where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from tests.probes.case import Case, In, Out, hashed, hashed32
from tests.probes.inputs import EDGES
from tests.probes.scalar import ROWS, Row

_T = TypeVar("_T")

PROGRAMS = 128
STATEMENTS = 12  # of the outermost level
THREADS = 64
_WORDS = 32  # of input, a thread
_DEPTH = 3
_COUNT = {"r": 10, "l": 4, "h": 4, "p": 4}
_CLASS = {1: "h", 2: "h", 4: "r", 8: "l"}
# Left out: approximations, which have probes of their own (mufu.cu); fns, whose count has a range; fields of 64 bits,
# of whose place and length the ISA takes eight bits and ptxas's code all of them.
_EXACT = tuple(r for r in ROWS if ".approx" not in r.asm and r.words == 1 and "sync" not in r.asm)
_PLAIN = tuple(r for r in _EXACT if not r.name.startswith(("fns", "bfe_u64", "bfe_s64", "bfi_b64")))
# ptxas 13.0 converts the result of a guarded set to f32 where the guard is false, too.
_GUARDED = tuple(r for r in _PLAIN if "{" not in r.asm and r.name != "set_lt_f32_f32")
_CANONICAL = {  # a NaN's bits are open in PTX: of all NaNs of a result one is made
    "f32": "{ .reg .pred q; setp.nan.f32 q, %0, %0; @q mov.b32 %0, 0x7fffffff; }",
    "f64": "{ .reg .pred q; setp.nan.f64 q, %0, %0; @q mov.b64 %0, 0x7fffffffffffffff; }",
    "f16": "{ .reg .pred q; setp.nan.f16 q, %0, %0; @q mov.b16 %0, 0x7fff; }",
    "bf16": "{ .reg .pred q; setp.nan.bf16 q, %0, %0; @q mov.b16 %0, 0x7fff; }",
    "f16x2": "{ .reg .pred q, s; .reg .b16 a, b; mov.b32 {a, b}, %0; setp.nan.f16 q, a, a; setp.nan.f16 s, b, b; "
    "@q mov.b16 a, 0x7fff; @s mov.b16 b, 0x7fff; mov.b32 %0, {a, b}; }",
    "bf16x2": "{ .reg .pred q, s; .reg .b16 a, b; mov.b32 {a, b}, %0; setp.nan.bf16 q, a, a; setp.nan.bf16 s, b, b; "
    "@q mov.b16 a, 0x7fff; @s mov.b16 b, 0x7fff; mov.b32 %0, {a, b}; }",
}
_FUNCTIONS = 4


class _Draw:
    """Numbers of splitmix64 (case.hashed), which no version of Python changes."""

    def __init__(self, seed: int) -> None:
        self._numbers = iter(hashed(1 << 16, 7000 + seed).tolist())

    def below(self, n: int) -> int:
        return int(next(self._numbers)) % n

    def of(self, values: Sequence[_T]) -> _T:
        return values[self.below(len(values))]

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == 0


class _Program:
    def __init__(self, seed: int) -> None:
        self.draw = _Draw(seed)
        self.lines: list[str] = []
        self._labels = 0

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def label(self) -> str:
        self._labels += 1
        return f"$L{self._labels}"

    def register(self, kind: str) -> str:
        return f"%{kind}{self.draw.below(_COUNT[kind])}"

    def guard(self) -> str:
        return f"@{self.draw.of(('', '!'))}{self.register('p')} "

    # Every lane for itself.

    def row(self) -> None:
        row = self.draw.of(_PLAIN)
        self.emit(*_instruction(row, self.register(row.result), [self.register(c) for c in _classes(row)]))

    def guarded(self) -> None:
        row = self.draw.of(_GUARDED)
        target = self.register(row.result)
        first, *canonical = _instruction(row, target, [self.register(c) for c in _classes(row)])
        self.emit(self.guard() + first, *canonical)

    def immediate(self) -> None:
        kind, bits = self.draw.of((("r", 32), ("l", 64), ("h", 16)))
        op = self.draw.of(("add.s", "sub.s", "and.b", "or.b", "xor.b", "mul.lo.s"))
        value = self.draw.of((1, 3, 7, 0x55, 255, -1, -77, 4096))
        self.emit(f"{op}{bits} {self.register(kind)}, {self.register(kind)}, {value};")

    def compare(self) -> None:
        kind = self.draw.of(("u32", "s32", "f32", "f64", "s64", "u64", "u16", "s16"))
        order = self.draw.of(("eq", "ne", "lt", "le", "gt", "ge"))
        register = {"32": "r", "64": "l", "16": "h"}[kind[1:]]
        a, b = self.register(register), self.register(register)
        first, second = self.draw.below(4), self.draw.below(3)
        p, q = f"%p{first}", f"%p{(first + 1 + second) % 4}"
        match self.draw.below(3):
            case 0:
                self.emit(f"setp.{order}.{kind} {p}, {a}, {b};")
            case 1:
                self.emit(f"setp.{order}.{kind} {p}|{q}, {a}, {b};")
            case _:
                both = self.draw.of(("and", "or", "xor"))
                self.emit(
                    f"setp.{order}.{both}.{kind} {p}|{q}, {a}, {b}, {self.draw.of(('', '!'))}{self.register('p')};"
                )

    def predicates(self) -> None:
        op = self.draw.of(("and", "or", "xor"))
        self.emit(f"{op}.pred {self.register('p')}, {self.register('p')}, {self.register('p')};")

    def pack(self) -> None:
        wide, narrow = self.draw.of((("l", "r"), ("r", "h")))
        size = {"l": 64, "r": 32}[wide]
        pair = f"{{{self.register(narrow)}, {self.register(narrow)}}}"
        if self.draw.chance(2):
            self.emit(f"mov.b{size} {self.register(wide)}, {pair};")
            return
        first = self.draw.below(_COUNT[narrow] - 1)
        self.emit(f"mov.b{size} {{%{narrow}{first}, %{narrow}{first + 1}}}, {self.register(wide)};")

    def convert_width(self) -> None:
        to, of = self.draw.of(
            (("s64", "s32"), ("u64", "u32"), ("u32", "u64"), ("s32", "s16"), ("u32", "u16"), ("u16", "u32"))
        )
        register = {"32": "r", "64": "l", "16": "h"}
        self.emit(f"cvt.{to}.{of} {self.register(register[to[1:]])}, {self.register(register[of[1:]])};")

    def refresh(self) -> None:
        """A word of the input that the lane chooses by itself."""
        at = self.register("r")
        self.emit(
            f"and.b32 %t0, {at}, {_WORDS * THREADS - 1};",
            "mul.wide.u32 %u0, %t0, 4;",
            "add.s64 %u0, %u0, %in;",
            f"ld.global.{self.draw.of(('b32', 'u8', 's8', 's16', 'u16'))} {self.register('r')}, [%u0];",
        )

    def local(self) -> None:
        """Through 64 bytes of local memory, at an address that depends on data."""
        stored, loaded = self.draw.of(((1, 4), (4, 1), (2, 2), (4, 2), (2, 4), (4, 4)))
        source = f"{{{', '.join(self.register('r') for _ in range(stored))}}}" if stored > 1 else self.register("r")
        first = self.draw.below(_COUNT["r"] - loaded + 1)
        target = f"{{{', '.join(f'%r{first + i}' for i in range(loaded))}}}" if loaded > 1 else f"%r{first}"
        vector = {1: "", 2: ".v2", 4: ".v4"}
        self.emit(f"and.b32 %t0, {self.register('r')}, {64 - 4 * stored & ~(4 * stored - 1)};", "cvt.u64.u32 %u0, %t0;")
        self.emit("mov.u64 %u1, stack;", "add.s64 %u0, %u0, %u1;", f"st.local{vector[stored]}.b32 [%u0], {source};")
        self.emit(f"and.b32 %t0, {self.register('r')}, {64 - 4 * loaded & ~(4 * loaded - 1)};", "cvt.u64.u32 %u0, %t0;")
        self.emit("add.s64 %u0, %u0, %u1;", f"ld.local{vector[loaded]}.b32 {target}, [%u0];")

    def call(self) -> None:
        arguments = f"({self.register('r')}, {self.register('r')}, {self.register('l')})"
        self.emit(f"call ({self.register('r')}), f{self.draw.below(_FUNCTIONS)}, {arguments};")

    # Control flow. `together`: the register with the lanes that are here, all of which come.

    def branch(self, depth: int, together: str) -> None:
        p, other, join, mask = self.register("p"), self.label(), self.label(), f"%m{depth}"
        self.emit(f"vote.sync.ballot.b32 {mask}, {p}, {together};", f"@!{p} bra {other};")
        self.block(depth, mask)
        self.emit(f"bra {join};", f"{other}:")
        self.emit(f"not.b32 {mask}, {mask};", f"and.b32 {mask}, {mask}, {together};")
        self.block(depth, mask)
        self.emit(f"{join}:")

    def loop(self, depth: int, together: str) -> None:
        """Up to seven times, as many as the lane's register says."""
        counter, mask, again, out = f"%c{depth}", f"%m{depth}", self.label(), self.label()
        self.emit(f"and.b32 {counter}, {self.register('r')}, 7;", f"mov.b32 {mask}, {together};", f"{again}:")
        self.emit(f"setp.ne.u32 %g, {counter}, 0;", f"vote.sync.ballot.b32 {mask}, %g, {mask};", f"@!%g bra {out};")
        self.block(depth, mask)
        self.emit(f"sub.u32 {counter}, {counter}, 1;", f"bra {again};", f"{out}:")

    def switch(self, depth: int, together: str) -> None:
        targets, join, mask = [self.label() for _ in range(3)], self.label(), f"%m{depth}"
        table = self.label().replace("$L", "$T")
        self.emit(f"rem.u32 %t0, {self.register('r')}, 3;", f"match.any.sync.b32 {mask}, %t0, {together};")
        self.emit(f"{table}: .branchtargets {', '.join(targets)};", f"brx.idx %t0, {table};")
        for target in targets:
            self.emit(f"{target}:")
            self.block(depth, mask)
            self.emit(f"bra {join};")
        self.emit(f"{join}:")

    # The lanes of `together` do it at once.

    def exchange(self, together: str) -> None:
        """A shuffle from the lane across, or from itself where that one is not here."""
        self.emit(f"xor.b32 %t0, %lane, {1 << self.draw.below(5)};", f"shr.u32 %t1, {together}, %t0;")
        self.emit("and.b32 %t1, %t1, 1;", "setp.ne.u32 %g, %t1, 0;", "selp.b32 %t0, %t0, %lane, %g;")
        self.emit(f"shfl.sync.idx.b32 {self.register('r')}, {self.register('r')}, %t0, 31, {together};")

    def reduce(self, together: str) -> None:
        op = self.draw.of(("add.u32", "add.s32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32"))
        self.emit(f"redux.sync.{op} {self.register('r')}, {self.register('r')}, {together};")

    def vote(self, together: str) -> None:
        how = self.draw.of(("all", "any", "uni", "ballot"))
        if how == "ballot":
            self.emit(f"vote.sync.ballot.b32 {self.register('r')}, {self.register('p')}, {together};")
        else:
            self.emit(f"vote.sync.{how}.pred {self.register('p')}, {self.register('p')}, {together};")

    def match(self, together: str) -> None:
        kind = self.draw.of("rl")
        size = 32 if kind == "r" else 64
        self.emit(f"match.any.sync.b{size} {self.register('r')}, {self.register(kind)}, {together};")

    # The whole CTA.

    def neighbour(self) -> None:
        """What another thread put into shared memory."""
        distance, size = self.draw.below(THREADS), self.draw.of(("b32", "u8", "s16"))
        self.emit(f"st.shared.b32 [%slot], {self.register('r')};", "bar.sync 0;")
        self.emit(f"add.u32 %t0, %me, {distance};", f"and.b32 %t0, %t0, {THREADS - 1};", "shl.b32 %t0, %t0, 2;")
        self.emit(
            "mov.u32 %t1, slots;",
            "add.u32 %t0, %t0, %t1;",
            f"ld.shared.{size} {self.register('r')}, [%t0];",
            "bar.sync 0;",
        )

    def reductions(self) -> None:
        """Of shared memory: their order is open, their result is not."""
        op = self.draw.of(("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"))
        slot = self.register("r")
        self.emit(f"st.shared.b32 [%slot], {self.draw.of((0, -1, 77))};", "bar.sync 0;", f"and.b32 %t0, {slot}, 28;")
        self.emit(
            "mov.u32 %t1, slots;",
            "add.u32 %t0, %t0, %t1;",
            f"red.shared.{op} [%t0], {self.register('r')};",
            "bar.sync 0;",
        )
        self.emit(f"ld.shared.b32 {self.register('r')}, [%t0];", "bar.sync 0;")

    # What follows what.

    def block(self, depth: int, together: str) -> None:
        for _ in range(1 + self.draw.below(4)):
            self.statement(depth, together)

    def statement(self, depth: int, together: str) -> None:
        alone: tuple[Callable[[], None], ...] = (
            self.row, self.row, self.row, self.row, self.guarded, self.guarded, self.immediate, self.compare,
            self.compare, self.predicates, self.pack, self.convert_width, self.refresh, self.local, self.call,
        )  # fmt: skip
        choice = self.draw.below(24)
        if choice < 5 and depth < _DEPTH:
            self.draw.of((self.branch, self.branch, self.loop, self.switch))(depth + 1, together)
        elif choice < 8:
            self.draw.of((self.exchange, self.reduce, self.vote, self.match))(together)
        else:
            self.draw.of(alone)()

    def outermost(self) -> None:
        if self.draw.chance(8):
            self.draw.of((self.neighbour, self.reductions))()
        else:
            for _ in range(3):
                self.statement(0, "%m0")


def _classes(row: Row) -> list[str]:
    return [_CLASS[EDGES[k].dtype.itemsize] for k in row.inputs]


def _instruction(row: Row, target: str, sources: Sequence[str]) -> list[str]:
    """The row's PTX, and what makes one NaN of all."""
    text = row.asm
    for i, register in reversed(list(enumerate([target, *sources]))):
        text = text.replace(f"%{i}", register.replace("%", "\0"))
    text = text.replace("\0", "%")
    return [text, _CANONICAL[row.nan].replace("%0", target)] if row.nan else [text]


def _declarations(arrays: Sequence[str]) -> list[str]:
    return [
        ".reg .b32 %r<10>, %t<3>, %m<5>, %c<5>;", ".reg .b32 %lane, %me, %slot, %warp, %fold;",
        ".reg .b64 %l<4>, %u<2>, %in, %out;", ".reg .b16 %h<4>;", ".reg .pred %p<4>, %g;", *arrays,
    ]  # fmt: skip


def _folds() -> list[str]:
    """All registers of the thread into %fold, each times an odd number of its own."""
    words: list[tuple[str, tuple[str, ...]]] = [("", tuple(f"%r{i}" for i in range(_COUNT["r"])))]
    words += [(f"mov.b64 {{%t0, %t1}}, %l{i};", ("%t0", "%t1")) for i in range(_COUNT["l"])]
    words += [(f"mov.b32 %t0, {{%h{i}, %h{i + 1}}};", ("%t0",)) for i in range(0, _COUNT["h"], 2)]
    words += [(f"selp.b32 %t0, 1, 0, %p{i};", ("%t0",)) for i in range(_COUNT["p"])]
    lines, factor = [], 0x9E3779B1
    for setup, registers in words:
        lines += [setup] if setup else []
        for register in registers:
            factor = factor * 0x2C1B3C6D & 0xFFFFFFFF
            lines.append(f"mad.lo.u32 %fold, {register}, {factor:#x}, %fold;")
    return [*lines, "shf.l.wrap.b32 %fold, %fold, %fold, 13;"]


def _function(i: int) -> list[str]:
    """(r, r, l) -> r, in registers of its own; what it computes depends on a branch."""
    program = _Program(100_000 + i)
    for n in range(6):
        if n == 3:
            program.compare()
            program.emit(f"@{program.register('p')} bra $skip;")
        program.draw.of((program.row, program.guarded, program.immediate, program.pack, program.convert_width))()
    start = [
        *(f"mov.b32 %r{n}, {'b' if n % 2 else 'a'};" for n in range(_COUNT["r"])),
        *(f"mov.b64 %l{n}, c;" for n in range(_COUNT["l"])),
        *(f"cvt.u16.u32 %h{n}, a;" for n in range(_COUNT["h"])),
        *(f"setp.lt.s32 %p{n}, a, b;" for n in range(_COUNT["p"])),
        "mov.b32 %fold, 0;",
    ]
    body = [*_declarations([]), *start, *program.lines, "$skip:", *_folds(), "mov.b32 result, %fold;", "ret;"]
    return [
        f".func (.reg .b32 result) f{i}(.reg .b32 a, .reg .b32 b, .reg .b64 c)",
        "{",
        *(f"    {x}" for x in body),
        "}",
    ]


def _start() -> list[str]:
    lines = [
        "ld.param.u64 %in, [input];", "ld.param.u64 %out, [output];", "mov.u32 %me, %tid.x;",
        "mov.u32 %lane, %laneid;", "shr.u32 %warp, %me, 5;", "mov.b32 %m0, -1;", "mov.u32 %slot, slots;",
        "shl.b32 %t0, %me, 2;", "add.u32 %slot, %slot, %t0;", f"mul.wide.u32 %u0, %me, {4 * _WORDS};",
        "add.s64 %u0, %u0, %in;",
    ]  # fmt: skip
    lines += [f"ld.global.b32 %r{i}, [%u0 + {4 * i}];" for i in range(_COUNT["r"])]
    lines += [f"ld.global.b64 %l{i}, [%u0 + {48 + 8 * i}];" for i in range(_COUNT["l"])]
    lines += [f"ld.global.b16 %h{i}, [%u0 + {80 + 2 * i}];" for i in range(_COUNT["h"])]
    lines += [f"setp.gt.s32 %p{i}, %r{i}, %r{i + 4};" for i in range(_COUNT["p"])]
    lines += [
        "mov.u64 %u1, stack;",
        *(f"st.local.b32 [%u1 + {4 * i}], %r{i % 10};" for i in range(16)),
        "mov.b32 %fold, 0;",
    ]
    return lines


def _entry(seed: int) -> list[str]:
    program = _Program(seed)
    for i in range(STATEMENTS):
        program.outermost()
        program.emit(
            *_folds(), "redux.sync.add.u32 %t0, %fold, -1;", f"mad.wide.u32 %u0, %warp, {4 * STATEMENTS}, %out;"
        )
        program.emit("setp.eq.u32 %g, %lane, 0;", f"@%g st.global.b32 [%u0 + {4 * i}], %t0;")
    arrays = [".local .align 16 .b8 stack[64];", f".shared .align 16 .b8 slots[{4 * THREADS}];"]
    body = [*_declarations(arrays), *_start(), *program.lines, "ret;"]
    return [
        f".visible .entry program_{seed}(.param .u64 input, .param .u64 output) .maxntid {THREADS}",
        "{",
        *body,
        "}",
    ]


def ptx() -> str:
    head = [".version 8.6", ".target sm_90a", ".address_size 64", ""]
    functions = [line for i in range(_FUNCTIONS) for line in _function(i)]
    return "\n".join([*head, *functions, *(line for seed in range(PROGRAMS) for line in _entry(seed)), ""])


def cases() -> Iterator[Case]:
    """A name says which text it is of: silicon's answer to another text is not taken for its answer to this one."""
    words = hashed32(_WORDS * THREADS, 300)
    edges = np.concatenate([EDGES["f32"], EDGES["s32"]])
    words = np.where(words % 3 == 0, edges[words // 3 % edges.size], words).astype(np.uint32)
    functions = "".join(line for i in range(_FUNCTIONS) for line in _function(i))
    for seed in range(PROGRAMS):
        digest = hashlib.sha256((functions + "".join(_entry(seed))).encode()).hexdigest()[:8]
        out = Out(np.zeros(THREADS // 32 * STATEMENTS, np.uint32))
        yield Case(f"programs/{seed}-{digest}", "programs", f"program_{seed}", (In(words), out), block=(THREADS, 1, 1))
