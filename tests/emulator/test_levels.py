"""Which of a wheel's cores a CPU gets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator import _core, levels

ZEN5 = "fpu sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave avx512f avx512bw avx512cd avx512dq avx512vl avx512vbmi"


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        (ZEN5, ["x86_64_v4", "x86_64_v3"]),
        (ZEN5.replace(" avx512vbmi", ""), ["x86_64_v3"]),  # Skylake's servers
        (ZEN5.partition(" avx512f")[0], ["x86_64_v3"]),
        (ZEN5.replace(" avx2", ""), []),
        ("", []),
    ],
)
def test_a_cpu_gets_the_best_that_it_runs(flags: str, best: list[str]) -> None:
    assert levels.best(flags.split()) == best


def test_a_checkout_has_one_core() -> None:
    assert emulator.CORE_LEVEL == levels.BASELINE
    assert levels.available() == [levels.BASELINE]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with this machine's core as every level's."""
    home = tmp_path_factory.mktemp("wheel")
    source = Path(emulator.__file__).parent
    (home / "fmha").mkdir()
    (home / "fmha" / "__init__.py").touch()
    shutil.copytree(source, home / "fmha" / "emulator", ignore=shutil.ignore_patterns("core", "__pycache__", "*.so"))
    core = Path(_core.__file__)
    for level in ("", *levels.LEVELS):
        (home / "fmha" / "emulator" / level).mkdir(exist_ok=True)
        shutil.copy(core, home / "fmha" / "emulator" / level / core.name)
    return home


def loaded(package: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = "import sys; sys.meta_path[:] = [m for m in sys.meta_path if 'ScikitBuild' not in type(m).__name__]; "
    script += f"sys.path.insert(0, {str(package)!r}); from fmha import emulator; from fmha.emulator import _core; "
    script += "print(emulator.CORE_LEVEL, _core.__file__, emulator.Device().alloc(8, 'x').nbytes)"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False, cwd="/")


def test_the_core_of_the_cpu_is_the_one_that_is_loaded(package: Path) -> None:
    expected = [*levels.best(levels.cpu_flags()), levels.BASELINE][0]
    ran = loaded(package)
    assert ran.returncode == 0, ran.stderr
    level, file, nbytes = ran.stdout.split()
    folder = package / "fmha" / "emulator" / ("" if level == levels.BASELINE else level)
    assert (level, Path(file).parent, nbytes) == (expected, folder, "8")


@pytest.mark.parametrize("level", [levels.BASELINE, *levels.LEVELS])
def test_a_level_can_be_asked_for(package: Path, level: str) -> None:
    assert loaded(package, FMHA_CPU_LEVEL=level).stdout.split()[0] == level


def test_a_level_that_is_not_there(package: Path) -> None:
    ran = loaded(package, FMHA_CPU_LEVEL="x86_64_v9")
    assert ran.returncode == 1
    assert "has baseline, x86_64_v4, x86_64_v3" in ran.stderr
