"""A runner that loads beside the checkout: from bytecode that is sent to it, and without the worktree."""

from __future__ import annotations

import py_compile
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fmha.harness.supervisor import preload
from fmha.harness.supervisor.bytecode import KeptBytecode
from fmha.harness.supervisor.preload import MODULE, Preloaded, wanted, wanted_by_workers
from fmha.harness.worker.processes.groups import has_exited
from tests.integration.processes import eventually

MARK = "import pathlib\npathlib.Path({folder!r}, __name__).touch()\n"
MODULES = {
    "fmha/__init__.py": "",
    "harness/__init__.py": "",
    "harness/kernel_side/__init__.py": "",
    "harness/kernel_side/launch.py": f"{MARK}OF_THE_TREE = open('source').read()\n",
    "harness/stages/__init__.py": "",
    "harness/stages/runner.py": f"{MARK}from fmha.harness.kernel_side import launch\n",
    "harness/stages/hosted.py": (
        "import sys, fmha.harness.stages.runner as runner\nprint(runner.launch.OF_THE_TREE, sys.argv[1:], __file__)\n"
    ),
}


def kept(folder: Path, sources: Mapping[str, str] = MODULES) -> KeptBytecode:
    data = {}
    for number, text in enumerate(sources.values()):
        source = folder / f"{number}.py"
        source.write_text(text.replace("{folder!r}", repr(str(folder))))
        py_compile.compile(str(source), str(source.with_suffix(".pyc")), doraise=True)
        data[f"blob{number}"] = source.with_suffix(".pyc").read_bytes()
    return KeptBytecode("tag", list(zip(data, sources, strict=True)), data)


def begun(folder: Path, known: KeptBytecode | None, python: str = sys.executable) -> Preloaded:
    command = ["/bin/sh", "-c", 'exec "$@" --parent "$PPID"', "sh", python, "-m", MODULE, "the-run"]
    return Preloaded(
        command, {"PATH": "/usr/bin:/bin"}, folder / "tree", folder / "modules", folder / "log", lambda: known
    )


def gone(preloaded: Preloaded, folder: Path) -> str:
    process = preloaded.go(preloaded._command, preloaded._environment)
    assert process is not None
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (folder / "log").read_text()
    return said.decode()


def test_it_loads_what_needs_no_worktree_and_the_rest_once_that_is_proved(tmp_path: Path):
    preloaded = begun(tmp_path, kept(tmp_path))
    assert eventually((tmp_path / "fmha.harness.stages.runner").exists), (tmp_path / "log").read_text()
    assert not (tmp_path / "fmha.harness.kernel_side.launch").exists()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "source").write_text("of the worktree")
    said = gone(preloaded, tmp_path)
    assert said.startswith("of the worktree ['the-run', '--parent',")
    assert f"{tmp_path}/modules/fmha/harness/stages/hosted.py" in said
    assert (tmp_path / "fmha.harness.kernel_side.launch").exists()


def test_a_module_that_cannot_be_loaded_yet_is_loaded_later(tmp_path: Path):
    """One that reads the worktree where it is imported, whatever room it is in."""
    reads = "import types\nopen('source').close()\nlaunch = types.SimpleNamespace(OF_THE_TREE=1)\n"
    late = {**MODULES, "harness/stages/runner.py": reads}
    preloaded = begun(tmp_path, kept(tmp_path, late))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "source").touch()
    assert gone(preloaded, tmp_path).startswith("1 ['the-run'")


@pytest.mark.parametrize("other", ["command", "environment"])
def test_another_one_than_is_wanted_is_ended_and_has_done_nothing(tmp_path: Path, other: str):
    preloaded = begun(tmp_path, kept(tmp_path))
    assert eventually((tmp_path / "fmha.harness.stages.runner").exists)
    command, environment = [*preloaded._command], dict(preloaded._environment)
    if other == "command":
        command[4] = "/another/python"
    else:
        environment["FMHA_ISOLATION"] = "require"
    assert preloaded.go(command, environment) is None
    process = preloaded._process
    assert process is not None
    preloaded.close()
    assert has_exited(process)
    assert not (tmp_path / "fmha.harness.kernel_side.launch").exists()


def test_an_interpreter_that_takes_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its modules are more than a pipe holds."""
    monkeypatch.setattr(preload, "TAKE_SECONDS", 0.2)
    many = {**MODULES, "harness/stages/large.py": f"TEXT = {'x' * (1 << 21)!r}\n"}
    (tmp_path / "python").write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    (tmp_path / "python").chmod(0o755)
    preloaded = begun(tmp_path, kept(tmp_path, many), str(tmp_path / "python"))
    assert preloaded.go(preloaded._command, preloaded._environment) is None
    process = preloaded._process
    assert process is not None
    preloaded.close()
    assert has_exited(process)


def test_where_nothing_is_known_there_is_none(tmp_path: Path):
    preloaded = begun(tmp_path, None)
    assert preloaded.go(preloaded._command, preloaded._environment) is None
    preloaded.close()


def test_most_of_fmha_is_not_sent():
    assert wanted("harness/stages/runner.py")
    assert wanted("harness/errors.py")
    assert not wanted("harness/bench/gpus/silicon_session.py")
    assert not wanted("emulator/ptx/parser.py")
    assert wanted_by_workers("emulator/ptx/parser.py", "emulator:fast")
    assert not wanted_by_workers("emulator/ptx/parser.py", "cuda")
    assert wanted_by_workers("harness/worker/__main__.py", "cuda")
    assert not wanted_by_workers("harness/cli/app.py", "cuda")
