"""Timelines, as Perfetto's own trace processor reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import forked
from tests.see import perfetto

KERNELS = Path(__file__).parent / "kernels"
SLICES = "select name, ts, dur from slice"
THREADS = "select process.name, thread.name from thread join process using (upid) where thread.name is not null"
LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    perfetto.engine()  # skips before anything is run
    target = tmp_path_factory.mktemp("trace") / "trace.json"
    words = ("emulate", str(KERNELS / "early.ptx"), "--launch", str(KERNELS / "early.yaml"), "--trace", str(target))
    forked.fmha(*words)
    return target.read_bytes()


def test_perfetto_reads_every_span_of_a_timeline(trace):
    """Of each its name, and when it began and ended, to the nanosecond."""
    slices, threads, lost = perfetto.query(trace, SLICES, THREADS, LOST)
    assert lost == []
    events = json.loads(trace)["traceEvents"]
    ends = {(e["cat"], e["id"]): e["ts"] for e in events if e["ph"] == "e"}
    spans = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    spans += [(e["name"], e["ts"], ends[e["cat"], e["id"]] - e["ts"]) for e in events if e["ph"] == "b"]
    assert len(spans) > 10
    assert sorted(name for name, *_ in slices) == sorted(name for name, *_ in spans)
    for (_, start, length), (_, read_start, read_length) in zip(sorted(spans), sorted(slices), strict=True):
        assert (round(1e3 * start), round(1e3 * length)) == (read_start, read_length)
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    wanted = {(named[e["pid"]], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert set(threads) >= wanted


def test_perfetto_refuses_what_is_no_timeline():
    with pytest.raises(ValueError, match="Unknown trace type"):
        perfetto.query(b"no timeline", LOST)
