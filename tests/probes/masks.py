"""Every .sync instruction, with a member mask of its own in each lane.

PTX: a kernel for an instruction and a way to come to it; a warp of it for a shape of masks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Array, Case, In, Out, hashed32

REDUCTIONS = (
    *("add.u32", "add.s32", "min.s32", "min.u32", "max.s32", "max.u32"),
    *("xor.b32", "and.b32", "or.b32"),
)
# Of r1, the value, p1, the predicate and r2, the mask, to r3. p2: a predicate to use. r6 confines shuffles to the tile
# of the lane, of one lane where its group is none; r9 is the lowest lane of the group,
# r0 the highest. {own}, {first} and {last} are words of the own lane and of these two.
OPERATIONS = {
    **{
        f"shfl_{mode}_{n}": f"{setup} shfl.sync.{mode}.b32 r3|p2, r1, r4, r6, r2; @!p2 mov.b32 r3, 5;".replace(
            "N", str(n)
        )
        for mode, setup in (
            ("up", "mov.b32 r4, N;"),
            ("down", "mov.b32 r4, N; or.b32 r6, r6, 31;"),
            ("bfly", "shr.u32 r4, r6, 8; not.b32 r4, r4; and.b32 r4, r4, N; or.b32 r6, r6, 31;"),
        )
        for n in (1, 2)
    },
    "shfl_idx": "shfl.sync.idx.b32 r3, r1, r9, 31, r2;",
    "ballot": "vote.sync.ballot.b32 r3, p1, r2;",
    "not_ballot": "vote.sync.ballot.b32 r3, !p1, r2;",
    "any": "vote.sync.any.pred p2, p1, r2; selp.u32 r3, 1, 0, p2;",
    "all": "vote.sync.all.pred p2, p1, r2; selp.u32 r3, 1, 0, p2;",
    "uni": "vote.sync.uni.pred p2, p1, r2; selp.u32 r3, 1, 0, p2;",
    **{f"redux_{op}": f"redux.sync.{op} r3, r1, r2;" for op in REDUCTIONS},
    "match_any": "and.b32 r4, r1, 3; match.any.sync.b32 r3, r4, r2;",
    "match_any_64": "and.b32 r4, r1, 3; cvt.u64.u32 l1, r4; match.any.sync.b64 r3, l1, r2;",
    "match_all": "and.b32 r4, r1, 1; match.all.sync.b32 r3|p2, r4, r2; @p2 xor.b32 r3, r3, 0x5555;",
    "match_all_64": "and.b32 r4, r1, 1; cvt.u64.u32 l1, r4; match.all.sync.b64 r3|p2, l1, r2; @p2 xor.b32 r3, r3, 85;",
    # What the lowest lane of the group has stored, and what the own lane's neighbour in it has, once each.
    "bar_warp": "st.shared.u32 [{own}], r1; bar.warp.sync r2; ld.shared.u32 r3, [{first}]; bar.warp.sync r2;"
    "xor.b32 r4, r3, r5; st.shared.u32 [{own}], r4; bar.warp.sync r2; ld.shared.u32 r4, [{last}]; add.u32 r3, r3, r4;",
    "elect": "elect.sync _|p2, r2; selp.u32 r4, 1, 0, p2; redux.sync.add.u32 r3, r4, r2;",  # which one is open
}
# r7: the number of the lane's group; p3: the lane is in one.
FLOWS = {
    "together": "@!p3 bra END; {op} END:",
    "late": "@!p3 bra END; mov.b32 r8, r7; AGAIN: setp.eq.u32 p4, r8, 0; @p4 bra COME; sub.u32 r8, r8, 1; bra AGAIN;"
    "COME: {op} END:",
    "branches": "@!p3 bra END; and.b32 r8, r7, 1; setp.eq.u32 p4, r8, 0; @p4 bra EVEN; {op} bra END; EVEN: {op} END:",
    "across": "@!p3 bra END; and.b32 r8, r5, 4; setp.eq.u32 p4, r8, 0; @p4 bra EVEN; {op} bra END; EVEN: {op} END:",
    "left": "@!p3 ret; {op} END:",
}
_ALL = 0xFFFFFFFF


def _shapes() -> list[list[int]]:
    """The masks of a warp's groups."""
    values = hashed32(32, 77)
    by_value = [int(sum(1 << lane for lane in range(32) if values[lane] % 3 == k)) for k in range(3)]
    tiles = [[((1 << n) - 1) << k for k in range(0, 32, n)] for n in (1, 2, 4, 8, 16, 32)]
    return [*tiles, [0x55555555, 0xAAAAAAAA], by_value, [1 << 13, _ALL ^ 1 << 13], [0xF00F, 0xFF00000]]


SHAPES = _shapes()


def _named() -> tuple[Array, Array, Array]:
    """Of each lane: its mask, the number of its group, and the segment that its shuffles keep to."""
    masks, groups, segments = (np.zeros((len(SHAPES), 32), np.uint32) for _ in range(3))
    for shape, of in enumerate(SHAPES):
        tile = 32 // len(of) if of == [((1 << 32 // len(of)) - 1) << k for k in range(0, 32, 32 // len(of))] else 1
        for n, mask in enumerate(of):
            for lane in range(32):
                if mask >> lane & 1:
                    masks[shape, lane], groups[shape, lane] = mask, n
        segments[shape] = (32 - tile) << 8
    return masks, groups, segments


def _kernel(name: str, flow: str) -> str:
    words = {what: f"s{k}" for k, what in enumerate(("own", "first", "last"))}
    op = OPERATIONS[name].format(**words)
    return f""".visible .entry {name.replace(".", "_")}_{flow}(.param .u64 values, .param .u64 masks,
.param .u64 groups, .param .u64 segments, .param .u64 out)
{{ .shared .b32 words[32]; .reg .b32 r<10>, s<3>, i, c; .reg .b64 l<3>, at, p; .reg .pred p<5>;
mov.u32 r5, %tid.x; mov.u32 c, %ctaid.x; mad.lo.u32 i, c, 32, r5; mul.wide.u32 at, i, 4;
ld.param.u64 p, [values]; add.s64 p, p, at; ld.global.u32 r1, [p];
ld.param.u64 p, [masks]; add.s64 p, p, at; ld.global.u32 r2, [p];
ld.param.u64 p, [groups]; add.s64 p, p, at; ld.global.u32 r7, [p];
ld.param.u64 p, [segments]; add.s64 p, p, at; ld.global.u32 r6, [p];
ld.param.u64 p, [out]; add.s64 p, p, at;
and.b32 r4, r1, 128; setp.ne.u32 p1, r4, 0; setp.ne.u32 p3, r2, 0; setp.ne.u32 p2, 0, 0; mov.b32 r3, 77;
brev.b32 r9, r2; clz.b32 r9, r9; bfind.u32 r0, r2;
mov.u32 s1, words; shl.b32 s0, r5, 2; shl.b32 s2, r0, 2; add.u32 s0, s0, s1; add.u32 s2, s2, s1;
shl.b32 r8, r9, 2; add.u32 s1, s1, r8;
{FLOWS[flow].format(op=op)}
st.global.u32 [p], r3; ret; }}"""


def ptx() -> str:
    kernels = [_kernel(name, flow) for name in OPERATIONS for flow in FLOWS]
    return "\n".join([".version 8.6", ".target sm_90a", ".address_size 64", *kernels]) + "\n"


def cases() -> Iterator[Case]:
    lanes = _named()
    values = np.tile(hashed32(32, 77), len(SHAPES))
    for name in OPERATIONS:
        for flow in FLOWS:
            out = Out(np.full(values.size, 77, np.uint32))
            arguments = (In(values), *(In(x.ravel()) for x in lanes), out)
            entry = f"{name.replace('.', '_')}_{flow}"
            yield Case(f"masks/{entry}", "masks", entry, arguments, grid=(len(SHAPES), 1, 1))
