"""What a user gets: the wheel, its compile flags and the console script."""

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections import Counter
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import nanobind
import pytest

from fmha.harness.worker.compilers.nvcc import find_nvcc
from scripts.try_wheel import ATTENTION

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
    listed = ["git", "-C", repository, "ls-files", "fmha/*.py", "harness/*.py", "emulator/*.py", ":!emulator/core"]
    tracked = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    assert tracked
    assert {path if path.startswith("fmha/") else f"fmha/{path}" for path in tracked} <= names
    for compiled in ("fmha/emulator/_core.", "fmha/harness/worker/devices/_calls."):
        assert any(name.startswith(compiled) and name.endswith(".so") for name in names)


def test_wheel_has_nothing_else(names):
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fmha"}
    assert len({name.split("/")[0] for name in names}) == 2  # the package, and what is said of it
    brought = tuple(
        f"fmha/harness/{name}/" for name in ("project", "examples", "see/probes", "problems/include")
    )  # is compiled at use
    code = {name for name in names if not name.startswith(brought)}
    assert not [name for name in code if name.endswith((".cpp", ".cu", ".h", ".hpp", ".pyc", ".pch", ".gch"))]


def test_wheel_has_the_kernels_and_the_matrix(repository, wheel):
    listed = ["git", "-C", repository, "ls-files", "kernel", "matrix.yaml"]
    tracked = set(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split())
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/project/" in name and "/project/docs/" not in name]
        brought = {name.removeprefix("fmha/harness/project/"): name for name in names}
        assert set(brought) == tracked
        assert all(archive.read(name) == (repository / path).read_bytes() for path, name in brought.items())


def test_wheel_has_the_pages_and_its_commit(repository, wheel):
    """As `fmha docs` and `fmha --version` tell them."""
    listed = ["git", "-C", repository, "ls-files", "docs/use", "docs/understand", "docs/reference"]
    pages = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    head = subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    with zipfile.ZipFile(wheel) as archive:
        assert all(archive.read(f"fmha/harness/project/{name}") == (repository / name).read_bytes() for name in pages)
        assert archive.read("fmha/commit.txt").decode().removesuffix("+") == head.stdout.strip()


def test_wheel_has_what_init_writes(repository, names):
    listed = ["git", "-C", repository, "ls-files", "harness/examples"]
    tracked = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    assert len(tracked) > 6
    assert {f"fmha/{path}" for path in tracked} <= names


def test_wheel_says_what_it_is(wheel, names):
    assert "fmha/py.typed" in names
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        assert "[pytest11]\nfmha = fmha.harness.scripted.plugin" in archive.read(entries).decode().replace(
            "fmha=", "fmha = "
        )
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(name).decode())
    assert told["Requires-Python"] == ">=3.11"
    kinds = told.get_all("Classifier")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(kinds)
    assert not [line for line in told.get_all("Requires-Dist") if re.match("torch|scipy", line) and "extra" not in line]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The Python of an environment with the wheel in it; what the wheel requires is lent."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run([*command, "--disable-pip-version-check"], check=True)
    return python


@pytest.mark.nvcc
def test_the_matrix_runs_in_an_empty_folder(installed, tmp_path):
    """Where nothing is a checkout: the kernels are those of the wheel, and the record says so."""

    def fmha(*arguments):
        command = [installed.parent / "fmha", *arguments]
        environment = os.environ | {"FMHA_NVCC": str(find_nvcc().path)}
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)

    done = fmha("run-matrix", "--suite", "seed", "--filter", "hd=64,t=1,sk=128,mask=none")
    assert done.returncode == 0, done.stderr
    version = metadata.version("fmha")
    assert f"no commit, fmha {version}" in done.stdout
    assert done.stdout.splitlines()[-1] == "PASS 1 of 1"
    (path,) = (tmp_path / "results").glob("*.json")
    record = json.loads(path.read_text())
    assert record["commit"] == {
        "sha": "0" * 40, "branch": None, "dirty": False, "dirty_files": [], "dirty_count": 0, "installed": version,
    }  # fmt: skip
    assert record["host"]["versions"]["fmha"] == version
    assert sorted(item.name for item in tmp_path.iterdir()) == ["results"]
    assert "PASS" in fmha("results", "show", "latest").stdout
    again = fmha("baseline", "accept", "latest", "--why", "x")
    assert again.returncode == 2
    assert "Traceback" not in again.stderr


@pytest.mark.nvcc
def test_what_looks_on_works_in_an_empty_folder(installed, tmp_path):
    """Before and after `git init`, with nothing committed; what is of commits says that there are none."""

    def fmha(*arguments):
        command = [installed.parent / "fmha", *arguments]
        environment = os.environ | {"FMHA_NVCC": str(find_nvcc().path)}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert "Traceback" not in done.stderr
        return done

    name = "hd64_t1_sk128"
    (tmp_path / "session").write_text("where\n")
    for step in ("empty", "git init"):
        for look in ("roofline", "trace", "budget", "diag smem", "launches", "debug --script session"):
            done = fmha(*look.split(), name)
            assert done.returncode == 0, (step, look, done.stderr)
        assert "PASS 1 of 1" in fmha("run-matrix", "--case", name).stdout
        for command, said in (("regress", "nothing to compare with"), ("watch", "there is nothing to watch")):
            done = fmha(command)
            assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)


@pytest.mark.nvcc
@pytest.mark.torch
def test_attention_runs_in_an_empty_folder(installed, tmp_path):
    environment = os.environ | {"FMHA_NVCC": str(find_nvcc().path)}
    done = subprocess.run(
        [installed, "-c", ATTENTION], check=False, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "0 hazards" in done.stdout


@pytest.mark.nvcc
def test_what_init_writes_runs_in_a_repository_of_ones_own(installed, tmp_path):
    """With the wheel alone: nothing of this checkout is there."""

    def ran(*command):
        environment = os.environ | {"FMHA_NVCC": str(find_nvcc().path)}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    name = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    ran("git", "init", "-q")
    ran(installed.parent / "fmha", "init", "--yes")
    ran("git", "add", ".")
    ran("git", *name, "commit", "-q", "-m", "start")
    said = ran(installed.parent / "fmha", "run-matrix", "--filter", "threads=128", "--quiet")
    assert re.fullmatch(r"PASS (\d+) of \1", said.splitlines()[-1])


def test_cores_of_a_wheel_for_every_cpu(repository, tmp_path):
    """One for the least CPU, others for newer ones, none of which may change arithmetic. Configured only."""
    configure = [Path(sys.executable).with_name("cmake"), "-S", repository, "-B", tmp_path, "-G", "Ninja"]
    options = {
        "FMHA_NATIVE": "OFF",
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind.cmake_dir(),
        "CMAKE_MAKE_PROGRAM": Path(sys.executable).with_name("ninja"),
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run([*configure, *defined], check=True, capture_output=True)
    commands = [entry["command"].split() for entry in json.loads((tmp_path / "compile_commands.json").read_text())]
    levels = Counter()
    for words in commands:
        if any("emulator/core" in word and word.endswith(".cpp") for word in words):
            (march,) = [word for word in words if word.startswith("-march=")]
            levels[march] += 1
            assert "-ffp-contract=off" in words
            assert "native" not in march
    if platform.machine() == "x86_64":
        assert set(levels) == {"-march=x86-64-v2", "-march=x86-64-v3", "-march=x86-64-v4"}
        assert len(set(levels.values())) == 1


def test_core_is_compiled_without_changing_what_floating_point_means(repository, wheel):
    (path,) = repository.glob(f"build/{wheel.stem.split('-', 2)[2]}/compile_commands.json")
    commands = json.loads(path.read_text())
    compiled: set[str] = set()
    for entry in (e for e in commands if "-D_core_EXPORTS" in e["command"] and "cmake_pch" not in Path(e["file"]).name):
        source = Path(entry["file"])
        included = re.findall('#include "(.+)"', source.read_text()) if source.name.startswith("unity_") else [source]
        compiled |= {str(path) for path in included}
        assert "-ffp-contract=off" in entry["command"].split()
        assert not {"-ffast-math", "-Ofast", "-flto"} & set(entry["command"].split())
    assert compiled == {str(path) for path in repository.glob("emulator/core/**/*.cpp")}


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
