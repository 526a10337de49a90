"""The line between the judge and the judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fmha.harness.config.hosts import PROTECTED
from fmha.harness.judge.identity import BESIDE, KERNEL_SIDE, identity, is_judge, sources


@pytest.mark.parametrize(
    ("path", "judge"),
    [
        ("matrix.yaml", True),
        ("harness/judge/oracle/reference.py", True),
        ("harness/judge/oracle/measure.py", True),
        ("harness/worker/devices/emulator.py", True),
        ("harness/judge/gate.py", True),
        ("emulator/core/machine.hpp", True),
        ("emulator/_core.pyi", True),
        ("harness/kernel_side/launch.py", False),
        ("harness/kernel_side/params.py", False),
        ("harness/report/page.py", False),
        ("harness/cli/results.py", False),
        ("harness/cli/regress.py", True),
        ("kernel/sm100/fmha_fwd.cu", False),
        ("docs/understand/gates.md", False),
        ("harness", False),
        ("fmha/__init__.py", True),
        ("fmha/harness", True),
        ("fmha/py.typed", False),
    ],
)
def test_which_side_a_file_is_on(path: str, judge: bool) -> None:
    assert is_judge(path) is judge


def test_both_sides_name_files_that_are_there(repository: Path) -> None:
    """A file that was renamed must not silently change sides."""
    for name in (*KERNEL_SIDE, *BESIDE):
        assert (repository / name).exists(), name


def test_whatever_decides_is_protected_on_a_host(repository: Path) -> None:
    """A pull request that changes a file of the judge has it approved, wherever in the harness the file lies."""
    assert [name for name in sources(repository) if not f"{name}/".startswith(PROTECTED)] == []


def test_nothing_that_is_imported_by_a_run_is_left_out(repository: Path) -> None:
    """What commands that judge, the worker and hosts elsewhere import is the judge's or the kernel's, never a
    bystander's."""
    script = (
        "import sys; sys.path.insert(0, '.'); import fmha.harness.worker.__main__, fmha.harness.stages.hosted;"
        "import fmha.harness.evidence.regress, fmha.harness.stages.archive, fmha.harness.worker.devices.emulator;"
        "import fmha.harness.cli.app, fmha.harness.cli.run_matrix, fmha.harness.cli.regress, fmha.harness.cli.attach;"
        "import fmha.harness.cli.baseline, fmha.harness.hosts.remote, fmha.harness.supervisor.agent;"
        "import fmha.harness.supervisor.keeper, fmha.harness.supervisor.run, fmha.harness.worker.devices.cuda;"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'fmha'), sep='\\n')"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=True)
    files = [Path(line).resolve() for line in said.stdout.split() if line.endswith(".py")]
    names = [path.relative_to(repository).as_posix() for path in files]
    assert len(names) > 60
    assert [name for name in names if not is_judge(name) and name not in KERNEL_SIDE] == []


def test_the_identity_follows_every_byte_and_no_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for path, text in (
            ("harness/judge/oracle/reference.py", "x"),
            ("emulator/core/a.cpp", "y"),
            ("kernel/a.cu", "z"),
        ):
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    first = identity("0" * 64, tmp_path / "a")
    assert first == identity("0" * 64, tmp_path / "b")
    assert sorted(first.files) == ["emulator/core", "harness/judge/oracle/reference.py", "matrix.yaml"]
    assert first.changed(identity("1" * 64, tmp_path / "a")) == ("matrix.yaml",)
    (tmp_path / "b" / "emulator/core/a.cpp").write_text("Y")
    (tmp_path / "b" / "kernel/a.cu").write_text("Z")
    other = sources(tmp_path / "b")
    assert {name for name, digest in sources(tmp_path / "a").items() if other[name] != digest} == {"emulator/core"}
