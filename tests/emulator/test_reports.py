"""What a finding says: places as their author knows them, names that fit a line, one cause once, remedies by what is at
hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fmha.emulator import Device, _core, load_ptx
from fmha.emulator.launch_report import Finding, Place, causes
from fmha.emulator.names import brief, in_text, readable

CUB = "/usr/local/cuda/targets/x86_64-linux/include/cccl/cub/detail/uninitialized_copy.cuh:60"


@pytest.mark.parametrize(
    ("source", "callers", "author", "chain"),
    [
        ("a.cu:7", (), "a.cu:7", "a.cu:7"),
        ("common.cuh:17", ("a.cu:40",), "a.cu:40", "a.cu:40, in common.cuh:17"),
        (CUB, ("/opt/include/cub/block.cuh:9", "a.cu:6"), "a.cu:6", "a.cu:6, in cub/detail/uninitialized_copy.cuh:60"),
        # A kernel of a library's: what calls the outermost of one's own is not one's own.
        ("own/op.h:3", ("/x/include/cutlass/gemm/device_kernel.h:119",), "own/op.h:3", "own/op.h:3"),
        ("/x/include/cute/arch/a.hpp:5", ("/x/include/cutlass/device_kernel.h:119",),
         "/x/include/cutlass/device_kernel.h:119", "cutlass/device_kernel.h:119, in cute/arch/a.hpp:5"),
    ],
)  # fmt: skip
def test_the_authors_line_comes_first(source: str, callers: tuple[str, ...], author: str, chain: str) -> None:
    place = Place(12, "ld.shared.u32 %r1, [_ZZ1kPKiPiiE3tmp+16]", source, callers)
    assert (place.author, place.chain) == (author, chain)
    assert str(place) == f"PTX line 12 ({chain}): ld.shared.u32 %r1, [tmp+16]"


def test_names_fit_a_line() -> None:
    assert readable("_Z3addIfEvPT_i") == "add<float>(float*, int)"
    assert readable("plain_name") == "plain_name"
    long = "ns::kernel<" + "std::tuple<int, float>, " * 40 + "int>(" + "float*, " * 90 + "int)"
    assert brief("kernel<int>(int)") == "kernel<int>(int)"
    assert brief(long) == "ns::kernel"
    assert len(brief("k" * 2000)) == 100
    assert in_text("st.shared.u32 [_ZZN2ns1kEPiE4tile], %r1") == "st.shared.u32 [tile], %r1"


def finding(rule: str, at: str, other: str, line: int = 1) -> Finding:
    place, earlier = Place(line, "ld", at), Place(line + 1, "st", other)
    return Finding(rule, "error", "", place, earlier, 0, 0, 1, ())


def test_findings_between_the_same_lines_have_one_cause() -> None:
    one, again = finding("race", "a.cu:1", "a.cu:2"), finding("race", "a.cu:1", "a.cu:2", line=9)
    other, rule = finding("race", "a.cu:2", "a.cu:1"), finding("lane-race", "a.cu:1", "a.cu:2")
    assert causes([one, other, again, rule]) == [[one, again], [other], [rule]]


MODULE = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 flag)
{{
.shared .align 8 .b64 bar;
.reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<2>;
ld.param.u64 %rd1, [flag];
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 32;
{body}
ret;
}}
"""


def hang(body: str, block: int = 128) -> Finding:
    device = Device(max_instructions=50_000_000)
    flag = device.alloc(256, "flag", zeroed=True)
    (found,) = device.launch(load_ptx(MODULE.format(body=body)), "k", 1, block, [flag.address]).findings
    return found


def test_a_deadlock_begins_with_what_keeps_the_others() -> None:
    """Warp 0 waits for an arrival that nobody makes, the others for warp 0."""
    told = hang("""
    setp.eq.u32 %p2, %r1, 0;
    @%p2 mbarrier.init.shared::cta.b64 [bar], 2;
    bar.sync 0;
    @%p2 mbarrier.arrive.shared::cta.b64 _, [bar];
    @!%p1 bra MEET;
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
    @!%p2 bra W;
    MEET: bar.sync 0;""")
    assert told.rule == "deadlock"
    (_, first), (_, second) = told.details
    assert first.startswith(
        "CTA 0 warp 0 waits for the mbarrier at shared 0x400 ('bar') of CTA 0, parity 0: in phase 0, 1 of 2"
    )
    assert second == "CTA 0 warps 1-3 wait for barrier 0: 96 threads arrived, and not warp 0"
    assert told.place is not None
    assert "try_wait" in told.place.ptx_text
    assert told.warp == 0


def test_of_many_that_wait_alike_the_first_are_named() -> None:
    told = hang(
        """
    .shared .align 8 .b64 bars[32];
    and.b32 %r2, %r1, 31; setp.eq.u32 %p2, %r2, 0;
    shr.u32 %r2, %r1, 5; shl.b32 %r2, %r2, 3; mov.u32 %r3, bars; add.u32 %r3, %r3, %r2;
    @%p2 mbarrier.init.shared::cta.b64 [%r3], 1;
    bar.sync 0;
    W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
    @!%p2 bra W;""",
        block=1024,
    )
    lines = [text for _, text in told.details]
    assert [line.split(" waits for the mbarrier")[0] for line in lines[:4]] == [f"CTA 0 warp {n}" for n in range(4)]
    assert lines[4:] == ["and 28 more wait"]
    assert "32 waiting" in told.message


def test_what_is_polled_is_named() -> None:
    told = hang("POLL: ld.acquire.gpu.global.u32 %r2, [%rd1+8]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL;", block=32)
    assert told.rule == "livelock"
    assert told.details[0][1] == "CTA 0 warp 0 waits for a value of 'flag' at byte 8 to change, which holds 0"
    assert "who should change what is polled" in told.remedy


@pytest.mark.parametrize("block", [64, 20])
def test_votes_and_shuffles_without_sync_are_of_the_lanes_that_come(block: int) -> None:
    """ptxas takes them for sm_90 and later all the same."""
    body = """
    .reg .b32 %v<4>; .reg .pred %q<3>; .reg .b64 %at;
    mad.wide.u32 %at, %r1, 4, %rd1;
    setp.lt.u32 %q1, %r1, 8;
    vote.ballot.b32 %v1, %q1;
    vote.any.pred %q2, !%q1;
    shfl.idx.b32 %v2, %r1, 3, 31;
    selp.u32 %v3, 1000, 0, %q2;
    add.u32 %v3, %v3, %v2; add.u32 %v3, %v3, %v1;
    st.global.b32 [%at], %v3;"""
    device = Device()
    out = device.alloc(256, "out", zeroed=True)
    report = device.launch(load_ptx(MODULE.format(body=body)), "k", 1, block, [out.address])
    assert report.findings == ()
    words = device.read(out.address, 4 * block).view("u4").tolist()
    assert words[:32] == [1003 + 255] * min(block, 32)
    assert words[32:] == [1035] * (block - 32 if block > 32 else 0)


HEADER = """.version 8.8
.target sm_100a
.address_size 64
.file 1 "{file}"
.shared .b32 slot;
.visible .entry k(.param .u64 out)
{{
.reg .pred %p<2>; .reg .b32 %r<4>;
mov.u32 %r1, %laneid;
setp.eq.u32 %p1, %r1, 3;
.loc 1 10 0
@%p1 st.shared.u32 [slot], %r1;
vote.sync.any.pred %p1, %p1, -1;
.loc 1 11 0
ld.shared.u32 %r2, [slot];
ret;
}}
"""


@pytest.mark.parametrize(
    ("file", "severity"),
    [("/usr/local/cuda/include/cooperative_groups.h", "warning"), ("mine/groups.h", "error")],
)
def test_what_is_true_of_a_header_is_a_warning(file: str, severity: str) -> None:
    device = Device()
    out = device.alloc(4, "out")
    report = device.launch(load_ptx(HEADER.format(file=file)), "k", 1, 32, [out.address])
    (told,) = report.findings
    assert (told.rule, told.severity, report.ok) == ("lane-race", severity, severity == "warning")
    assert ("Cooperative Groups" in told.message) == told.of_header == (severity == "warning")


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_trap_of_the_header_says_what_the_launch_lacks(cooperative: bool) -> None:
    text = HEADER.format(file="/usr/local/cuda/include/cooperative_groups.h").replace(
        "ld.shared.u32 %r2, [slot]", "trap"
    )
    device = Device()
    out = device.alloc(4, "out")
    (told,) = device.launch(load_ptx(text), "k", 1, 32, [out.address], cooperative=cooperative).findings
    assert told.rule == "trap"
    assert ("grid.sync() in a launch that is not cooperative" in told.message) != cooperative
    assert ("cudaLaunchCooperativeKernel" in told.remedy) != cooperative


def test_the_cores_finding_is_bound_field_for_field(repository: Path) -> None:
    def names(file: str, begin: str, field: str) -> set[str]:
        _, _, rest = (repository / file).read_text().partition(begin)
        return set(re.findall(field, rest.partition("\n\n")[0], re.MULTILINE))

    struct = names("emulator/core/findings/finding.hpp", "struct Finding {", r"^    [\w:<>, ]+ (\w+)(?: = [^;]+)?;")
    stub = names("emulator/_core.pyi", "class Finding:", r"^    (\w+):")
    bound = {name for name in vars(_core.Finding) if not name.startswith("_")}
    assert struct == stub == bound
    assert len(struct) > 5
