"""Compilers in their sandbox: what they cannot read, and what they cannot leave."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fmha.harness.isolate import isolation
from fmha.harness.worker.compilers import cache
from tests.worker.test_never_stale import OWN, VARIANT, build, own, stored, tree

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(isolation().mechanism == "none", reason="nothing encloses a process here"),
]
__all__ = ["own", "tree"]
SECRET = "the-owner-s-password"


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "home" / "secret.txt"
    file.parent.mkdir()
    file.write_text(f"{SECRET}\n")
    return file


@pytest.mark.parametrize("how", ["include", "include_next", "through a link", "as PTX", "link to PTX", "forced"])
def test_a_compiler_reads_nothing_of_the_home(tree, secret, how):
    source, variant = tree / VARIANT.source, VARIANT
    if how == "include":
        source.write_text(f'#include "{secret}"\n{source.read_text()}')
    elif how == "include_next":
        source.write_text(f"#include_next <{os.path.relpath(secret, tree / 'early')}>\n{source.read_text()}")
    elif how == "through a link":
        (tree / "include" / "listed.cuh").unlink()
        (tree / "include" / "listed.cuh").symlink_to(secret)
    elif how == "forced":
        variant = replace(VARIANT, flags=(*VARIANT.flags, "--pre-include", str(secret)))
    else:
        (tree / "kernels" / "probe.ptx").symlink_to(secret)
        variant = replace(VARIANT, source="kernels/probe.ptx")
    result = build(tree, variant)
    assert result.error is not None
    assert SECRET not in result.error
    assert all(
        SECRET not in path.read_text(errors="replace") for path in tree.parent.glob("cache/**/*") if path.is_file()
    )


def test_a_compiler_of_one_s_own_reads_nothing_of_the_home(own, secret, monkeypatch):
    monkeypatch.setenv("FMHA_TEST_TOKEN", SECRET)
    adapter = own / "own.py"
    reads = f"import os; assert 'FMHA_TEST_TOKEN' not in os.environ; value = open({str(secret)!r}).read()"
    adapter.write_text(adapter.read_text().replace("value = helper.VALUE", f"{reads}; value = helper.VALUE"))
    result = build(own, OWN)
    assert result.error is not None
    assert "FileNotFoundError" in result.error or "PermissionError" in result.error
    assert SECRET not in result.error


@pytest.mark.parametrize("folder", ["tree", "cache", "home"])
def test_a_compiler_of_one_s_own_writes_its_scratch_folder_alone(own, secret, folder):
    where = {"tree": own, "cache": own.parent / "cache", "home": secret.parent}[folder]
    adapter = own / "own.py"
    writes = f"open({str(where / 'written')!r}, 'w')"
    adapter.write_text(adapter.read_text().replace("value = helper.VALUE", f"{writes}; value = helper.VALUE"))
    result = build(own, OWN)
    assert result.error is not None or folder == "cache", "what lies around the scratch folder is in memory at the most"
    assert not (where / "written").exists()


LEFT = {
    "a link to a file": 'ln -s /etc/passwd "$out"',
    "a link to PTX of its own": 'echo x >"$out.real"; ln -s "$out.real" "$out"',
    "a pipe": 'mkfifo "$out"',
    "a folder": 'mkdir "$out"',
    "too much": 'truncate -s 3G "$out"',
}


@pytest.mark.parametrize("left", LEFT)
def test_what_a_compiler_leaves_is_a_plain_file_or_nothing(tree, tmp_path, monkeypatch, left):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo "release 13.0, V13.0.88"; exit;; --dryrun) exit;; esac\n'
        f'while [ "$1" != -o ]; do shift; done; out=$2\n{LEFT[left]}\n'
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("FMHA_NVCC", str(nvcc))
    result = build(tree)
    assert result.error is not None
    assert result.error.startswith(("nvcc wrote no PTX", "probe.ptx is 3221225472 bytes"))


def test_a_folder_outside_is_read_where_its_owner_grants_it(tree, monkeypatch):
    outside = tree.parent / "outside"
    assert stored(build(tree)) == 1230
    monkeypatch.setenv("FMHA_ISOLATION", "require")
    result = build(tree, cache=tree.parent / "required")
    assert result.error is not None
    assert result.error.splitlines()[0].endswith(f"the owner of this machine grants it with FMHA_READ={outside}")
    monkeypatch.setenv("FMHA_READ", f"/nowhere:{outside}")
    assert stored(build(tree, cache=tree.parent / "required")) == 1230


@pytest.mark.parametrize("folder", [".", ".ssh", ".."])
def test_the_home_and_what_is_hidden_in_it_are_granted_to_nobody_who_only_asks(tree, secret, monkeypatch, folder):
    monkeypatch.setenv("HOME", str(secret.parent))
    (secret.parent / ".ssh").mkdir()
    result = build(tree, replace(VARIANT, flags=(*VARIANT.flags, f"-I../home/{folder}")))
    assert result.error is not None
    assert "compilers may not read it here" in result.error


def test_entries_that_were_not_used_for_longest_go(tmp_path):
    for at, name in enumerate(("v-a-1", "v-b-2", "v-c-3")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.ptx").write_bytes(bytes(1000))
        os.utime(tmp_path / name, (1000.0 + at, 1000.0 + at))
    cache.touch(tmp_path / "v-a-1")
    cache.trim(tmp_path, most_bytes=2500)
    assert sorted(path.name for path in tmp_path.glob("v-*")) == ["v-a-1", "v-c-3"]
    cache.trim(tmp_path, most_bytes=0)
    assert [path.name for path in tmp_path.glob("v-*")] == ["v-a-1"], "a run may load it still"
    assert Path(tmp_path / "v-a-1" / "x.ptx").is_file()
