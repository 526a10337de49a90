"""Modelled times over commits: kept beside the records, a line for each model, never mixed with what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fmha.harness.errors import UserError
from fmha.harness.judge.comparison.comparison import Kind
from fmha.harness.see.modelled import of_suite
from fmha.harness.trends import modelled_times
from fmha.harness.trends.ancestry import ordered
from fmha.harness.trends.modelled_times import FIGURE, Times, kept
from fmha.harness.trends.series import Trends, trends
from tests.harness.support import git
from tests.trends.conftest import repository
from tools.mutants.examine import copy_kernel

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("hd64_t1_sk128", "hd64_t32_sk128")
AXES = {name: {"head_dim": 64, "t": t, "s_k": 128} for name, t in zip(NAMES, (1, 32), strict=True)}


def times(sha: str, seconds: float, **changes: str) -> Times:
    facts = {"gpu": "b200", "model": "0123abcd", "within": "a guess", "recorded": "2026-01-01T00:00:00+00:00"} | changes
    return Times(sha, seconds=dict.fromkeys(NAMES, seconds), axes=AXES, **facts)


def walked(root: Path, shas: list[str]) -> Trends:
    found, wrong = kept(root / "results")
    assert not wrong
    return trends([], ordered(root, dict.fromkeys(shas, "2026-01-01")), found)


def test_a_time_that_changes_is_told_with_its_commit_and_line(tmp_path: Path) -> None:
    shas = repository(tmp_path, ["One", "Two", "Three", "Four"])
    for place, sha in enumerate(shas):
        modelled_times.keep(tmp_path / "results", times(sha, 1.2e-5 if place >= 2 else 1e-5))
    found = walked(tmp_path, shas)
    (change,) = found.changes
    assert (change.place, change.worse, change.group.kind, change.chance) == (2, True, Kind.COUNTERS, 0.0)
    assert change.line == "modelled b200, model 0123abcd"
    assert change.group.text == "modelled time grew by 20% in 2 of 2 configurations"
    assert set(change.links) == {(name, FIGURE) for name in NAMES}


def test_another_model_is_another_line_and_no_change(tmp_path: Path) -> None:
    shas = repository(tmp_path, ["One", "Two", "Three", "Four"])
    for place, sha in enumerate(shas):
        model, seconds = ("89abcdef", 5e-5) if place >= 2 else ("0123abcd", 1e-5)
        modelled_times.keep(tmp_path / "results", times(sha, seconds, model=model))
    found = walked(tmp_path, shas)
    assert not found.changes
    assert {item.line for item in found.series} == {f"modelled b200, model {name}" for name in ("0123abcd", "89abcdef")}


def test_times_of_a_commit_are_added_to_those_it_has(tmp_path: Path) -> None:
    first = times("a" * 40, 1e-5)
    modelled_times.keep(tmp_path, first)
    later = {"hd64_t1_sk128": 2e-5}
    axes = {name: AXES[name] for name in later}
    path = modelled_times.keep(
        tmp_path, Times("a" * 40, "b200", "0123abcd", "a guess", modelled_times.now(), later, axes)
    )
    assert path.name == "aaaaaaaaaaaa-b200-0123abcd.json"
    ((item,), _) = kept(tmp_path)
    assert item.seconds == {"hd64_t1_sk128": 2e-5, "hd64_t32_sk128": 1e-5}


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data.pop("gpu"),
        lambda data: data.update(schema="fmha-modelled/2"),
        lambda data: data["axes"].clear(),
        lambda data: data["seconds"].update(hd64_t1_sk128=-1.0),
        lambda data: data["seconds"].update(hd64_t1_sk128="fast"),
    ],
)
def test_a_file_that_holds_none_is_named_and_stops_nothing(tmp_path: Path, harm: Callable[[dict], None]) -> None:
    good, bad = (modelled_times.keep(tmp_path, times(letter * 40, 1e-5)) for letter in "ab")
    data = json.loads(bad.read_text())
    harm(data)
    bad.write_text(json.dumps(data))
    found, wrong = kept(tmp_path)
    assert [item.sha[0] for item in found] == [good.name[0]]
    assert wrong[f"modelled/{bad.name}"].startswith("holds no modelled times: ")


def test_the_model_is_known_by_its_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("emulator/timing", "emulator/core/timing"):
        (tmp_path / folder).mkdir(parents=True)
        for path in (ROOT / folder).iterdir():
            if path.is_file():
                (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    here = modelled_times.model()
    monkeypatch.setattr(modelled_times, "installed_root", lambda: tmp_path)
    assert modelled_times.model() == here
    constants = tmp_path / "emulator" / "timing" / "b200.yaml"
    constants.write_text(constants.read_text().replace("multiprocessors: 148", "multiprocessors: 147"))
    assert modelled_times.model() != here


def test_a_suite_leaves_out_what_the_model_has_no_answer_for(repository: Path) -> None:
    from fmha.harness.config import load

    matrix = load(repository)
    found, left_out = of_suite(matrix, "seed,dsv4", (), "b200")
    assert left_out == {
        "the timing model draws no lists of sparse keys with holes, repetitions or lengths": sum(left_out.values())
    }
    assert len(found) + sum(left_out.values()) == len(matrix.configurations("seed,dsv4", 0))
    assert found
    assert left_out
    with pytest.raises(UserError, match="suite dsv4: the model has an answer for none of it"):
        of_suite(matrix, "dsv4", ("topk=512|1024,sk=512",), "b200")
    with pytest.raises(UserError, match="no suite is named 'none'"):
        of_suite(matrix, "none", (), "b200")


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_kernel_that_became_slower_is_seen_without_a_gpu(
    tmp_path: Path,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy_kernel(ROOT, tmp_path, {})
    matrix = yaml.safe_load((ROOT / "matrix.yaml").read_text())
    matrix["suites"] = {"small": {"axes": {"head_dim": [64], "t": [1], "s_k": [128, 256]}}}
    matrix["default_suite"] = "small"
    (tmp_path / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text() + "/site/\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "As it was")
    model = ("roofline", "--suite", "small", "--archive")
    assert command(tmp_path, "run-matrix", "-q") == 0
    assert command(tmp_path, *model) == 0
    path = tmp_path / "kernel" / "sm100" / "softmax_role.cuh"
    text = path.read_text()
    wait = "ptx::mbarrier_wait(shared.output_full(), (work.tiles - 1) & 1);"
    assert wait in text
    idle = 'for (int i = 0; i < 2000; ++i) { asm volatile("add.u32 %0, %0, 1;" : "+r"(i)); }'
    path.write_text(text.replace(wait, f"{wait} {idle}", 1))
    assert command(tmp_path, *model) == 2
    assert "--archive: kernel/sm100/softmax_role.cuh is not as in the commit" in capsys.readouterr().err
    git(tmp_path, "commit", "-q", "-a", "-m", "Count to a thousand")
    assert command(tmp_path, *model) == 0
    assert command(tmp_path, "publish", "site") == 0
    capsys.readouterr()
    (name,) = {item.line for item in kept(tmp_path / "results")[0]}
    page = (tmp_path / "site" / "index.html").read_text()
    assert "modelled time" in page
    assert name in page
    assert "Count to a thousand" in page
    assert "measured by nobody; held to no silicon" in (tmp_path / "site" / "trends.html").read_text()
