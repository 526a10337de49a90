"""How fast the machine executes: `python -m emulator.bench`.

Eight warps run loops of one kind of instruction each; the figure is nanoseconds a warp instruction, the best of five
launches, with the conflict checks on and off.
"""

from __future__ import annotations

import sys

from emulator import Device, Module, load_ptx

_ITERATIONS = 2000
_THREADS = 256

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry loop(.param .u64 out) .maxntid 256
{
    .reg .pred %p<3>;
    .reg .b32 %r<20>;
    .reg .f32 %f<20>;
    .reg .b64 %rd<6>;
    .shared .align 16 .b8 tile[8192];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 0;
    mov.u32 %r3, tile;
    shl.b32 %r4, %r1, 4;
    add.s32 %r5, %r3, %r4;
    cvt.rn.f32.u32 %f1, %r1;
    mov.f32 %f2, 0f3F7FBE77;
    mov.f32 %f3, 0f3C23D70A;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.shared.v4.f32 [%r5], {%f1, %f1, %f1, %f1};
next:
"""
_TAIL = """
    add.s32 %r2, %r2, 1;
    setp.lt.s32 %p1, %r2, ITERATIONS;
    @%p1 bra next;
    st.global.f32 [%rd3], %f1;
    ret;
}
"""
_LOOPS = {
    "fma.rn.f32": "fma.rn.f32 %f1, %f1, %f2, %f3;\n" * 16,
    "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 %f4, %f2;\n" * 16,
    "max.f32": "max.f32 %f1, %f1, %f2;\n" * 16,
    "integer mix": "add.s32 %r6, %r1, %r2;\nshl.b32 %r7, %r6, 3;\nxor.b32 %r8, %r7, %r1;\nmul.lo.s32 %r9, %r8, %r6;\n"
    * 4,
    "setp + selp": "setp.lt.f32 %p2, %f1, %f3;\nselp.f32 %f5, %f1, %f3, %p2;\n" * 8,
    "ld.shared.v4 + st.shared.v4": (
        "ld.shared.v4.f32 {%f6, %f7, %f8, %f9}, [%r5];\nst.shared.v4.f32 [%r5], {%f9, %f8, %f7, %f6};\n" * 8
    ),
    "ld.global": "ld.global.f32 %f10, [%rd3];\n" * 16,
}


def _kernel(body: str) -> Module:
    return load_ptx(_HEAD + body + _TAIL.replace("ITERATIONS", str(_ITERATIONS)))


def nanoseconds(body: str, checks: bool) -> float:
    """Nanoseconds a warp instruction of a loop around `body`."""
    module = _kernel(body)
    device = Device(checks=checks)
    out = device.alloc(4 * _THREADS, "out")
    device.write(out.address, bytes(4 * _THREADS))
    best = float("inf")
    for _ in range(5):
        report = device.launch(module, "loop", (1, 1, 1), (_THREADS, 1, 1), [out.address])
        if report.findings:
            raise RuntimeError(f"the bench kernel has a hazard:\n{report.findings[0]}")
        best = min(best, 1e9 * report.stats["seconds"] / report.stats["warp_instructions"])
    return best


def main() -> int:
    print(f"{'loop':32} {'checks on':>10} {'off':>10}   ns a warp instruction")
    for name, body in _LOOPS.items():
        print(f"{name:32} {nanoseconds(body, True):10.1f} {nanoseconds(body, False):10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
