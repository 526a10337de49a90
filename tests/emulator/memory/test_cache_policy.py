"""createpolicy (PTX ISA 9.7.9.18) against the integer instructions that ptxas 13.0 makes of it, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator import PtxError

_MODULE = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 a, .param .u32 primary, .param .u32 total, .param .f32 part)
{{
.reg .b64 %out, %a, %d; .reg .b32 %primary, %total; .reg .f32 %part;
ld.param.b64 %out, [out]; ld.param.b64 %a, [a]; ld.param.b32 %primary, [primary]; ld.param.b32 %total, [total];
ld.param.f32 %part, [part];
{body}
st.global.b64 [%out], %d;
ret;
}}
"""
_PRIMARY = {"unchanged": 0, "first": 0x20, "last": 0x40, "normal": 0x60}
_SECONDARY = {"": 0, ".L2::evict_unchanged": 0, ".L2::evict_first": 0x10}


def _made(body: str, a: int = 0, primary: int = 0, total: int = 0, part: float = 0.0) -> int:
    device = emulator.Device(profile="strict")
    out = device.alloc(8, "out")
    module = emulator.load_ptx(_MODULE.format(body=body))
    scalars = [np.uint32(primary).tobytes(), np.uint32(total).tobytes(), np.float32(part).tobytes()]
    report = device.launch(module, "k", (1, 1, 1), (1, 1, 1), [out.address, a, *scalars])
    assert not report.findings
    return int(device.read(out.address, 8).view(np.uint64)[0])


@pytest.mark.parametrize("primary", _PRIMARY)
@pytest.mark.parametrize("secondary", _SECONDARY)
def test_priorities(primary: str, secondary: str) -> None:
    head = (0x100 | _PRIMARY[primary] | _SECONDARY[secondary]) << 20
    opcode = f"createpolicy.fractional.L2::evict_{primary}{secondary}.b64"
    assert _made(f"{opcode} %d;") == (head | 0xF << 20) << 32
    assert _made(f"{opcode} %d, 0.25;") == (head | 0x3 << 20) << 32


# ptxas 13.0 has moved these constants to a register.
@pytest.mark.parametrize(
    ("part", "sixteenths"),
    [(0.0001, 0), (0.0625, 0), (0.1, 1), (0.125, 1), (0.3, 4), (0.5, 7), (0.626, 10), (0.93, 14), (0.999, 15), (1, 15)],
)
def test_fractions(part: float, sixteenths: int) -> None:
    value = (0x140 | sixteenths) << 52
    assert _made(f"createpolicy.fractional.L2::evict_last.b64 %d, {float(part)};") == value
    assert _made("createpolicy.fractional.L2::evict_last.b64 %d, %part;", part=part) == value


@pytest.mark.parametrize("part", ["0.0", "1.5"])
def test_a_constant_that_is_no_fraction_is_refused(part: str) -> None:
    with pytest.raises(PtxError, match="a fraction is greater than 0 and at most 1"):
        _made(f"createpolicy.fractional.L2::evict_last.b64 %d, {part};")


def _range(a: int, primary: int, total: int, priorities: int) -> int:
    if not total:
        return 0x180 << 52
    size = max(math.ceil(math.log2(total)) - 7, 12)
    span = (1 << size) + primary - 1 & 0xFFFF_FFFF
    first = a >> size
    count = min((a + span >> size) - first, 127)
    high = (0x180 | priorities | size - 12) << 20 | (first & 127) << 12 | count << 5
    return high << 32


@pytest.mark.parametrize(
    ("primary", "total"),
    [(1, 1), (4096, 4096), (100_000, 1 << 20), (3 << 20, 5 << 20), (1 << 20, 0), ((1 << 32) - 1, (1 << 32) - 1)],
)
@pytest.mark.parametrize("a", [0, 0x7FFF_1234_5678])
def test_ranges(a: int, primary: int, total: int) -> None:
    opcode = "createpolicy.range.global.L2::evict_last.L2::evict_first.b64"
    expected = _range(a, primary, total, 0x50)
    assert _made(f"{opcode} %d, [%a], %primary, %total;", a, primary, total) == expected
    assert _made(f"{opcode} %d, [%a], {primary}, {total};", a) == expected


def test_a_converted_access_property_is_the_policy() -> None:
    property_of_cuda = 0x16F0_0000_0000_0000
    assert _made("createpolicy.cvt.L2.b64 %d, %a;", property_of_cuda) == property_of_cuda


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        (0, True),
        (0x10F0_0000_0000_0000, True),
        (0x36F0_0000_0000_0000, True),
        (0x1D07_FFE0_0000_0000, True),
        (0x1D0F_FFE0_0000_0000, False),
        (0x10F0_0000_0000_0001, False),
        (0x0800_0000_0000_0000, False),
        (0x9000_0000_0000_0000, False),
        (0x0100_0000_0001, False),
    ],
)
def test_a_policy_from_elsewhere_is_looked_at(policy: int, known: bool) -> None:
    module = emulator.load_ptx(_MODULE.format(body="mov.b64 %d, 0; ld.global.L2::cache_hint.b64 %d, [%out], %a;"))
    for profile, silent in (("strict", known), ("lenient", True)):
        device = emulator.Device(profile=profile)  # type: ignore[arg-type]
        out = device.alloc(8, "out", zeroed=True)
        report = device.launch(
            module, "k", (1, 1, 1), (1, 1, 1), [out.address, policy, b"\0" * 4, b"\0" * 4, b"\0" * 4]
        )
        assert [f.rule for f in report.findings] == ([] if silent else ["cache-policy"])


def test_a_policy_that_nobody_has_made_has_no_value() -> None:
    module = emulator.load_ptx(_MODULE.format(body=".reg .b64 %q; ld.global.L2::cache_hint.b64 %d, [%out], %q;"))
    device = emulator.Device(profile="strict")
    out = device.alloc(8, "out", zeroed=True)
    report = device.launch(module, "k", (1, 1, 1), (1, 1, 1), [out.address, 0, b"\0" * 4, b"\0" * 4, b"\0" * 4])
    assert [f.rule for f in report.findings] == ["uninitialised-register"]
