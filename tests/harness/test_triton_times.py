"""The timing model and a Triton kernel that was measured on an H200."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("triton", reason="no Triton: make triton adds it")

from fmha.harness.bench.trials import triton_times


def test_a_measured_kernel_is_modelled_in_its_configuration(repository, tmp_path, monkeypatch, capsys):
    rows = json.loads((repository / "results/bench-h200.json").read_text())["rows"]
    chosen = [row for row in rows if (row["kind"], row["head_dim"]) in (("short", 64), ("prefill", 64))]
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"rows": chosen}))
    monkeypatch.setattr(sys, "argv", ["strangers", str(record)])
    assert triton_times.main() == 0
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("short   64      4.2")
    assert line.endswith("splits=8 rows=64 keys=64 warps=4 stages=3")
    assert last.startswith("1 measured: mean error ")
