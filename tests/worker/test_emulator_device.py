"""The launcher over the real emulator, and the emulator's refusals and findings in the worker's own terms."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmha.harness.contract.codec import encode
from fmha.harness.contract.device import DeviceError, LaunchConfig
from fmha.harness.contract.protocol import Configuration, Job
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.findings import WHERE
from fmha.harness.kernel_side.launch import tensor_map
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.across import Executor
from fmha.harness.worker.devices.emulator_device import EmulatorDevice

PTX = """\
.version 9.0
.target sm_100a
.address_size 64
.visible .entry poke(.param .u64 poke_param_0)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [poke_param_0];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@pytest.fixture
def head_dim_64(builds):
    """Our kernels of that head_dim on sm_100a."""
    return tuple(builds[item.name] for item in VARIANTS if (item.head_dim, item.arch) == (64, "sm_100a"))


@pytest.fixture(params=["in this process", "across the wall"])
def factory(request, tmp_path):
    """Of an emulator in this process, and of one in an executor: nobody can tell them apart."""
    if request.param == "in this process":
        yield EmulatorDevice
        return
    builds = request.getfixturevalue("head_dim_64") if "head_dim_64" in request.fixturenames else ()
    artefacts = [tmp_path / "any.ptx", *(Path(build.ptx) for build in builds)]
    with closing(Executor("emulator", artefacts)) as executor:
        yield executor.open


@pytest.fixture
def device(factory):
    return factory(0, "realistic")


@pytest.fixture
def module(device, tmp_path):
    path = tmp_path / "poke.ptx"
    path.write_text(PTX)
    return device.load(path)


def poke(device, module, address, **changes):
    config = replace(LaunchConfig((1, 1, 1), (1, 1, 1)), **changes)
    return device.launch(module, "poke", config, address.to_bytes(8, "little"))


def test_memory_and_a_launch(device, module):
    address = device.alloc(16, "words")
    device.upload(address, np.arange(4, dtype=np.uint32))
    report = poke(device, module, address)
    assert device.download(address, 16).view(np.uint32).tolist() == [7, 1, 2, 3]
    assert report.findings == ()
    assert report.stats["warp_instructions"] > 0


def test_a_finding_names_its_place(device, module):
    (finding,) = poke(device, module, 0x10).findings
    assert finding.severity == "error"
    assert finding.where["ptx_line"] == 10
    assert finding.where["ptx"].startswith("st.global.u32")
    assert finding.where["cta"] == 0
    assert {name: type(value) for name, value in finding.where.items()}.items() <= WHERE.items()
    assert json.dumps(encode(finding))


def test_a_lenient_launch_may_store_the_same_value_twice(device, module):
    """Each launch by itself: the next one is strict again."""
    address = device.alloc(16, "words")
    grid = (2, 1, 1)
    assert poke(device, module, address, grid=grid, lenient=True).findings == ()
    (finding,) = poke(device, module, address, grid=grid).findings
    assert (finding.rule, finding.severity) == ("race", "error")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared_bytes": 1 << 20}, "shared memory"),
        ({"block": (2048, 1, 1)}, "block.x"),
        ({"grid": (0, 1, 1)}, "grid.x"),
    ],
)
def test_a_launch_that_the_driver_would_refuse(device, module, changes, message):
    with pytest.raises(DeviceError, match=message):
        poke(device, module, device.alloc(16, "words"), **changes)


def test_a_tensor_map_that_the_driver_would_refuse(device):
    with pytest.raises(DeviceError, match="tensor map refused: address"):
        device.encode_tensor_map(tensor_map(8, (1, 4, 64), 128))


def test_ptx_that_cannot_be_loaded(device, tmp_path):
    path = tmp_path / "bad.ptx"
    path.write_text(PTX.replace("ret;", "ret"))
    with pytest.raises(DeviceError, match=r"bad\.ptx refused: line "):
        device.load(path)


def test_an_unknown_schedule(factory):
    with pytest.raises(DeviceError, match="schedule 'lazy'"):
        factory(0, "lazy")


@pytest.mark.nvcc
def test_the_kernel_from_source_to_numbers(head_dim_64, factory):
    events = []
    configurations = (Configuration(64, 1, 1), Configuration(64, 33, 129, batch=2))
    run_job(Job("emulator", head_dim_64, configurations, seed=1), factory, events.append)
    results = [event for event in events if event.event == "result"]
    assert len(results) == 2, events
    for event in results:
        assert event.findings == ()
        assert event.measurement.cosine > 0.99999
        assert event.measurement.lse_error < 1e-4
        assert (event.measurement.unwritten, event.measurement.nonfinite_mismatches) == (0, 0)


@pytest.mark.nvcc
@pytest.mark.parametrize("how", ["b2_h2_lens-ragged", "h2_top20_of9_sink-finite_out-bf16", "b2_out-fp32_splits3"])
def test_the_end_of_tensors_that_no_memory_would_hold(head_dim_64, factory, how):
    """The same bits as at their beginning; what lies before is not there, and nobody misses it."""
    names = [f"hd64_t40_sk129_{how}{far}" for far in ("", "_before65000")]
    events = []
    configurations = tuple(map(parse_id, names))
    run_job(Job("emulator", head_dim_64, configurations, seed=1), factory, events.append)
    at_first, far = [event for event in events if event.event == "result"]
    assert far.findings == ()
    assert (far.measurement.unwritten, far.measurement.cosine > 0.99999) == (0, True)
    assert far.measurement.output_hash == at_first.measurement.output_hash
    assert far.stats["warp_instructions"] == at_first.stats["warp_instructions"]


INLINED = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry kernel(.param .b32 unused) {
.reg .pred %p<2>; .reg .b32 %r<4>; .shared .align 4 .b32 tile;
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 32;
.loc 1 5 0
@%p0 st.shared.u32 [tile], 1;
.loc 2 9 0, function_name $name, inlined_at 1 7 0
.loc 3 4 0, function_name $name, inlined_at 2 9 0
.loc 4 2 0, function_name $name, inlined_at 3 4 0
@%p1 st.shared.u32 [tile], 2;
ret;
}
.file 1 "kernel/a.cu"
.file 2 "kernel/common/rows.cuh"
.file 3 "kernel/common/ptx/shared.cuh"
.file 4 "/usr/local/cuda/include/intrinsics.hpp"
.section .debug_str { $name: .b8 102, 0 }
"""


def test_a_hazard_names_the_kernel_s_own_line_and_the_calls_that_were_inlined(device, tmp_path):
    (tmp_path / "kernel.ptx").write_text(INLINED)
    report = device.launch(
        device.load(tmp_path / "kernel.ptx"), "kernel", LaunchConfig((1, 1, 1), (64, 1, 1)), bytes(4)
    )
    (finding,) = report.findings
    assert finding.where["source"] == "kernel/common/rows.cuh:9"
    assert finding.where["calls"] == [
        "/usr/local/cuda/include/intrinsics.hpp:2",
        "kernel/common/ptx/shared.cuh:4",
        "kernel/common/rows.cuh:9",
        "kernel/a.cu:7",
    ]
    assert finding.where["other_source"] == "kernel/a.cu:5"
    assert "other_calls" not in finding.where
    assert {name: type(value) for name, value in finding.where.items()}.items() <= WHERE.items()


def reader(waits: str) -> str:
    """A kernel that adds one word to another, and waits for the grid before it as `waits` says."""
    return f"""\
.version 9.0
.target sm_90a
.address_size 64
.visible .entry reader(.param .align 8 .b8 words[16])
{{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .reg .pred %p<3>;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    setp.ge.u32 %p2, %r1, 32;
    {waits}
    ld.param.u64 %rd1, [words];
    ld.param.u64 %rd2, [words+8];
    @%p1 ld.global.u32 %r2, [%rd1];
    @%p1 st.global.u32 [%rd2], %r2;
    ret;
}}
"""


@pytest.mark.parametrize(
    ("waits", "overlaps", "rules"),
    [
        ("", False, set()),
        ("", True, {"launch-race"}),
        ("griddepcontrol.wait;", True, set()),
        ("@%p2 griddepcontrol.wait;", True, {"launch-race"}),
    ],
)
def test_a_launch_that_overlaps_the_grid_before_waits_for_it(
    factory, tmp_path: Path, waits: str, overlaps: bool, rules: set[str]
) -> None:
    """Also where it is the first: on a GPU somebody has written what it reads."""
    ptx = tmp_path / "reader.ptx"
    ptx.write_text(reader(waits))
    given = np.arange(5, dtype=np.uint32)
    with closing(factory(0, "realistic")) as device:
        places = [device.alloc(given.nbytes, name) for name in ("from", "to")]
        for place in places:
            device.upload(place, given)
        config = LaunchConfig((1, 1, 1), (64, 1, 1), 0, overlaps=overlaps)
        words = b"".join(place.to_bytes(8, "little") for place in places)
        report = device.launch(device.load(ptx), "reader", config, words)
        assert {finding.rule for finding in report.findings} == rules
        for place in places:
            assert device.download(place, given.nbytes).view(np.uint32).tolist() == given.tolist()
        assert report.stats["warp_instructions"] < 50  # the reader's alone
