"""Kernels whose time is arithmetic, for tests of the timing model."""

from __future__ import annotations

from fmha import emulator
from fmha.emulator.timing.architecture import architecture

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


ONE_AN_SM = ".maxntid 512\n.minnctapersm 1\n"


def kernel(
    body: str, registers: str = ".reg .f32 %f<40>;", params: str = ".param .u64 out", directives: str = ""
) -> emulator.Module:
    entry = f".visible .entry k({params})\n{directives}"
    return emulator.load_ptx(f"{HEAD}{entry}{{\n{registers}\n{body}\nret;\n}}\n")


def timed(module: emulator.Module, grid: int = 1, block: int = 32, gpu: str = "h200", **options):
    device = emulator.Device(timing=gpu, **options)
    out = device.alloc(4 * grid * block, "out", zeroed=True)
    report = device.launch(module, "k", grid, block, [out.address])
    assert report.timing is not None
    return report, device.read(out.address, out.nbytes)


def cycles(body: str, directives: str = "", **options: int) -> float:
    report, _ = timed(kernel(body, directives=directives), **options)
    modelled = report.timing.modelled()
    assert modelled.forced == 0
    return modelled.cycles


def chain(op: str, n: int) -> str:
    return "mov.f32 %f0, 0f3F800000;\n" + f"{op} %f0, %f0{', %f0' if op.startswith('add') else ''};\n" * n


def apart(op: str, n: int) -> str:
    moves = "".join(f"mov.f32 %f{k}, 0f3F800000;\n" for k in range(32))
    return moves + "".join(f"{op} %f{k % 32}, %f{k % 32};\n" for k in range(n))


H200 = architecture("h200").values


def without_code(gpu: str = "h200") -> dict[str, float]:
    """Constants with an instruction cache that is never cold."""
    return architecture(gpu).values | {"code_miss": 0.0, "code_jump": 0.0}


BULK = """.reg .u64 %rd<4>; .reg .b32 %r<8>; .shared .align 128 .b8 tile[16384]; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %tid.x;
mov.u32 %r3, tile;
mov.u32 %r4, bar;
"""

BULK_LOADS = (
    BULK
    + """.reg .pred %p<2>;
mul.lo.u32 %r1, %r1, CTA;
cvt.u64.u32 %rd2, %r1;
add.s64 %rd1, %rd1, %rd2;
mbarrier.init.shared::cta.b64 [%r4], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], BYTES;
LOADS
poll:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra poll;"""
)


def loaded(cta: int, n: int = 32, size: int = 8192):
    """Every CTA loads n times `size` bytes, from `cta` bytes behind where the CTA before it does."""
    load = f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], {size}, [%r4];\n"
    body = BULK_LOADS.replace("CTA", str(cta)).replace("LOADS", load * n).replace("BYTES", str(size * n))
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    out = device.alloc(8192 * 132, "out", zeroed=True)
    warm, timing = (device.launch(kernel(body), "k", 132, 1, [out.address]).timing for _ in range(2))
    assert warm is not None
    assert timing is not None
    return timing.modelled(without_code())
