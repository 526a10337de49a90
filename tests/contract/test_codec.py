import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.harness.contract.codec import CodecError, decode, encode, event_from_line, event_to_line, read_job, write_job
from fmha.harness.contract.protocol import (
    Bias,
    BuildResult,
    Configuration,
    Event,
    FindingRecord,
    Job,
    Measurement,
    Resources,
    Timed,
)
from fmha.harness.judge.metrics import METRICS
from fmha.harness.kernel_side.variants import VARIANTS

BUILD = BuildResult(
    VARIANTS[0], "/c/k.ptx", "/c/k.cubin", Resources(186, 0, 0, 0, 0), "ab", "release 13.0", ("-O3",), 1.5, False
)
JOB = Job("emulator", (BUILD,), (Configuration(64, 1, 128), Configuration(64, 4, 256, 2, "window", 32)), 7)

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
figures = st.builds(
    Measurement,
    **{name: st.floats() for name in METRICS},
    nonfinite_mismatches=st.integers(0, 9),
    unwritten=st.integers(0, 9),
    output_hash=st.text(max_size=4),
    bias=st.builds(Bias, *[st.floats() for _ in range(6)]),
)
findings = st.builds(
    FindingRecord,
    st.text(max_size=9),
    st.sampled_from(["error", "warning"]),
    st.text(),
    st.dictionaries(st.text(max_size=5), anything, max_size=3),
)
times = st.lists(st.floats(), max_size=3).map(tuple)
timings = st.builds(Timed, times, times, st.text(max_size=9), times, times)
events = st.builds(
    Event,
    st.sampled_from(["started", "result", "error", "done"]),
    st.text(),
    st.none() | figures,
    st.lists(findings, max_size=2).map(tuple),
    st.dictionaries(st.text(max_size=5), anything, max_size=3),
    st.floats(),
    st.text(max_size=9),
    st.text(max_size=9),
    st.none() | timings,
)


def text_of(value):
    """Equal for equal values, where NaN equals NaN."""
    return repr(dataclasses.asdict(value))


@given(events)
def test_an_event_survives_the_round_trip(event):
    line = event_to_line(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert text_of(event_from_line(line)) == text_of(event)


def test_a_line_is_strict_json():
    line = event_to_line(Event("result", "x", seconds=math.nan, stats={"rate": math.inf}))
    assert json.loads(line, parse_constant=pytest.fail)["seconds"] == "nan"


def test_numpy_scalars_become_numbers():
    data = encode(Event("result", stats={"n": np.int64(3), "x": np.float32(0.5)}))
    assert data["stats"] == {"n": 3, "x": 0.5}
    assert type(data["stats"]["n"]) is int


def test_a_job_survives_the_round_trip(tmp_path):
    write_job(JOB, tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == JOB


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("seed"), "job.seed: missing"),
        (lambda data: data.update(sead=1), "job.sead: unknown field"),
        (lambda data: data.update(seed="1"), "job.seed: expected int, found '1'"),
        (lambda data: data.update(seed=True), "job.seed: expected int, found True"),
        (lambda data: data.update(schema=3), "job.schema: this worker reads 2, not 3"),
        (lambda data: data["configurations"][1].update(t=1.5), "job.configurations[1].t: expected int, found 1.5"),
        (lambda data: data["configurations"][0].update(mask="big"), "job.configurations[0].mask: expected one of none"),
        (lambda data: data.update(configurations={}), "job.configurations: expected a list, found dict"),
        (lambda data: data["configurations"].append(data["configurations"][0]), "more than once: hd64_t1_sk128"),
        (lambda data: data["builds"][0].update(variant=None), "job.builds[0].variant: expected an object, found null"),
        (lambda data: data["builds"][0]["variant"].update(defines=[["A"]]), "defines[0]: expected 2 items, found 1"),
        (lambda data: data["builds"][0].update(seconds="soon"), "job.builds[0].seconds: expected float, found 'soon'"),
    ],
)
def test_a_bad_job_is_refused_by_the_name_of_its_field(tmp_path, change, message):
    data = encode(JOB)
    change(data)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(data))
    with pytest.raises(CodecError) as caught:
        read_job(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("line", [b"", b"{", b'{"event": "resu', b"[1]", b"\xff", b'{"event": "gone"}', b"[" * 100_000])
def test_what_is_no_event_is_refused(line):
    with pytest.raises(CodecError):
        event_from_line(line)


def test_an_optional_field_may_be_null():
    assert decode(Event, {"event": "done", "measurement": None}, "event") == Event("done")
