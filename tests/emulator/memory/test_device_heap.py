"""malloc and free of kernels (CUDA C++ programming guide, dynamic global memory allocation)."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator

_MODULE = """.version 8.7
.target sm_90a
.address_size 64
.extern .func (.param .b64 given) malloc (.param .b64 size);
.extern .func free (.param .b64 address);
.visible .entry k(.param .u64 out, .param .u64 size)
{{
.reg .b64 %out, %size, %p, %q; .reg .b32 %i, %r<4>; .reg .pred %first, %c;
.param .b64 a, r;
ld.param.b64 %out, [out]; ld.param.b64 %size, [size];
mov.u32 %i, %tid.x; setp.eq.u32 %first, %i, 0;
mad.wide.u32 %out, %i, 8, %out;
{body}
ret;
}}
"""
MALLOC = "st.param.b64 [a], %size; call.uni (r), malloc, (a); ld.param.b64 %p, [r];"
FREE = "st.param.b64 [a], %p; call.uni free, (a);"


def _launch(
    body: str,
    size: int = 16,
    block: int = 1,
    device: emulator.Device | None = None,
    out: emulator.Buffer | None = None,
    grid: int = 1,
) -> tuple[emulator.Report, list[int]]:
    device = device or emulator.Device()
    out = out or device.alloc(8 * block, "out", zeroed=True)
    module = emulator.load_ptx(_MODULE.format(body=body))
    report = device.launch(module, "k", (grid, 1, 1), (block, 1, 1), [out.address, size])
    return report, device.read(out.address, out.nbytes).view(np.uint64).tolist()


def _rules(report: emulator.Report) -> list[str]:
    return [f.rule for f in report.findings]


def test_each_thread_gets_memory_of_its_own() -> None:
    report, pointers = _launch(
        MALLOC + "st.b32 [%p+12], %i; ld.b32 %r1, [%p+12]; st.global.b64 [%out], %p;" + FREE, block=64
    )
    assert not report.findings
    assert len({*pointers}) == 64
    assert all(p % 16 == 0 for p in pointers)
    assert any(p % 32 for p in pointers), "no alignment beyond what is promised"


def test_memory_stays_over_launches_and_is_out_of_the_hosts_reach() -> None:
    device = emulator.Device()
    out = device.alloc(8, "out", zeroed=True)
    assert not _launch(MALLOC + "st.b32 [%p], 42; st.global.b64 [%out], %p;", device=device, out=out)[0].findings
    (address,) = device.read(out.address, 8).view(np.uint64).tolist()
    for reach in (
        lambda: device.read(address, 4),
        lambda: device.write(address, b"1234"),
        lambda: device.copy(out.address, address, 4),
    ):
        with pytest.raises(IndexError, match="of the kernels' heap, which the host cannot reach"):
            reach()
    body = "ld.global.b64 %p, [%out]; ld.b32 %r1, [%p]; cvt.u64.u32 %q, %r1; st.global.b64 [%out], %q;" + FREE
    report, values = _launch(body, device=device, out=out)
    assert not report.findings
    assert values == [42]


def test_an_exhausted_heap_gives_null_until_something_is_freed() -> None:
    device = emulator.Device()
    device.heap_bytes = 4096
    body = MALLOC + "st.global.b64 [%out], %p; st.param.b64 [a], 16; call.uni (r), malloc, (a); ld.param.b64 %q, [r];"
    body += "st.global.b64 [%out+8], %q;" + FREE
    body += "call.uni (r), malloc, (a); ld.param.b64 %p, [r]; st.global.b64 [%out+16], %p;"
    body = body.replace(FREE, FREE + "st.param.b64 [a], %size;")
    for size, first, second in ((4096, 1, 0), (4097, 0, 1), (4080, 1, 1), (2**64 - 1, 0, 1)):
        out = device.alloc(24, "out", zeroed=True)
        report, pointers = _launch(
            body + FREE + "st.param.b64 [a], %q; call.uni free, (a);", size, device=device, out=out
        )
        assert not report.findings
        assert [p != 0 for p in pointers] == [first, second, first]


def test_the_default_limit_is_cudas() -> None:
    report, (address,) = _launch(MALLOC + "st.global.b64 [%out], %p;", size=8 << 20)
    assert not report.findings
    assert address
    assert _launch(MALLOC + "st.global.b64 [%out], %p;", size=(8 << 20) + 1)[1] == [0]
    assert emulator.Device().heap_bytes == 8 << 20


@pytest.mark.parametrize(
    ("body", "rule", "says"),
    [
        ("st.b32 [%p+16], %i;", "global-out-of-bounds", "0 bytes past the end of 'malloc 1' of 16 bytes"),
        ("st.b32 [%p+-4], %i;", "global-out-of-bounds", ""),
        ("ld.b32 %r1, [%p]; st.global.b32 [%out], %r1;", "uninitialised-global", ""),
        (
            FREE + "st.b32 [%p+4], %i;",
            "use-after-free",
            "byte 4 of 'malloc 1', of 16 bytes, which was freed at PTX line",
        ),
        (FREE + FREE, "heap-free", "'malloc 1' was freed at PTX line"),
        ("add.u64 %p, %p, 8;" + FREE, "heap-free", "8 bytes into 'malloc 1', which malloc has returned"),
        ("mov.b64 %p, %out;" + FREE, "heap-free", "0 bytes into 'out', which malloc has not returned"),
        ("mov.b64 %p, 4096;" + FREE, "heap-free", "malloc has not returned it"),
    ],
)
@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_mistakes(body: str, rule: str, says: str, profile: emulator.Profile) -> None:
    report, _ = _launch(MALLOC + body, device=emulator.Device(profile=profile))
    assert _rules(report) == [rule]
    assert says in report.findings[0].message


def test_free_of_null_does_nothing() -> None:
    assert not _launch("mov.b64 %p, 0;" + FREE)[0].findings


# Thread 0 of a block allocates and frees, another warp uses the memory in between.
_HANDED_OVER = (
    "@!%first bra W; "
    + MALLOC
    + " st.b32 [%p], 7; st.shared.b64 [place], %p;\nW: bar.sync 0; ld.shared.b64 %p, [place];"
    "ld.b32 %r1, [%p]; {sync} @!%first bra X; " + FREE + "\nX:"
)


@pytest.mark.parametrize("seed", range(4))
def test_memory_is_freed_after_others_have_used_it(seed: int) -> None:
    shared = ".shared .align 8 .b64 place;\n"
    right, wrong = (shared + _HANDED_OVER.format(sync=sync) for sync in ("bar.sync 0;", ""))
    device = emulator.Device(seed=seed, schedule="random")
    assert not _launch(right, block=64, device=device)[0].findings
    report, _ = _launch(wrong, block=64, device=device)
    assert _rules(report)
    assert {*_rules(report)} <= {"race", "use-after-free"}


@pytest.mark.parametrize("threads", [1, 3])
def test_clusters_share_the_heap_in_order(threads: int) -> None:
    device = emulator.Device(threads=threads)
    out = device.alloc(8, "out", zeroed=True)
    body = MALLOC + "@%first atom.global.add.u64 %q, [%out], 1; st.b32 [%p], %i;" + FREE
    report, values = _launch(body, device=device, out=out, grid=12)
    assert not report.findings
    assert values == [12]
    assert report.stats["threads"] == 1


def test_much_that_is_freed_is_forgotten() -> None:
    body = "mov.b32 %r1, 0;\nL:" + MALLOC + "st.b32 [%p], %r1;" + FREE
    body += "add.u32 %r1, %r1, 1; setp.lt.u32 %c, %r1, 300; @%c bra L;"
    assert not _launch(body, size=1 << 20)[0].findings
