"""The command line as its users meet it: a process of its own in a checkout of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fmha.harness.cli import exit_code_of
from fmha.harness.errors import ConfigError, ExitCode, InfrastructureError, InterruptionError, UserError
from tests import forked

ROOT = Path(__file__).resolve().parents[2]

Ran = subprocess.CompletedProcess[str]


def fmha(directory: Path, *arguments: str, **environment: str) -> Ran:
    return forked.fmha(*arguments, cwd=directory, env=os.environ | environment, timeout=60)


def refused(ran: Ran, code: ExitCode, *lines: str) -> None:
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [f"fmha: {line}" for line in lines]


def test_help_is_enough_to_go_on(checkout: Path) -> None:
    top, command = fmha(checkout, "--help"), fmha(checkout, "run-matrix", "--help")
    assert top.returncode == command.returncode == 0
    for ran in (top, command):
        for code in ExitCode:
            assert f"\n  {code.value}  " in ran.stdout
    assert "run-matrix" in top.stdout
    options = "--host --suite --filter --json --dry-run --seed --schedule --schedules --case --cases --results --quiet"
    assert [option for option in options.split() if option not in command.stdout] == []


def codes_told(ran: Ran) -> dict[int, str]:
    """By the exit code what the help says of it."""
    told = ran.stdout.partition("Exit codes:\n")[2]
    return {
        int(code): " ".join(text.split()) for code, text in re.findall(r"^  (\d)  ((?:.|\n(?=     ))+)", told, re.M)
    }


@pytest.mark.parametrize("command", ["compare", "logs", "ps", "history", "report", "clean", "cancel", "hosts"])
def test_a_command_that_judges_nothing_has_no_exit_code_of_a_verdict(checkout: Path, command: str) -> None:
    told = codes_told(fmha(checkout, command, "--help"))
    assert list(told) == [ExitCode.PASS, ExitCode.USAGE, ExitCode.INFRASTRUCTURE]
    assert not re.search("configuration|gate|kernel", " ".join(told.values()))


@pytest.mark.parametrize("command", ["", "run-matrix", "emulate", "results"])
def test_exit_codes_are_filled_to_the_terminal(checkout: Path, command: str) -> None:
    ran = fmha(checkout, *command.split(), "--help", COLUMNS="60")
    assert max(map(len, ran.stdout.splitlines())) <= 60 or command != ""
    listed = ran.stdout.partition("Exit codes:")[2].splitlines()
    assert max(map(len, listed)) <= 60
    assert codes_told(ran)[0]


def test_a_command_that_is_almost_one(checkout: Path) -> None:
    assert "run-matrix" in fmha(checkout, "rn-matrix").stderr


@pytest.mark.parametrize(
    ("arguments", "light"),
    [(["--help"], True), (["ps"], True), (["run-matrix", "--dry-run"], True), (["history", "hd64_t1_sk128"], False)],
)
def test_what_a_command_does_not_need_is_not_loaded(checkout: Path, arguments: list[str], light: bool) -> None:
    """Half of a second went into modules of other commands, and half of the rest into NumPy."""
    script = "import sys; from fmha.harness.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    here = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=checkout, env=os.environ | {"PYTHONPATH": here}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    loaded = set(ran.stderr.splitlines()[-1].split())
    heavy = {"numpy", "emulator", "jinja2", "rich.progress"} | ({"pydantic"} if "--help" in arguments else set())
    if arguments[0] == "run-matrix":  # whose host is at work while it loads what records need
        heavy |= {"fmha.harness.archive.record", "xml.etree.ElementTree"}
    assert "fmha.harness.cli.app" in loaded
    assert not heavy & loaded if light else "numpy" in loaded


def test_the_version(checkout: Path) -> None:
    ran = fmha(checkout, "--version")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ran.returncode == 0
    assert re.fullmatch(rf"fmha [0-9.]+, commit {head[:12]}\+?, core [0-9a-f]{{12}}\n", ran.stdout)


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["run-matrix", "--nope"], ["run-matrix", "--seed", "-1"], ["run-matrix", "extra"]]
)
def test_wrong_usage(checkout: Path, arguments: list[str]) -> None:
    assert fmha(checkout, *arguments).returncode == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--suite", "big"], "no suite is named 'big'; matrix.yaml has small, wide; all is every one"),
        (["--suite", ""], "--suite: a name is empty; leave --suite out for the default suites"),
        (["--host", "moon"], "no host is named 'moon'; matrix.yaml has emulator"),
        (
            ["--schedule", "x"],
            (
                "--schedule: 'x' is no schedule; use realistic, early, late, random, spurious, pct, "
                "or random:N, spurious:N, pct:N"
            ),
        ),
        (
            ["--schedule", "late", "--schedules", "3"],
            "--schedules: explores several schedules, --schedule is one; use either",
        ),
        (
            ["--case", "hd64"],
            "--case hd64: it has no t, s_k: names begin like hd64_t32_sk384; docs/use/matrix.md explains names",
        ),
        (
            ["--case", "hd64_t1_sk128", "--suite", "small"],
            "--case: names what to run in place of a suite, --suite a suite; use either",
        ),
        (
            ["--case", "hd64_t1_sk128", "--cases", "3"],
            "--case: names what to run in place of a suite, --cases a suite; use either",
        ),
        (["--cases", "3"], "--cases: suite small is not random; matrix.yaml has no random suite"),
        (["--filter", "hd=7"], "no configuration matches --filter hd=7 in suite small; there hd is one of 64, 128"),
    ],
)
def test_requests_that_cannot_be_met(checkout: Path, arguments: list[str], line: str) -> None:
    refused(fmha(checkout, "run-matrix", *arguments), ExitCode.USAGE, line)


def test_a_broken_matrix_file(checkout: Path) -> None:
    path = checkout / "matrix.yaml"
    path.write_text(path.read_text().replace("t: [1, 32]", "t: [1, 0]").replace("seed: 7", "seed: x"))
    refused(
        fmha(checkout, "run-matrix"),
        ExitCode.USAGE,
        "matrix.yaml:2: seed: must be a whole number, not 'x'",
        "matrix.yaml:7: suites.small.axes.t[1]: must be at least 1, not 0",
    )
    assert not (checkout / "results").exists()


def test_outside_a_checkout(tmp_path: Path) -> None:
    line = f"{tmp_path}: not in a git checkout; run fmha inside the project"
    refused(fmha(tmp_path, "run-matrix"), ExitCode.USAGE, line)


def test_no_git(checkout: Path) -> None:
    line = "git is not installed or not on PATH; install git"
    refused(fmha(checkout, "run-matrix", PATH="/nowhere"), ExitCode.INFRASTRUCTURE, line)


def test_tracebacks_are_for_those_who_ask(checkout: Path) -> None:
    plain = fmha(checkout, "run-matrix", "--suite", "big")
    asked = fmha(checkout, "--debug", "run-matrix", "--suite", "big")
    through_environment = fmha(checkout, "run-matrix", "--suite", "big", FMHA_DEBUG="1")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in asked.stderr
    assert "Traceback" in through_environment.stderr
    assert asked.returncode == ExitCode.USAGE


def test_a_dry_run_runs_nothing(checkout: Path) -> None:
    ran = fmha(checkout, "run-matrix", "--dry-run", "--filter", "hd=64,t=1")
    assert ran.returncode == 0
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[0] == "suite small --filter hd=64,t=1, seed 7, schedule realistic"
    assert ran.stdout.splitlines()[-2:] == ["  hd64_t1_sk128  sm100_hd64_ptmem", "matrix: 0"]
    assert not (checkout / "results").exists()
    assert not (checkout / ".fmha").exists()


def test_a_dry_run_as_json(checkout: Path) -> None:
    plan = json.loads(fmha(checkout, "run-matrix", "--dry-run", "--json", "--suite", "wide").stdout)
    assert plan["format"] == "fmha-plan/1"
    assert [(item["id"], item["guard"]) for item in plan["configurations"]] == [
        ("hd64_t32_sk256", True),
        ("hd128_t1_sk128", False),
    ]


@pytest.mark.nvcc
def test_a_kernel_that_does_not_build_is_a_verdict(checkout: Path) -> None:
    """The checkout has no kernel sources: nvcc is real, and so is its refusal."""
    ran = fmha(checkout, "run-matrix", "--filter", "hd=64", "--json")
    record = json.loads(ran.stdout)
    assert ran.returncode == record["verdict"]["exit_code"] == ExitCode.GATE_FAILED
    assert record["verdict"]["counts"] == {"build-error": 2}
    (archived,) = (checkout / "results").iterdir()
    assert archived.read_text() == ran.stdout
    assert "build: 1 variant" in ran.stderr


@pytest.mark.parametrize(
    ("command", "redirection", "line"),
    [
        ("run-matrix --dry-run", "> /dev/full", "fmha: cannot write: No space left on device\n"),
        ("run-matrix --dry-run", "| true", "fmha: the output was closed before everything was written\n"),
        ("run-matrix --dry-run", "2>&1 | true", ""),
        ("doctor", "| true", "fmha: the output was closed before everything was written\n"),  # rich writes it
    ],
)
def test_output_that_is_full_or_closed(checkout: Path, command: str, redirection: str, line: str) -> None:
    # The writer starts late, so that a pipe's reader is gone by then.
    program = f"{{ sleep 0.5; {sys.executable} -m fmha {command}; echo $? >&3; }} 3> code {redirection}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ran = subprocess.run(
        ["sh", "-c", program], cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    assert (checkout / "code").read_text() == f"{ExitCode.INFRASTRUCTURE}\n"
    assert ran.stderr == line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), ExitCode.USAGE),
        (ConfigError(["x"]), ExitCode.USAGE),
        (InfrastructureError("x"), ExitCode.INFRASTRUCTURE),
        (InterruptionError("x"), ExitCode.INCOMPLETE),
        (KeyboardInterrupt(), ExitCode.INCOMPLETE),
        (OSError(28, "x"), ExitCode.INFRASTRUCTURE),
        (ZeroDivisionError(), ExitCode.INFRASTRUCTURE),
    ],
)
def test_errors_have_one_exit_code_each(error: BaseException, code: ExitCode) -> None:
    assert exit_code_of(error) is code


def test_what_a_command_leaves_is_garbage_after_the_next_one() -> None:
    """In one process: a circle that the first one left, with a device in it perhaps, goes with the next collection."""
    script = """
import gc, weakref
from fmha.harness.cli import run
class Left: pass
def command():
    left = Left()
    left.itself = left
    return weakref.ref(left)
run(["--help"])
gc.disable()
seen = command()
run(["--help"])
gc.collect()
raise SystemExit(seen() is not None)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
