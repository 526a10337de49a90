"""The commands over the archive. In this process, whose start is most of what they cost; but for two at the end."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fmha.harness import archive, cli
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence import baseline
from fmha.harness.judge.comparison.noise import LEAST_SEEDS
from tests.evidence.records import IDS, archived, measured, record
from tests.harness.support import GOOD

Fmha = Callable[..., CompletedProcess[str]]


@pytest.fixture
def fmha(checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fmha:
    """Runs `fmha` in the checkout, signal handlers apart."""

    def run(*arguments: str) -> CompletedProcess[str]:
        monkeypatch.chdir(checkout)
        monkeypatch.setattr("fmha.harness.cli.signal.signal", lambda *_: None)
        capsys.readouterr()
        code = cli.run(arguments)
        said = capsys.readouterr()
        return CompletedProcess(list(arguments), code, said.out, said.err)

    return run


@pytest.fixture
def results(checkout: Path) -> Path:
    """Three runs, the newest with a larger error, and a file that was cut."""
    folder = checkout / "results"
    archived(folder, 2)
    archive.write(
        record(sha="a" * 40, minutes=9, outcomes={IDS[0]: measured(max_error=5e-2, output_hash="1" * 64)}), folder
    )
    cut = archive.write(record(minutes=10), folder)
    cut.write_text(cut.read_text()[:99])
    return folder


def test_lists_and_histories_skip_what_is_broken(results: Path, fmha: Fmha) -> None:
    listed = fmha("results", "ls")
    assert listed.returncode == ExitCode.PASS
    assert [line.split()[1] for line in listed.stdout.splitlines()] == ["commit", "a" * 12, "0" * 12, "0" * 12]
    assert listed.stderr.startswith("fmha: 20261121T031405Z-")
    assert "is not JSON" in listed.stderr
    shown = fmha("history", IDS[0], "--limit", "1")
    assert [line.split()[2] for line in shown.stdout.splitlines()[1:2]] == ["a" * 12]
    assert "2 more" in shown.stdout
    assert "1 files skipped" in shown.stderr


def test_json_has_its_format_first(results: Path, fmha: Fmha) -> None:
    newest = next(results.glob("*-aaaaaaaaaaaa-*")).name
    for arguments, kind, field in (
        (("results", "ls"), "results", "runs"),
        (("results", "verify"), "verify", "broken"),
        (("results", "prune", "--dry-run", "--keep", "0"), "prune", "runs"),
        (("history", IDS[0]), "history", "points"),
        (("compare", str(results / newest), newest), "compare", "configurations"),
        (("report", newest), "report", "file"),
    ):
        ran = fmha(*arguments, "--json")
        found = json.loads(ran.stdout)
        assert next(iter(found.items())) == ("format", f"fmha-{kind}/1")
        assert found[field]


def test_a_comparison_names_what_is_worse(results: Path, fmha: Fmha) -> None:
    older = sorted(path.name for path in results.glob("2*"))[0]
    newest = next(results.glob("*-aaaaaaaaaaaa-*")).name
    ran = fmha("compare", older, newest, "--changed")
    assert ran.returncode == ExitCode.PASS
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("hd64")] == [IDS[0]]
    assert lines[-5] == f"numbers: largest relative error grew 50 times in {IDS[0]}"
    assert lines[-4].startswith(f"  numbers {IDS[0]}: max_error {GOOD.max_error:.2e} -> 5.00e-02")
    assert lines[-1] == f"Largest relative error grew 50 times in {IDS[0]}; nothing else got worse"
    assert fmha("compare", older, newest, "--exit-code").returncode == ExitCode.GATE_FAILED
    assert fmha("compare", older, newest, "--exit-code", "--json").returncode == ExitCode.GATE_FAILED
    assert fmha("compare", older, older, "--exit-code").returncode == ExitCode.PASS


def test_a_damaged_archive_is_a_red_verification(results: Path, fmha: Fmha) -> None:
    ran = fmha("results", "verify")
    assert ran.returncode == ExitCode.GATE_FAILED
    assert ran.stdout.splitlines()[-1] == "4 files, 1 broken"
    next(results.glob("20261121T031405Z-*")).unlink()
    assert fmha("results", "verify").returncode == ExitCode.PASS


def test_pruning_says_what_it_does_and_does_it(results: Path, fmha: Fmha) -> None:
    assert "2 runs would be removed" in fmha("results", "prune", "--keep", "1", "--dry-run").stdout
    assert len(list(results.glob("2*.json"))) == 4
    assert "2 runs compressed" in fmha("results", "prune", "--keep", "1", "--compress").stdout
    assert len(list(results.glob("2*.json.gz"))) == 2
    assert "2 runs removed" in fmha("results", "prune", "--keep", "1").stdout
    assert len(list(results.glob("2*.json.gz"))) == 0


@pytest.mark.parametrize("compress", [[], ["--compress"]], ids=["remove", "compress"])
def test_an_archive_that_cannot_be_written_is_left_as_it_is(
    repository: Path, results: Path, compress: list[str]
) -> None:
    """Mounted read-only, which stops root as well."""
    before = {path.name: path.read_bytes() for path in results.glob("2*")}
    mount = 'mount --bind results results && mount -o remount,bind,ro results && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = [sys.executable, "-m", "fmha", "results", "prune", "--keep", "1", *compress]
    ran = subprocess.run(
        ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *command],
        cwd=results.parent,
        env=os.environ | {"PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare: " in ran.stderr or "mount: " in ran.stderr:
        pytest.skip(f"no mounts of one's own here: {ran.stderr.strip()}")
    assert ran.returncode == ExitCode.INFRASTRUCTURE
    assert "Read-only file system" in ran.stderr
    assert [line for line in ran.stderr.splitlines() if "skipped" not in line] == ran.stderr.splitlines()[-1:]
    assert {path.name: path.read_bytes() for path in results.glob("2*")} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("regress",), "there is no baseline for emulator; archive a run with fmha run-matrix"),
        (("regress", "--allow", "mood"), "--allow: no kind is named 'mood'"),
        (("regress", "--baseline", "moon"), "there is no baseline for moon"),
        (("baseline", "show"), "no baseline yet"),
        (("regress", "--suite", "moon"), "no baseline is of suite moon on emulator"),
        (("baseline", "sign", "moon"), "there is no baseline moon"),
        (("baseline", "accept", "latest", "--why", "x", "--name", "../up"), "--name: '../up' is not made of"),
        (("baseline", "accept", "latest", "--why", "x", "--allowance", "mma"), "'mma' is not COUNTER=SHARE"),
        (("baseline", "accept", "latest", "--why", " "), "--why: a baseline needs its reason"),
        (("baseline", "accept", "latest", "--why", "x", "--seeds", "3"), "--seeds: noise needs at least 10 seeds"),
        (("history", "hd64_t1_sk12"), "near it are hd64_t1_sk128"),
        (("report", "nothing"), "no run is known as 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_one_line(results: Path, fmha: Fmha, arguments: tuple[str, ...], words: str) -> None:
    ran = fmha(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_baseline_is_a_clean_green_run(checkout: Path, fmha: Fmha) -> None:
    red = record(outcomes={IDS[0]: {"status": "fail", "reasons": ("x",)}})
    dirty = record(minutes=1)
    dirty = dirty.model_copy(update={"commit": dirty.commit.model_copy(update={"dirty": True, "dirty_count": 2})})
    for run, words in ((red, f"the run did not pass: {IDS[0]}"), (dirty, "2 file(s) that differ from its commit: ")):
        path = archive.write(run, checkout / "results")
        ran = fmha("baseline", "accept", path.name, "--why", "x")
        assert ran.returncode == ExitCode.USAGE
        assert words in ran.stderr
    assert not (checkout / "results" / "baselines").exists()


def test_a_damaged_baseline_hides_no_other(checkout: Path, fmha: Fmha) -> None:
    results = checkout / "results"
    good = baseline.path_of("emulator", results)
    good.parent.mkdir(parents=True)
    good.write_text(archive.dumps(record()))
    (good.parent / "moon.json").write_text("{")
    shown = fmha("baseline", "show")
    assert shown.returncode == ExitCode.USAGE
    assert shown.stdout.startswith("emulator: commit ")
    assert "moon.json: is not JSON" in shown.stderr
    listed = json.loads(fmha("baseline", "show", "--json").stdout)
    assert [item["name"] for item in listed["baselines"]] == ["emulator"]
    assert [item["name"] for item in listed["unreadable"]] == ["moon"]
    of_mine = baseline.of_host(record().host.name, results)
    assert of_mine is not None
    assert of_mine.checksum == archive.read(good).checksum
    with pytest.raises(UserError, match="is not JSON"):
        baseline.of_host("moon", results)


def test_checked_in_baselines_are_whole(repository: Path) -> None:
    paths = sorted((repository / "results" / "baselines").glob("*.json"))
    assert paths
    for path in paths:
        found = archive.read(path)
        assert baseline.name_of(found) == path.stem
        assert found.acceptance
        assert len(found.acceptance.seeds) >= LEAST_SEEDS
        passed = {item.id for item in found.configurations if item.status == "pass"}
        assert passed
        assert set(found.acceptance.noise) == passed


def test_the_shell_completes_commands(repository: Path) -> None:
    asked = {"_FMHA_COMPLETE": "complete_bash", "COMP_WORDS": "fmha reg", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "fmha"],
        env=os.environ | {"PYTHONPATH": str(repository)} | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["regress"]


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colour_on_a_terminal_unless_unwanted(results: Path, checkout: Path, repository: Path, no_color: str) -> None:
    older, newest = (sorted(path.name for path in results.glob("2*"))[place] for place in (0, 2))
    parent, child = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"PYTHONPATH": str(repository), "TERM": "xterm-256color"} | ({"NO_COLOR": "1"} if no_color else {})
    command = [sys.executable, "-m", "fmha", "compare", older, newest]
    process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=child, stderr=child, close_fds=True)
    os.close(child)
    said = b""
    try:
        while chunk := os.read(parent, 1 << 16):
            said += chunk
    except OSError:  # the other end was closed
        pass
    os.close(parent)
    assert process.wait() == ExitCode.PASS
    assert (b"\x1b[31m" in said) is not bool(no_color)
