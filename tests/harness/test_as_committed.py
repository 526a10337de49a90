"""A build whose files are not the commit's is no evidence about the commit, however clean git calls the checkout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.contract.protocol import BuildResult, LaunchShape, Variant
from fmha.harness.git import git_text
from fmha.harness.stages.as_committed import otherwise, read_by
from tests.harness.support import git
from tests.integration.test_own_kernels import fmha, repository_with

FILES = {"kernel/a.cu": "// $Id$\n", "kernel/b.cuh": "int b;\n", ".gitignore": "*.gen.h\n"}
NAMES = sorted(FILES)


def _commit(root: Path) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")
    return git_text(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "kernel").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    _commit(folder)
    return folder


def _submodule(root: Path) -> Path:
    library = root.parent / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    (library / "h.cuh").write_text("int h;\n")
    _commit(library)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(root, "config", "-f", ".gitmodules", "submodule.lib.ignore", "all")
    return root / "lib"


def _expanded(root: Path) -> list[str]:
    (root / ".gitattributes").write_text("*.cu ident\n")
    _commit(root)
    (root / "kernel" / "a.cu").unlink()
    git(root, "checkout", "-q", "--", ".")
    assert "$Id: " in (root / "kernel" / "a.cu").read_text()
    return ["kernel/a.cu"]


def _encoded(root: Path) -> list[str]:
    (root / ".gitattributes").write_text("*.cuh working-tree-encoding=UTF-16LE\n")
    (root / "kernel" / "b.cuh").write_text("int b;\n", encoding="utf-16-le")
    _commit(root)
    return ["kernel/b.cuh"]


def _ends_of_lines(root: Path) -> list[str]:
    (root / ".gitattributes").write_text("*.cuh text eol=crlf\n")
    (root / "kernel" / "b.cuh").unlink()
    _commit(root)
    (root / "kernel" / "b.cuh").write_text("int b;\r\n")
    _commit(root)
    return ["kernel/b.cuh"]


def _ignored(root: Path) -> list[str]:
    (root / "kernel" / "c.gen.h").write_text("int c;\n")
    return ["kernel/c.gen.h"]


def _changed_in_a_submodule(root: Path) -> list[str]:
    module = _submodule(root)
    _commit(root)
    (module / "h.cuh").write_text("int other;\n")
    return ["lib/h.cuh"]


def _a_submodule_at_another_commit(root: Path) -> list[str]:
    module = _submodule(root)
    _commit(root)
    (module / "h.cuh").write_text("int other;\n")
    _commit(module)
    return ["lib/h.cuh"]


def _hidden_from_status(root: Path) -> list[str]:
    (root / "kernel" / "b.cuh").write_text("int changed;\n")
    git(root, "update-index", "--assume-unchanged", "kernel/b.cuh")
    return ["kernel/b.cuh"]


WAYS: dict[str, Callable[[Path], list[str]]] = {
    "a keyword that git expands": _expanded,
    "an encoding of its own": _encoded,
    "other ends of lines": _ends_of_lines,
    "a header that git ignores": _ignored,
    "a submodule that is passed over, changed": _changed_in_a_submodule,
    "a submodule that is passed over, at another commit": _a_submodule_at_another_commit,
    "a file that git was told not to look at": _hidden_from_status,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_git_calls_clean_is_held_against_the_commit(root: Path, way: str) -> None:
    different = WAYS[way](root)
    assert git_text(root, "status", "--porcelain") == ""
    names = sorted({*NAMES, *different})
    assert otherwise(root, git_text(root, "rev-parse", "HEAD"), names) == tuple(different)


def test_what_is_the_commits_is_the_commits(root: Path) -> None:
    _submodule(root)
    (root / "kernel" / "link.cuh").symlink_to("b.cuh")
    commit = _commit(root)
    assert otherwise(root, commit, [*NAMES, "kernel/link.cuh", "lib/h.cuh"]) == ()


def test_a_link_is_held_against_the_commit_beside_what_it_leads_to(root: Path) -> None:
    """A header that git ignores and that leads to one of the commit's: elsewhere it is not there."""
    (root / "kernel" / "there.cuh").symlink_to("b.cuh")
    commit = _commit(root)
    (root / "kernel" / "here.gen.h").symlink_to("b.cuh")
    assert git_text(root, "status", "--porcelain") == ""
    sources = ("kernel/there.cuh", "kernel/here.gen.h")
    variant = Variant("a", "sm_90a", "kernel/a.cu", "a", None, None, LaunchShape(32, 64, 2, 128, 0), sources=sources)
    names = read_by(root, [BuildResult(variant, "", "", None, "", "", (), 0.0, False)])
    assert names == ["kernel/b.cuh", "kernel/here.gen.h", "kernel/there.cuh"]
    assert otherwise(root, commit, names) == ("kernel/here.gen.h",)


@pytest.mark.nvcc
def test_a_run_names_what_is_not_the_commits(tmp_path: Path) -> None:
    root = repository_with("rmsnorm", tmp_path / "ours")
    source = root / "rmsnorm.cu"
    source.write_text(f'#include "unseen.gen.h"\n{source.read_text()}')
    with (root / ".gitignore").open("a") as ignored:
        ignored.write("*.gen.h\n")
    _commit(root)
    (root / "unseen.gen.h").write_text("#define UNSEEN 1\n")
    assert git_text(root, "status", "--porcelain") == ""
    ran: subprocess.CompletedProcess[str] = fmha(root, "run-matrix", "--json", "--case", "rmsnorm_rows1_columns1")
    commit = json.loads(ran.stdout)["commit"]
    assert (commit["dirty"], commit["dirty_files"]) == (True, ["unseen.gen.h"])
    assert "whatever git status says: unseen.gen.h" in ran.stderr
