"""The commands that look at a launch, as they are called: what they print as JSON, what they write, and a replay of an
archived run."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fmha.harness import archive
from fmha.harness.see.picture import Point, roofline
from fmha.harness.see.replay import schedule_of
from tests.evidence.records import record
from tests.forked import fmha
from tests.harness.support import RACE, git
from tests.see.places import LINE

KERNELS = Path(__file__).parent / "kernels"
EARLY = (str(KERNELS / "early.ptx"), "--launch", str(KERNELS / "early.yaml"))


def test_json_of_what_is_looked_at():
    seen = json.loads(fmha("diag", "barriers", *EARLY, "--json").stdout)
    assert (seen["format"], seen["what"], seen["kernel"]) == ("fmha-diag/1", "barriers", EARLY[0])
    assert any("mbarrier 0x480" in line for line in seen["lines"])
    budget = json.loads(fmha("budget", *EARLY, "--what-if", "shared=65536", "--json").stdout)
    assert budget["format"] == "fmha-budget/1"
    assert budget["needs"]["threads"] == 64
    assert budget["what_if"] == {"shared": 65536}
    assert budget["occupancy"]["sm_100a"]["ctas"] == budget["occupancy"]["sm_100a"]["bounds"]["shared memory"] == 3
    done = fmha("diff-run", f"{EARLY[0]}+early", f"{EARLY[0]}+late", *EARLY[1:], "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["format"] == "fmha-diff-run/1"
    assert found["lines"][0].startswith("the first value that differs")
    assert (found["first"]["cta"], found["first"]["warp"]) == (0, 0)
    done = fmha("diff-run", EARLY[0], EARLY[0], *EARLY[1:], "--json")
    assert (done.returncode, json.loads(done.stdout)["first"]) == (0, None)


def test_emulate_writes_a_timeline(tmp_path):
    """Whether or not there was a finding."""
    target = tmp_path / "trace.json"
    done = fmha("emulate", *EARLY, "--trace", str(target))
    assert done.returncode == 1
    assert f"wrote {target}: on b200, modelled, " in done.stderr
    events = json.loads(target.read_text())["traceEvents"]
    assert "copy of 128 bytes" in {event["name"] for event in events}
    refused = fmha("emulate", EARLY[0], "--trace", str(target))
    assert (refused.returncode, refused.stderr) == (2, "fmha: --trace: there is nothing to run; give --launch\n")


def test_the_picture_of_a_roofline():
    points = [Point("bound by memory", 10.0, 30.0, 40.0), Point("<product>", 4000.0, 1500.0, None)]
    drawn = ElementTree.fromstring(roofline("On a GPU", 7.0, 2000.0, points))
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in drawn.iter(f"{space}title")]
    assert titles == [
        "bound by memory: measured, 40 TFLOP/s",
        "bound by memory: modelled, 30 TFLOP/s",
        "<product>: modelled, 1500 TFLOP/s",
    ]
    (line,) = drawn.iter(f"{space}polyline")
    (x0, y0), (x1, y1), (x2, y2) = ([float(n) for n in point.split(",")] for point in line.attrib["points"].split())
    assert x0 < x1 < x2
    assert y0 > y1 == y2, "up to the ridge, then flat"
    circles = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawn.iter(f"{space}circle")]
    assert circles[0][0] == circles[1][0]
    assert circles[0][1] < circles[1][1], "what is faster is higher"


@pytest.mark.nvcc
def test_the_debugger_replays_an_archived_run_of_another_commit(repository, tmp_path):
    """The working tree's kernels no longer compile: those of the run's commit are taken."""
    checkout = tmp_path / "checkout"
    shutil.copytree(repository / "kernel", checkout / "kernel")
    shutil.copy(repository / "matrix.yaml", checkout)
    (checkout / ".gitignore").write_text("results/\n.fmha/\n")
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "the kernels of the run")
    sha = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=checkout, text=True).strip()
    archive.write(record(sha=sha), checkout / "results")
    for source in (checkout / "kernel" / "sm100").glob("*.cu"):
        source.write_text("#error of today\n")
    script = tmp_path / "script"
    script.write_text(f"break softmax_role.cuh:{LINE}\ncontinue\nwhere\n")
    done = fmha("debug", "--run", "latest", "hd64_t1_sk128", "--script", str(script), cwd=checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"softmax_role.cuh:{LINE}" in done.stdout.split("(fmha) continue\n")[1].splitlines()[0]
    done = fmha("debug", "--run", "latest", "hd64_t7_sk7", cwd=checkout)
    assert "the run latest has no such configuration" in done.stderr


def test_the_schedule_of_a_replay_is_one_that_showed_the_finding():
    found = replace(RACE, where={"ptx_line": 12, "schedule": "random:3"})
    shown = record(outcomes={"hd64_t1_sk128": {"findings": (found,)}})
    schedules = {item.id: schedule_of(shown, item) for item in shown.configurations}
    assert schedules == {"hd64_t1_sk128": "random:3", "hd64_t32_sk128": "realistic"}
