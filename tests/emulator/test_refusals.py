"""What the machine does not model, or the driver would refuse, is an error that names itself."""

from __future__ import annotations

import pytest

from fmha.emulator import Device, LaunchError, Module, PtxError, load_ptx

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry kernel(.param .u64 out) .maxntid 64
{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<8>;
    .reg .f32 %f<8>;
    .reg .b64 %d<8>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %d1, [out];
    mov.b32 %r1, 1;
    mov.b32 %f1, 0f3F800000;
"""
LINE = HEAD.count("\n") + 1
BLOCK_SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    " {%f1, %f1, %f1, %f1}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f1, %f1, %f1, %f1}, {%r1}, {%h1, %h1}, {%r1},"
    " {%h1, %h1};"
)


def launch(body: str, **changes: object) -> object:
    device = Device()
    out = device.alloc(1024, "out")
    arguments: dict[str, object] = {"grid": (1, 1, 1), "block": (32, 1, 1), "args": [out.address]} | changes
    module = load_ptx(HEAD + body + "\n    ret;\n}\n")
    return device.launch(module, "kernel", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f1, %f1, %f1, %f1}];", "cube"),
        (BLOCK_SCALED, "needs target sm_120a, the module is for sm_100a"),
        ("cp.async.bulk.prefetch.tensor.3d.L2.global.im2col::w [%d1, {%r1, %r1, %r1}];", "along W alone"),
        ("add.f32.wobble %f2, %f1, %f1;", "wobble"),
        ("add.rz.rn.f32 %f2, %f1, %f1;", "in add"),
        ("add.s32 %r2, %r1;", "operands are expected"),
        ("add.s32 %r2, %r1, %d1;", "%d1 is .b64"),
        ("add.f32 %f2, %f1, 1;", "integer constant"),
        ("mov.b64 %d2, %pm0;", "%pm0"),
        ("mov.b32 %r2, nowhere;", "nowhere"),
        ("mov.b32 %r2, tile-20000;", "computed to -18976"),
        ("shfl.sync.sideways.b32 %r2, %r1, 0, 31, -1;", "shfl"),
        ("tcgen05.mma.cta_group::1.kind::f17 [%r1], %d1, %d1, %r1, %p1;", "kind::"),
        ("tcgen05.ld.sync.aligned.33x33b.x1.b32 {%r2}, [%r1];", "tcgen05.ld"),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r2}, [%r1];", "2 registers"),
        ("mbarrier.try_wait.parity.shared::cta.b32 %p1, [%r1], 0;", "b64"),
    ],
)
def test_an_unknown_form_names_its_line(statement: str, complaint: str) -> None:
    with pytest.raises(PtxError) as error:
        launch("    " + statement)
    assert error.value.line == LINE
    assert statement.rstrip(";") in str(error.value)
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"grid": (0, 1, 1)}, "grid.x is 0"),
        ({"grid": (1, 65536, 1)}, "grid.y is 65536"),
        ({"grid": (2**31 - 1, 65535, 65535)}, r"warps; a launch may execute 4,000,000,000 instructions"),
        ({"block": (65, 1, 1)}, "allows 64"),
        ({"block": (1, 1, 65)}, "block.z is 65"),
        ({"grid": (1, 1, 1, 1)}, "grid has 4 dimensions"),
        ({"block": ()}, "block has 0 dimensions"),
        ({"shared_bytes": 232448}, "a CTA has 232448"),
        ({"shared_bytes": -1}, "shared memory"),
        ({"args": []}, "takes 1 parameters"),
        ({"args": [b"1234"]}, "8 bytes, 4 were passed"),
        ({"args": [1 << 64]}, "does not fit"),
    ],
)
def test_a_launch_the_driver_refuses_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(LaunchError, match=complaint):
        launch("", **changes)


@pytest.mark.parametrize(
    ("target", "most"),
    [
        ("sm_80", 49152),
        ("sm_90", 49152),
        ("sm_90a", 232448),
        ("sm_100f", 49152),
        ("sm_100a", 232448),
        ("sm_120a", 101376),
    ],
)
def test_static_shared_memory_is_what_ptxas_allows_the_target(target: str, most: int) -> None:
    """A target of one architecture alone has all of a CTA's: nvcc 13.0 compiles 80 KiB of arrays for sm_100a."""

    def load(nbytes: int) -> Module:
        head = HEAD.replace("sm_100a", target).replace("tile[1024]", f"tile[{nbytes}]")
        return load_ptx(head + f"    st.shared.b32 [tile+{nbytes - 4}], %r1;\n    ret;\n}}\n")

    assert Device().launch(load(most), "kernel", 1, 1, [0]).ok
    with pytest.raises(LaunchError, match="shared memory"):
        Device().launch(load(most + 16), "kernel", 1, 1, [0])


def test_an_unknown_entry_is_named() -> None:
    with pytest.raises(LaunchError, match="no entry 'other'; the module has kernel"):
        Device().launch(load_ptx(HEAD + "ret;\n}\n"), "other", (1, 1, 1), (1, 1, 1), [0])


def test_dimensions_that_are_left_out_are_one() -> None:
    for dims in (1, (1,), [1, 1]):
        assert launch("", grid=dims, block=dims).ok  # type: ignore[attr-defined]


def test_the_largest_shared_memory_is_accepted() -> None:
    report = launch("", shared_bytes=232448 - 1024)
    assert not report.findings  # type: ignore[attr-defined]
