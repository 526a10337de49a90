"""What a shell offers: bash itself asks, with the script that `--show-completion` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What the line would be completed with: as bash does it when somebody presses Tab behind it.
ASK = """
eval "$FMHA_SCRIPT"
read -ra COMP_WORDS <<<"$1"
[[ "$1" == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_fmha_completion fmha
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script() -> str:
    environment = os.environ | {"_FMHA_COMPLETE": "source_bash"}
    return subprocess.run(
        [Path(sys.executable).parent / "fmha"], env=environment, capture_output=True, text=True, check=True
    ).stdout


def offered(line: str, script: str, folder: Path) -> list[str]:
    ran = subprocess.run(
        ["bash", "-c", ASK, "bash", line],
        cwd=folder,
        env=os.environ | {"FMHA_SCRIPT": script, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    return ran.stdout.split()


def test_values_are_those_of_the_checkout(checkout: Path, script: str) -> None:
    started = checkout / ".fmha/remote"
    started.mkdir(parents=True)
    (started / "20260101T000000Z-abc").write_text("b200")
    (checkout / "results/baselines").mkdir(parents=True)
    (checkout / "results/baselines/mine.json").write_text("{}")
    assert offered("fmha run-matrix --suite sm", script, checkout) == ["small"]
    assert offered("fmha run-matrix --suite small,w", script, checkout) == ["small,wide"]
    assert "emulator" in offered("fmha run-matrix --host ", script, checkout)
    assert "hd64_t1_sk128" in offered("fmha run-matrix --case hd64_t1_", script, checkout)
    assert offered("fmha run-matrix --schedule ra", script, checkout) == ["random"]
    assert offered("fmha run-matrix --filter sk", script, checkout) == ["sk="]
    assert offered("fmha regress --allow ha", script, checkout) == ["hazard", "hash"]
    assert offered("fmha attach 2026", script, checkout) == ["20260101T000000Z-abc"]
    assert offered("fmha report ", script, checkout) == ["latest", "baseline:mine"]
    assert offered("fmha report base", script, checkout) == ["baseline:mine"]


@pytest.mark.parametrize("line", ["fmha run-matrix --suite ", "fmha attach ", "fmha ps --host "])
def test_a_wrong_matrix_offers_nothing_and_says_nothing(checkout: Path, script: str, line: str) -> None:
    (checkout / "matrix.yaml").write_text("suites: [")
    assert offered(line, script, checkout) == []


def test_no_program_of_a_repository_is_run(repository: Path, script: str, tmp_path: Path) -> None:
    """An adapter says what fields and cases there are, and completing is no reason to run one."""
    for path in (repository / "harness" / "examples" / "gemm").glob("*.*"):
        shutil.copy(path, tmp_path)
    with (tmp_path / "fmha_kernels.py").open("a") as file:
        file.write(f"\nopen({str(tmp_path / 'marker')!r}, 'w')\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert offered("fmha run-matrix --suite s", script, tmp_path) == ["small"]
    assert offered("fmha run-matrix --kernel g", script, tmp_path) == ["gemm"]
    assert offered("fmha run-matrix --filter ", script, tmp_path) == []
    assert offered("fmha run-matrix --case ", script, tmp_path) == []
    assert not (tmp_path / "marker").exists()
