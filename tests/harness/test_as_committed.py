"""A build whose files are not the commit's is no evidence about the commit, however clean git calls the checkout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.contract.protocol import BuildResult, LaunchShape, Variant
from fmha.harness.git import git_text
from fmha.harness.stages.as_committed import FilesRead, otherwise, read_by
from fmha.harness.worker.compilers.nvcc import find_nvcc
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


def _with_ends_of_lines(root: Path) -> str:
    (root / ".gitattributes").write_text("*.cuh text eol=crlf\n")
    commit = _commit(root)
    (root / "kernel" / "b.cuh").unlink()
    git(root, "checkout", "-q", "--", ".")
    assert (root / "kernel" / "b.cuh").read_bytes() == b"int b;\r\n"
    return commit


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
    "a header that git ignores": _ignored,
    "a submodule that is passed over, changed": _changed_in_a_submodule,
    "a submodule that is passed over, at another commit": _a_submodule_at_another_commit,
    "a file that git was told not to look at": _hidden_from_status,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_git_calls_clean_is_held_against_the_commit(root: Path, way: str) -> None:
    different = WAYS[way](root)
    assert git_text(root, "status", "--porcelain") == ""
    read = FilesRead(frozenset({*NAMES, *different}))
    assert otherwise(root, git_text(root, "rev-parse", "HEAD"), read) == tuple(different)


def test_what_is_the_commits_is_the_commits(root: Path) -> None:
    _submodule(root)
    (root / "kernel" / "link.cuh").symlink_to("b.cuh")
    commit = _commit(root)
    assert otherwise(root, commit, FilesRead(frozenset({*NAMES, "kernel/link.cuh", "lib/h.cuh"}))) == ()


def test_ends_of_lines_are_the_commits_to_who_does_not_see_them(root: Path) -> None:
    """nvcc takes CR LF for an end of a line. Another compiler may read bytes."""
    commit = _with_ends_of_lines(root)
    assert git_text(root, "status", "--porcelain") == ""
    files = frozenset(NAMES)
    assert otherwise(root, commit, FilesRead(files)) == ()
    assert otherwise(root, commit, FilesRead(files, exact=files)) == ("kernel/b.cuh",)
    (root / "kernel" / "b.cuh").write_bytes(b"int c;\r\n")
    assert otherwise(root, commit, FilesRead(files)) == ("kernel/b.cuh",)


@pytest.mark.nvcc
def test_ends_of_lines_change_nothing_that_nvcc_makes(tmp_path: Path) -> None:
    """Within raw strings, joined lines, comments that go on, and inline assembly: what a kernel could be right by."""
    text = (
        'extern "C" __global__ void k(int *out) {\n  // goes \\\n on\n  out[0] = sizeof(R"(a\n\nb)");\n'
        '  out[1] = "a\\\nb"[1] + R"(\n)"[0] + __LINE__;\n  asm volatile(R"(\n  mov.u32 %0, 1;\n)" : "=r"(out[2]));\n'
        "#define TWO 2 \\\n + 0\n  out[3] = TWO;\n}\n"
    )
    made = []
    for name, ends in (("lf", "\n"), ("crlf", "\r\n")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "k.cu").write_bytes(text.replace("\n", ends).encode())
        command = [str(find_nvcc().path), "-arch=sm_100a", "-ptx", "k.cu", "-o", "k.ptx"]
        subprocess.run(command, cwd=folder, check=True)
        made.append((folder / "k.ptx").read_bytes())
    assert b"mov.u32" in made[0]
    assert made[0] == made[1]


@pytest.mark.nvcc
def test_a_run_of_a_checkout_with_other_ends_of_lines_is_not_dirty(tmp_path: Path) -> None:
    root = repository_with("rmsnorm", tmp_path / "ours")
    (root / ".gitattributes").write_text("*.cu text eol=crlf\n")
    commit = _commit(root)
    (root / "rmsnorm.cu").unlink()
    git(root, "checkout", "-q", "--", ".")
    assert b"\r\n" in (root / "rmsnorm.cu").read_bytes()
    ran: subprocess.CompletedProcess[str] = fmha(root, "run-matrix", "--json", "--case", "rmsnorm_rows1_columns1")
    said = json.loads(ran.stdout)["commit"]
    assert (said["sha"], said["dirty"]) == (commit, False), ran.stderr


def test_a_link_is_held_against_the_commit_beside_what_it_leads_to(root: Path) -> None:
    """A header that git ignores and that leads to one of the commit's: elsewhere it is not there."""
    (root / "kernel" / "there.cuh").symlink_to("b.cuh")
    commit = _commit(root)
    (root / "kernel" / "here.gen.h").symlink_to("b.cuh")
    assert git_text(root, "status", "--porcelain") == ""
    sources = ("kernel/there.cuh", "kernel/here.gen.h")
    variant = Variant("a", "sm_90a", "kernel/a.cu", "a", None, None, LaunchShape(32, 64, 2, 128, 0), sources=sources)
    names = read_by(root, [BuildResult(variant, "", "", None, "", "", (), 0.0, False)])
    assert names.files == {"kernel/b.cuh", "kernel/here.gen.h", "kernel/there.cuh"}
    assert names.exact == names.files, "nobody knows what has read them"
    assert otherwise(root, commit, names) == ("kernel/here.gen.h",)


def test_what_a_sparse_checkout_leaves_out_is_missed(root: Path) -> None:
    """git calls it clean, and a host elsewhere has the file that a build looked for in vain."""
    (root / "tuned").mkdir()
    (root / "tuned" / "c.cuh").write_text("int c;\n")
    commit = _commit(root)
    git(root, "sparse-checkout", "set", "--no-cone", "/*", "!/tuned/")
    assert not (root / "tuned").exists()
    assert git_text(root, "status", "--porcelain") == ""
    looked_for = frozenset({"tuned", "kernel/cuda_runtime.h"})
    assert otherwise(root, commit, FilesRead(frozenset(NAMES), missing=looked_for)) == ("tuned",)
    seen = {"kernel": frozenset({"a.cu", "b.cuh", "a.o"}), ".": frozenset({"kernel"}), "new": frozenset({"x"})}
    assert otherwise(root, commit, FilesRead(frozenset(), listed=seen)) == (".gitignore", "tuned")


@pytest.mark.nvcc
def test_a_run_names_what_a_sparse_checkout_leaves_out(tmp_path: Path) -> None:
    root = repository_with("rmsnorm", tmp_path / "ours")
    source = root / "rmsnorm.cu"
    source.write_text(f'#if __has_include("tuned/c.cuh")\n#define BROKEN 1\n#endif\n{source.read_text()}')
    (root / "tuned").mkdir()
    (root / "tuned" / "c.cuh").write_text("int c;\n")
    _commit(root)
    git(root, "sparse-checkout", "set", "--no-cone", "/*", "!/tuned/")
    ran: subprocess.CompletedProcess[str] = fmha(root, "run-matrix", "--json", "--case", "rmsnorm_rows1_columns1")
    commit = json.loads(ran.stdout)["commit"]
    assert (commit["dirty"], commit["dirty_files"]) == (True, ["tuned"]), ran.stderr
    assert "whatever git status says: tuned" in ran.stderr


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
