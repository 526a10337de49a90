"""The line between the judge and the judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fmha.harness.config.host_sections import PROTECTED
from fmha.harness.judge import core_digest
from fmha.harness.judge.identity import CORE, identity, identity_of, is_judge, is_kernel_side, sources


@pytest.mark.parametrize(
    ("path", "judge", "kernel_side"),
    [
        ("matrix.yaml", True, False),
        ("harness/judge/oracle/reference.py", True, False),
        ("harness/judge/gate.py", True, False),
        ("emulator/core/machine.hpp", True, False),
        ("emulator/_core.pyi", True, False),
        ("harness/worker/devices/emulator_device.py", False, False),
        ("harness/cli/regress.py", False, False),
        ("harness/kernel_side/launch.py", False, True),
        ("kernel/sm100/fmha_fwd.cu", False, True),
        ("docs/understand/gates.md", False, False),
        ("harness", False, False),
        ("harness/judge_of_mine.py", False, False),
    ],
)
def test_which_side_a_file_is_on(path: str, judge: bool, kernel_side: bool) -> None:
    assert (is_judge(path), is_kernel_side(path)) == (judge, kernel_side)


def test_whatever_decides_is_protected_on_a_host(repository: Path) -> None:
    """A pull request that changes a file of fmha has it approved, wherever the file lies."""
    assert [name for name in sources(repository) if not f"{name}/".startswith(PROTECTED)] == []


def test_the_judge_is_named_with_the_rest_of_the_harness_beside_it() -> None:
    found = identity("0" * 64)
    assert {"matrix.yaml", CORE, "harness/judge/gate.py", "emulator/device/emulated_device.py"} <= found.files.keys()
    assert not any(name.startswith(("harness/worker/", "harness/kernel_side/")) for name in found.files)
    assert len(found.harness) == 64
    assert identity("1" * 64).changed(found) == ("matrix.yaml",)
    mine = identity("0" * 64, own={"kernel.py": "2" * 64})
    assert mine.changed(found) == ("kernel.py",)


def test_the_core_that_counts_is_the_one_that_was_compiled(repository: Path, tmp_path: Path) -> None:
    """In a checkout it is that of the sources, which a record of a wheel of the same commit then names as well."""
    assert core_digest.of_installed() == core_digest.of_sources(repository / CORE)
    module = tmp_path / "_core.so"
    module.write_bytes(b"\x7fELF" + os.urandom(64))
    assert core_digest.of_module(module) == ""
    module.write_bytes(b"\x7fELF" + core_digest.MARK.encode() + b"a" * 64 + b"\0")
    assert core_digest.of_module(module) == "a" * 64


def test_the_digest_of_the_core_follows_every_byte_and_no_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for path, text in (("a.cpp", "x"), ("warp/b.hpp", "y"), ("note.md", name)):
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    first = core_digest.of_sources(tmp_path / "a")
    assert first == core_digest.of_sources(tmp_path / "b")
    (tmp_path / "b" / "warp" / "b.hpp").write_text("z")
    assert first != core_digest.of_sources(tmp_path / "b")


def test_a_header_that_is_current_is_not_written_again(tmp_path: Path, repository: Path) -> None:
    header = tmp_path / "core_sources.hpp"
    script = repository / "harness" / "judge" / "core_digest.py"
    command = [sys.executable, "-IS", str(script), str(repository / CORE), str(header)]
    subprocess.run(command, check=True)
    before = header.stat().st_mtime_ns
    subprocess.run(command, check=True)
    assert header.stat().st_mtime_ns == before
    assert core_digest.of_sources(repository / CORE) in header.read_text()


def test_the_identity_follows_every_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for path, text in (("harness/judge/gate.py", "x"), ("emulator/core/a.cpp", "y"), ("kernel/a.cu", "z")):
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    first, same = sources(tmp_path / "a"), sources(tmp_path / "b")
    assert first == same
    assert sorted(first) == [CORE, "harness/judge/gate.py"]
    (tmp_path / "b" / "harness" / "judge" / "gate.py").unlink()
    (tmp_path / "b" / "harness" / "judge" / "gate.py").symlink_to(tmp_path / "a" / "harness" / "judge" / "gate.py")
    assert sorted(sources(tmp_path / "b")) == [CORE], "what lies behind a link is no file of the commit"
    assert identity_of(first).digest != identity_of({}).digest
