"""Runs one instruction over arrays, a value a lane, with some lanes masked off in two ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha import emulator

_BLOCK = 96  # three warps
_NAMES = "abcd"


def _declarations(widths: dict[str, int]) -> str:
    return "\n".join(f".reg {'.pred' if w == 1 else f'.b{w}'} %{name};" for name, w in widths.items())


def _ptx(instruction: str, masking: str, inputs: list[int], results: list[int], setup: str) -> str:
    widths = dict(zip(_NAMES, inputs, strict=False))
    widths |= {f"{'p' if w == 1 else 'd'}{n}": w for n, w in enumerate(results)}
    lines = []
    for name, w in zip(_NAMES, inputs, strict=False):
        lines += [f"mad.wide.u32 %at, %i, {w // 8}, %in_{name};", f"ld.global.b{w} %{name}, [%at];"]
    for n, w in enumerate(results):
        lines.append(f"setp.ne.u32 %p{n}, 0, 0;" if w == 1 else f"mov.b{w} %d{n}, {SENTINEL & (1 << w) - 1};")
    lines.append(setup)
    if masking == "guard":
        lines.append(f"@%active {instruction}")
    else:
        lines += ["@!%active bra SKIP;", instruction, "SKIP:"]
    for n, w in enumerate(results):
        if w == 1:
            lines += [f"selp.b32 %r, 1, 0, %p{n};", f"mad.wide.u32 %at, %i, 4, %out_{n};", "st.global.b32 [%at], %r;"]
        else:
            lines += [f"mad.wide.u32 %at, %i, {w // 8}, %out_{n};", f"st.global.b{w} [%at], %d{n};"]
    pointers = ["mask", *(f"in_{n}" for n in _NAMES[: len(inputs)]), *(f"out_{n}" for n in range(len(results)))]
    loads = "\n".join(f".reg .b64 %{p}; ld.param.b64 %{p}, [{p}];" for p in pointers)
    return f""".version 9.0
.target sm_100a
.address_size 64
.visible .entry k({", ".join(f".param .b64 {p}" for p in pointers)})
{{
.reg .b64 %at; .reg .b32 %i, %r, %block; .reg .pred %active;
{_declarations(widths)}
{loads}
mov.u32 %i, %tid.x; mov.u32 %block, %ctaid.x;
mad.lo.u32 %i, %block, {_BLOCK}, %i;
mad.wide.u32 %at, %i, 4, %mask; ld.global.b32 %r, [%at];
setp.ne.u32 %active, %r, 0;
{chr(10).join(lines)}
ret;
}}
"""


SENTINEL = 0x5A5A_5A5A_5A5A_5A5A


def run_lanes(
    instruction: str, inputs: list[NDArray[Any]], results: list[int], setup: str = "", profile: Any = "strict"
) -> list[NDArray[Any]]:
    """`instruction` names its sources %a, %b, ... and its results %d0, %d1 or, for width 1, %p0, %p1.

    Inputs are unsigned arrays of equal length; results come back as unsigned arrays, predicates as bool. Asserts that
    masked lanes keep what they had, that both ways of masking agree, and that nothing was reported.
    """
    count = len(inputs[0])
    rng = np.random.default_rng(count)
    mask = (rng.random(count) < 0.8).astype(np.uint32)
    pad = -count % _BLOCK
    outcomes = []
    for masking in ("guard", "branch"):
        device = emulator.Device(profile=profile)
        arrays = [np.pad(x, (0, pad)) for x in (mask, *inputs)]
        buffers = [device.alloc(x.nbytes, f"in{n}") for n, x in enumerate(arrays)]
        for buffer, x in zip(buffers, arrays, strict=True):
            device.write(buffer.address, x)
        outs = [device.alloc((count + pad) * max(w // 8, 1 if w > 1 else 4), f"out{n}") for n, w in enumerate(results)]
        text = _ptx(instruction, masking, [8 * x.itemsize for x in inputs], results, setup)
        arguments = [x.address for x in (*buffers, *outs)]
        grid = ((count + pad) // _BLOCK, 1, 1)
        report = device.launch(emulator.load_ptx(text), "k", grid, (_BLOCK, 1, 1), arguments)
        assert not report.findings, "\n".join(map(str, report.findings))
        outcomes.append([_read(device, out, w)[:count] for out, w in zip(outs, results, strict=True)])
    for first, second, w in zip(*outcomes, results, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first[mask == 0], False if w == 1 else SENTINEL & (1 << w) - 1)
    return [x[mask == 1] for x in outcomes[0]] + [np.flatnonzero(mask)]


def _read(device: emulator.Device, out: emulator.Buffer, width: int) -> NDArray[Any]:
    raw = device.read(out.address, out.nbytes)
    if width == 1:
        return raw.view(np.uint32) != 0
    return raw.view({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[width])


def check(instruction: str, inputs: list[NDArray[Any]], width: int, expected: Any, setup: str = "") -> None:
    """One result: `expected(*values)` gives it for the Python integers of one lane, or None where any value will do."""
    got, active = run_lanes(instruction, inputs, [width], setup)
    for value, lane in zip(got.tolist(), active.tolist(), strict=True):
        arguments = [int(x[lane]) for x in inputs]
        want = expected(*arguments)
        assert want is None or value == want, (
            f"{instruction} of {', '.join(map(hex, arguments))}: {int(value):#x}, expected {int(want):#x}"
        )
