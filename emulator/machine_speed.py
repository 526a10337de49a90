"""How fast the machine executes: `python -m fmha.emulator.machine_speed`.

Eight warps run loops of one kind of instruction each; the figure is nanoseconds a warp instruction, in processor time,
the best of some launches, with the conflict checks on and off. Tensor-core instructions are counted one by one. At the
end, CTAs that have nothing to do with one another run on one thread of the host and on several.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import dataclass

from fmha.emulator.device import Device, Module, load_ptx

_ITERATIONS = 500
_THREADS = 256
_CTAS = 16
_BYTES = 32768 + 4 * _THREADS  # of `out`, a CTA: a row of 128 bytes a thread, then an element each

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 1024 .b8 tile[32768];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
.visible .entry loop(.param .u64 out) .maxntid 256
{
    .reg .pred %p<8>;
    .reg .b16 %h<4>;
    .reg .b32 %r<80>;
    .reg .f32 %f<20>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 0;
    mov.u32 %r3, tile;
    shl.b32 %r4, %r1, 4;
    add.s32 %r5, %r3, %r4;
    shr.u32 %r10, %r1, 5;
    shl.b32 %r11, %r1, 7;
    add.s32 %r12, %r3, %r11;
    cvt.rn.f32.u32 %f1, %r1;
    mov.f32 %f2, 0f3F7FBE77;
    mov.f32 %f3, 0f3C23D70A;
    setp.eq.u32 %p3, %r1, 0;
    setp.eq.u32 %p4, %r10, 0;
    mov.u32 %r6, %ctaid.x;
    mul.lo.u32 %r6, %r6, BYTES;
    cvt.u64.u32 %rd4, %r6;
    add.s64 %rd1, %rd1, %rd4;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    add.s64 %rd3, %rd3, 32768;
    cvt.u64.u32 %rd5, %r11;
    add.s64 %rd5, %rd1, %rd5;
"""
# What loads read is written first; tensor memory is allocated and written whole, operands are zeros.
_PLAIN = """
    st.shared.v4.f32 [%r5], {%f1, %f1, %f1, %f1};
    bar.sync 0;
"""
_TENSOR = """
    @%p3 mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    @%p4 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 256;
    mov.b32 %r7, 0;
    st.shared.v4.b32 [%r5], {%r7, %r7, %r7, %r7};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %r8, [slot];
    and.b32 %r9, %r10, 3;
    shl.b32 %r9, %r9, 21;
    add.u32 %r9, %r9, %r8;
    shr.u32 %r13, %r10, 2;
    shl.b32 %r13, %r13, 7;
    add.u32 %r9, %r9, %r13;
    shr.u32 %r14, %r3, 4;
    cvt.u64.u32 %rd6, %r14;
    or.b64 %rd6, %rd6, 0x400800800000;
    mov.b32 %r15, 0x8200490;
    mov.b32 %r13, 0;
"""
_TENSOR_END = """
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @%p4 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 256;
"""
_NEXT = "next:\n"
_TAIL = """
    add.s32 %r2, %r2, 1;
    setp.lt.s32 %p1, %r2, ITERATIONS;
    @%p1 bra next;
    st.global.f32 [%rd3], %f1;
END
    ret;
}
"""
_REGISTERS = "{" + ", ".join(f"%r{n}" for n in range(20, 52)) + "}"
_ZERO_REGISTERS = "".join(f"mov.b32 %r{n}, 0;\n" for n in range(20, 52))


@dataclass(frozen=True)
class InstructionLoop:
    """`body` once an iteration; `before` the loop; `tensor`: with tensor memory; `mma`: in time an MMA."""

    body: str
    before: str = ""
    tensor: bool = False
    mma: bool = False

    def module(self, iterations: int) -> Module:
        """The loop so many times, as a kernel of one warp that is decoded and ready to launch."""
        begin, end = (_TENSOR, _TENSOR_END) if self.tensor else (_PLAIN, "")
        tail = _TAIL.replace("ITERATIONS", str(iterations)).replace("END", end)
        return load_ptx(_HEAD.replace("BYTES", str(_BYTES)) + begin + self.before + _NEXT + self.body + tail)


_FMA = InstructionLoop("fma.rn.f32 %f1, %f1, %f2, %f3;\n" * 16)
_ST_TMEM = f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r9], {_REGISTERS};\n"
_LOOPS = {
    "fma.rn.f32": _FMA,
    "ex2.approx.ftz.f32": InstructionLoop("ex2.approx.ftz.f32 %f4, %f2;\n" * 16),
    "max.f32": InstructionLoop("max.f32 %f1, %f1, %f2;\n" * 16),
    "integer mix": InstructionLoop(
        "add.s32 %r6, %r1, %r2;\nshl.b32 %r7, %r6, 3;\nxor.b32 %r8, %r7, %r1;\nmul.lo.s32 %r9, %r8, %r6;\n" * 4
    ),
    "setp + selp": InstructionLoop("setp.lt.f32 %p2, %f1, %f3;\nselp.f32 %f5, %f1, %f3, %p2;\n" * 8),
    "cvt.rn.bf16x2.f32": InstructionLoop("cvt.rn.bf16x2.f32 %r6, %f1, %f2;\n" * 16),
    "shfl.sync.bfly": InstructionLoop("shfl.sync.bfly.b32 %r6, %r1, 1, 31, 0xffffffff;\n" * 16),
    "bar.sync": InstructionLoop("bar.sync 0;\n" * 4),
    "ld + st.shared.v4, adjacent": InstructionLoop(
        "ld.shared.v4.f32 {%f6, %f7, %f8, %f9}, [%r5];\nst.shared.v4.f32 [%r5], {%f9, %f8, %f7, %f6};\n" * 8
    ),
    "st.shared.v4, a row a lane": InstructionLoop("st.shared.v4.f32 [%r12], {%f1, %f1, %f1, %f1};\n" * 16),
    "ld.global, adjacent": InstructionLoop("ld.global.f32 %f10, [%rd3];\n" * 16),
    "st.global.v4, a row a lane": InstructionLoop("st.global.v4.f32 [%rd5], {%f1, %f1, %f1, %f1};\n" * 16),
    "tcgen05.ld.x32": InstructionLoop(
        f"tcgen05.ld.sync.aligned.32x32b.x32.b32 {_REGISTERS}, [%r9];\ntcgen05.wait::ld.sync.aligned;\n" * 4,
        before=_ZERO_REGISTERS + _ST_TMEM + "tcgen05.wait::st.sync.aligned;\n",
        tensor=True,
    ),
    "tcgen05.st.x32": InstructionLoop(
        (_ST_TMEM + "tcgen05.wait::st.sync.aligned;\n") * 4, before=_ZERO_REGISTERS, tensor=True
    ),
    "tcgen05.mma 128x128x16": InstructionLoop(
        "@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd6, %rd6, %r15, %p6;\n" * 4
        + """@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
        wait:
        mbarrier.try_wait.parity.shared::cta.b64 %p5, [bar], %r13;
        @!%p5 bra wait;
        xor.b32 %r13, %r13, 1;
        """,
        before="setp.ne.u32 %p6, 0, 0;\n",
        tensor=True,
        mma=True,
    ),
}


@dataclass(frozen=True)
class Rate:
    """What the emulator executed, and how long that took on this machine."""

    seconds: float  # of the thread when there is one, else by the clock on the wall
    product_seconds: float  # of these, in multiplications of tcgen05.mma
    warp_instructions: float
    mma: float


def measure(loop: InstructionLoop, checks: bool, repeat: int, ctas: int = 1, threads: int = 1) -> Rate:
    """The best of `repeat` launches. RuntimeError when the machine finds a hazard, or not all threads take part."""
    module = loop.module(_ITERATIONS // 5 if loop.mma else _ITERATIONS)
    device = Device(checks=checks, threads=threads)
    out = device.alloc(_BYTES * ctas, "out")
    device.write(out.address, bytes(_BYTES * ctas))
    best: Rate | None = None
    for _ in range(repeat):
        report = device.launch(module, "loop", (ctas, 1, 1), (_THREADS, 1, 1), [out.address])
        if report.findings:
            raise RuntimeError(f"the bench kernel has a hazard:\n{report.findings[0]}")
        if report.stats["threads"] != threads:
            raise RuntimeError(f"the launch ran on {report.stats['threads']} of {threads} threads")
        seconds = report.stats["thread_seconds" if threads == 1 else "seconds"]
        stats = report.stats
        rate = Rate(seconds, stats["product_seconds"], stats["warp_instructions"], stats["mma"])
        best = rate if best is None or rate.seconds < best.seconds else best
    assert best is not None
    return best


def describe_host() -> str:
    """The processor, the cores at hand and how busy they are: what the figures depend on besides the code."""
    cpuinfo = "/proc/cpuinfo"
    model = platform.processor() or platform.machine()
    if os.path.exists(cpuinfo):
        with open(cpuinfo) as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return f"{model}, {len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.1f}"


def _print_classes(repeat: int) -> None:
    print(f"{'ns a warp instruction':30} {'checks on':>10} {'off':>10}")
    for name, loop in _LOOPS.items():
        on, off = (measure(loop, checks, repeat) for checks in (True, False))
        counts = (on.mma, off.mma) if loop.mma else (on.warp_instructions, off.warp_instructions)
        print(f"{name:30} {1e9 * on.seconds / counts[0]:10.1f} {1e9 * off.seconds / counts[1]:10.1f}", flush=True)
        if loop.mma:
            seconds = [1e9 * rate.product_seconds / rate.mma for rate in (on, off)]
            print(f"{'  of these, multiplications':30} {seconds[0]:10.1f} {seconds[1]:10.1f}", flush=True)


def _print_threads(repeat: int) -> None:
    print(f"\n{_CTAS} CTAs of fma.rn.f32, million warp instructions a second")
    for threads in range(1, len(os.sched_getaffinity(0)) + 1):
        if threads & (threads - 1) == 0 and threads <= _CTAS:
            rates = [measure(_FMA, checks, repeat, _CTAS, threads) for checks in (True, False)]
            on, off = (rate.warp_instructions / rate.seconds / 1e6 for rate in rates)
            print(f"{threads:2} thread{'s' if threads > 1 else ' '}: checks on {on:7.1f}, off {off:7.1f}", flush=True)


def main() -> int:
    """Prints rates of every class of instructions, and of several threads."""
    parser = argparse.ArgumentParser(prog="python -m fmha.emulator.machine_speed", description=__doc__)
    parser.add_argument("--repeat", type=int, default=10, help="launches, of which the best counts")
    options = parser.parse_args()
    print(describe_host())
    _print_classes(options.repeat)
    _print_threads(options.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
