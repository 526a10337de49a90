"""What a user gets: the wheel, its compile flags and the console script."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory) -> Path:
    """Built as `make` builds the editable install, and in the same build/, so that nothing is compiled twice."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "-w", directory, repository], check=True, cwd=directory)
    (path,) = directory.glob("fmha-*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_has_every_module_and_the_core(repository, names):
    listed = ["git", "-C", repository, "ls-files", "harness/*.py", "emulator/*.py"]
    tracked = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    assert tracked
    assert set(tracked) <= names
    assert any(name.startswith("emulator/_core.") and name.endswith(".so") for name in names)


def test_wheel_has_nothing_else(names):
    assert {name.split("/")[0].split("-")[0] for name in names} == {"harness", "emulator", "fmha"}
    assert not [name for name in names if name.endswith((".cpp", ".h", ".hpp", ".pyc"))]


def test_core_is_compiled_without_changing_what_floating_point_means(repository, wheel):
    (path,) = repository.glob(f"build/{wheel.stem.split('-', 2)[2]}/compile_commands.json")
    commands = json.loads(path.read_text())
    core = [entry["command"] for entry in commands if "emulator/core" in entry["file"]]
    assert len(core) == len(list(repository.glob("emulator/core/**/*.cpp")))
    for command in core:
        assert "-ffp-contract=off" in command.split()
        assert not {"-ffast-math", "-Ofast", "-flto"} & set(command.split())


def test_one_worker_builds_the_wheel(request):
    """Two at once would configure the same build/, and one of them fails."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("not distributed by group")
    assert request.node.nodeid.endswith("@wheel")


def test_console_script_is_installed():
    script = Path(sys.executable).parent / "fmha"
    shown = subprocess.run([script, "--help"], check=False, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "run-matrix" in shown.stdout


def test_ci_only_calls_make_test(repository):
    path = repository / ".ci/run"
    assert path.stat().st_mode & 0o111
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "make test"]
