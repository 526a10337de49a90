"""Addresses next to 2^64, and shared ones of more bits than the space has: found under AddressSanitizer, where the
machine accessed its own memory beside what a kernel has."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator

PTX = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .u32 %r<9>;
  .reg .u64 %rd<9>;
  .reg .pred %p<3>;
  .local .align 16 .b8 frame[64];
  .shared .align 16 .b8 tile[1024];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  setp.eq.u32 %p1, %r1, 31;
  BODY
  ret;
}
"""


def ran(body: str) -> tuple[list[str], list[int]]:
    """The rules of what is found, and what is in `out`, which has a word a lane."""
    device = emulator.Device()
    out = device.alloc(256, "out")
    device.write(out.address, np.zeros(64, np.uint32))
    module = emulator.load_ptx(PTX.replace("BODY", body))
    found = device.launch(module, "k", (1, 1, 1), (32, 1, 1), [out.address]).findings
    return [finding.rule for finding in found], device.read(out.address, 128).view(np.uint32).tolist()


@pytest.mark.parametrize("address", [2**64 - 1, 2**64 - 4, 2**64 - 16, 2**63, 64])
@pytest.mark.parametrize("access", ["st.local.u32 [%rd2], %r1;", "st.local.v4.u32 [%rd2], {%r1, %r1, %r1, %r1};"])
def test_local_memory_has_no_bytes_before_it(address: int, access: str) -> None:
    rules, _ = ran(f"st.local.u32 [frame], %r1;\n  mov.b64 %rd2, {address:#x};\n  {access}")
    assert rules in (["local-out-of-bounds"], ["misaligned"])


def test_one_lane_may_be_far_from_the_others() -> None:
    """As the last of a warp's: the sum of its address and the size is small."""
    body = "mov.u64 %rd2, frame;\n  selp.b64 %rd2, 0xFFFFFFFFFFFFFFFC, %rd2, %p1;\n  st.local.u32 [%rd2], %r1;"
    assert ran(body)[0] == ["local-out-of-bounds"]
    near = "mov.u32 %r2, tile;\n  cvt.u64.u32 %rd2, %r2;\n  selp.b64 %rd2, 0xFFFFFFFFFFFFFFFC, %rd2, %p1;\n"
    for access in (
        "st.shared.u32 [%rd2], %r1;",
        "ld.shared.u32 %r3, [%rd2];",
        "cp.async.ca.shared.global [%rd2], [%rd1], 4;",
    ):
        assert ran(f"{near}  {access}")[0][-1] == "shared-out-of-bounds"


@pytest.mark.parametrize("high", [1, 3, 0x7FFF, 0xFFFF_FFFF])
@pytest.mark.parametrize("space", ["shared", "shared::cluster"])
def test_a_shared_address_has_32_bits(high: int, space: str) -> None:
    """PTX ISA 6.4.1: of a wider register those of the state space are taken."""
    body = f"""
  mov.u32 %r2, tile;
  mad.lo.u32 %r2, %r1, 4, %r2;
  cvt.u64.u32 %rd2, %r2;
  or.b64 %rd2, %rd2, {high << 32:#x};
  st.{space}.u32 [%rd2], %r1;
  bar.sync 0;
  ld.{space}.u32 %r3, [%rd2];
  atom.{space}.add.u32 %r4, [%rd2], 1;
  add.u32 %r3, %r3, %r4;
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd3, %rd1, %rd3;
  st.global.u32 [%rd3], %r3;"""
    assert ran(body) == ([], [2 * lane for lane in range(32)])
