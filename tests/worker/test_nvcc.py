"""Finding a compiler, with real executables: scripts that answer like an nvcc."""

import sys
import sysconfig
from pathlib import Path

import pytest

from fmha.harness.worker.compilers.nvcc import NvccError, find_nvcc, query

PACKAGED = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvcc"


def fake_nvcc(path, release):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.7'\n")
    path.chmod(0o755)
    return path


def test_path_comes_before_the_packages(tmp_path):
    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "12.9")
    fake_nvcc(tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "13.0")
    found = find_nvcc({"PATH": str(on_path.parent)}, tmp_path / "site")
    assert (found.path, found.release) == (on_path, (12, 9))
    assert found.version == "Cuda compilation tools, release 12.9, V12.9.7"


@pytest.mark.parametrize("release", ["12.8", "11.10"])
def test_an_old_one_on_path_is_passed_over(tmp_path, release):
    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", release)
    packaged = fake_nvcc(tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "13.0")
    assert find_nvcc({"PATH": str(on_path.parent)}, tmp_path / "site").path == packaged


def test_lost_executable_bits_are_restored(tmp_path):
    packaged = fake_nvcc(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc", "13.0")
    cicc = fake_nvcc(tmp_path / "nvidia" / "cu13" / "nvvm" / "bin" / "cicc", "13.0")
    for tool in (packaged, cicc):
        tool.chmod(0o644)
    assert find_nvcc({"PATH": ""}, tmp_path).path == packaged
    assert cicc.stat().st_mode & 0o111 == 0o111


def test_none_at_all_says_what_to_do(tmp_path):
    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "12.4")
    with pytest.raises(NvccError) as caught:
        find_nvcc({"PATH": str(on_path.parent)}, tmp_path / "site")
    assert "nvcc 12.4 is older than 12.9" in str(caught.value)
    assert "'nvidia-cuda-nvcc==13.0.*'" in str(caught.value)


def test_the_chosen_one_is_used(tmp_path):
    chosen = fake_nvcc(tmp_path / "mine", "13.1")
    assert find_nvcc({"PATH": "", "FMHA_NVCC": str(chosen)}, tmp_path).path == chosen


@pytest.mark.parametrize(("release", "message"), [("12.8", "older than 12.9"), (None, "names no executable file")])
def test_the_chosen_one_is_never_replaced(tmp_path, release, message):
    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "13.0")
    chosen = fake_nvcc(tmp_path / "mine", release) if release else tmp_path / "nowhere"
    with pytest.raises(NvccError, match=message) as caught:
        find_nvcc({"PATH": str(on_path.parent), "FMHA_NVCC": str(chosen)}, tmp_path)
    assert "FMHA_NVCC" in str(caught.value)


def test_what_does_not_answer_like_an_nvcc():
    with pytest.raises(NvccError, match="names no release"):
        query(Path(sys.executable))


def test_what_cannot_be_started(tmp_path):
    path = tmp_path / "nvcc"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    with pytest.raises(NvccError, match="cannot be started"):
        query(path)


@pytest.mark.nvcc
@pytest.mark.skipif(not PACKAGED.is_file(), reason="the nvcc of PyPI is not installed here")
def test_the_packaged_one_answers():
    found = find_nvcc({"PATH": ""})
    assert found.path == PACKAGED
    assert found.release >= (13, 0)
