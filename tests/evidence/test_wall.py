"""What a commit may try on what judges it, on the machine and on the account: each try is red or refused, and leaves
nothing behind."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from fmha.harness import isolate
from fmha.harness.errors import ExitCode
from fmha.harness.git import resolve_commit
from fmha.harness.judge.identity import installed_root, sources
from tests import forked
from tests.evidence.seeded_history import edit
from tests.harness.support import git
from tests.integration.processes import eventually

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("verdict")]
BROKEN = edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1")  # LSE in base 2


@pytest.fixture
def planted(project: Path) -> Iterator[Callable[..., tuple[int, str]]]:
    """Commits a change on a branch of its own and runs it under main's judge: exit code, and all that was said."""
    if isolate.isolation().mechanism == "none":
        pytest.skip(isolate.isolation().missing)
    git(project, "checkout", "-q", "-f", "-B", "planted", "main")

    def run(change: Callable[[Path], object], *arguments: str, force: tuple[str, ...] = ()) -> tuple[int, str]:
        change(project)
        git(project, "add", "-A")
        for name in force:
            git(project, "add", "-f", name)
        git(project, "commit", "-q", "--allow-empty", "-m", "planted")
        ran = forked.fmha("run-matrix", "--judge", "main", "--isolation", "require", *arguments, cwd=project)
        return ran.returncode, ran.stdout + ran.stderr

    yield run
    git(project, "checkout", "-q", "-f", "main")
    shutil.rmtree(project / ".fmha", ignore_errors=True)


def _into(root: Path, name: str, code: str) -> None:
    """Has a module of the kernel's side run `code` when it is imported."""
    path = root / "harness" / "kernel_side" / name
    first, text = "from __future__ import annotations\n", path.read_text()
    path.write_text(text.replace(first, f"{first}{code}\n", 1) if first in text else f"{text}{code}\n")


def test_a_judge_that_lies_in_the_tree_is_not_taken(planted: Callable[..., tuple[int, str]]) -> None:
    """Where fmha kept them once: a copy of the base's harness with gates that hold nothing."""

    def bring(root: Path) -> None:
        BROKEN(root)
        base = resolve_commit(root, "main")
        assert base is not None
        for name in (base[:16], base):
            tree = root / ".fmha" / "judges" / name / "tree"
            for part in ("fmha", "harness", "emulator"):
                shutil.copytree(root / part, tree / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(root / "matrix.yaml", tree / "matrix.yaml")
            gate = tree / "harness" / "judge" / "gate.py"
            gate.write_text(gate.read_text().replace("if _misses(gate, values)", "if False"))

    code, said = planted(bring, force=(".fmha/judges",))
    assert code == ExitCode.GATE_FAILED, said
    assert "lse_error is" in said


@pytest.mark.parametrize("name", ["choice.py", "variants.py", "recipe.py", "launch.py", "params.py", "__init__.py"])
def test_the_kernels_side_writes_nothing_of_the_judges(
    planted: Callable[..., tuple[int, str]], tmp_path: Path, name: str
) -> None:
    """Whichever of its modules is imported while a run is planned or launched."""
    before = sources(installed_root())
    marker = tmp_path / "written"
    harness = installed_root() / "harness"
    targets = [str(harness / "judge" / "gate.py"), str(harness / "judge" / "oracle" / "measure.py"), str(marker)]
    code = f"""
for _target in {targets!r}:
    try:
        with open(_target, "a") as _file:
            _file.write("# was here\\n")
    except OSError:
        pass
"""

    def tamper(root: Path) -> None:
        BROKEN(root)
        _into(root, name, code)

    result, said = planted(tamper)
    assert result == ExitCode.GATE_FAILED, said
    assert "lse_error is" in said
    assert sources(installed_root()) == before
    assert not marker.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', 22))", "the commit's side of the run ended early"),
        ("import os; os.kill(os.getppid(), 9); raise SystemExit", "the commit's side of the run ended early"),
        ("import os; os.write(int(1), b'x' * (1 << 22))", "wrote more than"),
        ("print('{}', flush=True)", "speaks protocol None"),
        ("import sys; sys.stdout = sys.__stdout__ = None", None),
        ("import os; [os.close(n) for n in (0, 1)]; import time; raise SystemExit", "ended early"),
    ],
    ids=["network", "kills its parent", "floods", "prints", "no stdout", "closes its pipes"],
)
def test_what_the_kernels_side_does_instead_of_an_answer_is_said(
    planted: Callable[..., tuple[int, str]], code: str, words: str | None
) -> None:
    result, said = planted(lambda root: _into(root, "__init__.py", code))
    assert not re.search(r"^Traceback", said, re.MULTILINE)  # what the other side says of itself is marked
    if words is None:
        assert result == ExitCode.PASS, said
    else:
        assert result in (ExitCode.USAGE, ExitCode.INFRASTRUCTURE, ExitCode.GATE_FAILED)
        assert words in said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", "'/etc/passwd'"),
        ("source", "'../../secret.cu'"),
        ("entry", "'x; rm -rf ~'"),
        ("name", "'../../../.ssh/authorized_keys'"),
        ("name", "'n' * 201"),
        ("compiler", "'evil.py:Evil evil'"),
        ("sources", "('/root',)"),
        ("arch", "'sm_80'"),
    ],
)
def test_a_variant_that_leads_elsewhere_is_refused(
    planted: Callable[..., tuple[int, str]], field: str, value: str
) -> None:
    """What the planner says is plain data, and is checked before it is used."""

    def change(root: Path) -> None:
        path = root / "harness" / "kernel_side" / "__main__.py"
        text = path.read_text()
        wanted = "    if isinstance(found, str):"
        assert wanted in text
        lied = f"    import dataclasses as d\n    found = d.replace(found, {field}={value})\n"
        path.write_text(text.replace(wanted, lied + wanted))

    result, said = planted(change)
    assert result == ExitCode.USAGE, said
    assert "the commit describes its kernels in a way that the judge cannot use: " in said


def test_flags_have_the_compiler_write_nowhere_else(planted: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """nvcc carries out what it is given: within the sandbox, where there is nothing to write to."""
    target = tmp_path / "written.txt"

    def change(root: Path) -> None:
        path = root / "harness" / "kernel_side" / "recipe.py"
        path.write_text(path.read_text().replace('"-O3"', f'"-O3", "--dependency-output", "{target}", "-MD"'))

    planted(change)
    assert not target.exists()


@pytest.mark.parametrize("flag", ["-I{}", "--include-path={}", "-isystem{}"])
def test_flags_include_nothing_outside_of_the_tree(
    planted: Callable[..., tuple[int, str]], tmp_path: Path, flag: str
) -> None:
    """What a header elsewhere says would come back in a message of the compiler's, or in the PTX."""
    (tmp_path / "secret.cuh").write_text("#error PRIVATE\n")
    given = flag.format(tmp_path)

    def change(root: Path) -> None:
        path = root / "harness" / "kernel_side" / "recipe.py"
        path.write_text(path.read_text().replace('"-O3"', f'"-O3", "{given}"'))
        kernel = root / "kernel" / "sm100" / "combine.cuh"
        kernel.write_text('#include "secret.cuh"\n' + kernel.read_text())

    for wall in ("require", "auto"):
        result, said = planted(change, "--isolation", wall)
        assert result == ExitCode.USAGE, said
        assert "lies outside the repository" in said
        assert "PRIVATE" not in said


@pytest.mark.parametrize("flag", ["-D'X=`touch {}`'", "-DX=$(touch {})", "-DX=1;touch {}", "-DX=1\\ntouch {}"])
def test_flags_are_no_words_of_a_shell(planted: Callable[..., tuple[int, str]], tmp_path: Path, flag: str) -> None:
    """nvcc hands its command lines to a shell."""
    target = tmp_path / "touched"
    given = flag.format(target)

    def change(root: Path) -> None:
        path = root / "harness" / "kernel_side" / "recipe.py"
        path.write_text(path.read_text().replace('"-O3"', f'"-O3", {given!r}'))

    result, said = planted(change)
    assert result == ExitCode.USAGE, said
    assert "in a way that the judge cannot use" in said
    assert not target.exists()


def test_a_terminal_does_not_obey_the_kernels_side(planted: Callable[..., tuple[int, str]]) -> None:
    """It writes to its standard error, which is handed on as text."""
    code = r"import sys; sys.stderr.write('\x1b]52;c;cHduZWQ=\x07\n::stop-commands::x\n'); sys.stderr.flush()"
    _, said = planted(lambda root: _into(root, "__init__.py", code))
    assert "]52;c;cHduZWQ=" in said
    assert "\x1b" not in said
    assert "\n::stop" not in said


def test_a_process_that_the_kernels_side_leaves_behind_ends(
    planted: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """One in a session of its own, while a run is planned."""
    mark = f"left-behind-{tmp_path.name}"
    code = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}], start_new_session=True,"
        " stdin=-3, stdout=-3, stderr=-3)"
    )
    result, said = planted(lambda root: _into(root, "__init__.py", code))
    assert result == ExitCode.PASS, said
    # The kernel ends a sandbox's processes behind the one that it was made for, and not at that moment.
    assert eventually(lambda: not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(path)])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("name", [".fmha", ".fmha/remote", "results"])
def test_a_folder_that_a_commit_makes_a_link_is_not_written_through(
    planted: Callable[..., tuple[int, str]], tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def change(root: Path) -> None:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(elsewhere)

    planted(change, force=(name,))
    assert not list(elsewhere.iterdir())


def test_a_name_of_several_refs_names_no_judge(project: Path, planted: Callable[..., tuple[int, str]]) -> None:
    """git takes a tag before a branch, and tags come with a fetch."""

    def change(root: Path) -> None:
        BROKEN(root)
        gate = root / "harness" / "judge" / "gate.py"
        gate.write_text(gate.read_text().replace("if _misses(gate, values)", "if False"))
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "loosened")
        git(root, "tag", "-f", "main")

    try:
        result, said = planted(change)
    finally:
        git(project, "tag", "-d", "main")
    assert result == ExitCode.USAGE, said
    assert "'main' is the name of several refs" in said


def test_hosts_of_a_commit_are_nobodys(planted: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """A request's matrix.yaml could name any program as the Python of a host of kind local."""
    marker = tmp_path / "ran"

    def change(root: Path) -> None:
        evil = root / "kernel" / "python3"
        evil.write_text(f"#!/bin/sh\ntouch {marker}\n")
        evil.chmod(0o755)
        document = yaml.safe_load((root / "matrix.yaml").read_text())
        document["hosts"]["b200"] = {"kind": "local", "python": str(evil), "environment": {"setup": ""}}
        (root / "matrix.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    result, said = planted(change, "--host", "b200")
    assert result != ExitCode.PASS
    assert not marker.exists(), said


def test_a_tree_that_leads_out_is_not_judged(project: Path, planted: Callable[..., tuple[int, str]]) -> None:
    """Neither by itself nor by another: a link out of it is refused before anything is read."""
    (project / "harness" / "judge" / "out").symlink_to("/root/.ssh")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "a link")
    sha = resolve_commit(project, "HEAD")
    for judge in (str(sha), "main"):
        ran = forked.fmha("run-matrix", "--judge", judge, cwd=project, env=os.environ | {"HOME": os.environ["HOME"]})
        assert ran.returncode == ExitCode.USAGE, ran.stdout + ran.stderr
        assert "links that lead out of it" in ran.stderr


def test_the_judges_core_is_compiled_by_nothing_of_the_commits(
    project: Path, planted: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """A judge whose core is none that is installed: Python looks for `-m pip` in the folder where it is started."""
    marker = tmp_path / "imported"
    planted(lambda root: None)
    with next((project / "emulator" / "core").rglob("*.cpp")).open("a") as file:
        file.write("#error never\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "another core")
    sha = resolve_commit(project, "HEAD")
    for name in ("pip", "venv", "sitecustomize"):
        (project / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "modules")
    ran = forked.fmha("run-matrix", "--judge", str(sha), cwd=project)
    assert ran.returncode == ExitCode.INFRASTRUCTURE, ran.stdout + ran.stderr
    assert "the judge's emulator does not compile" in ran.stderr
    assert not marker.exists()
