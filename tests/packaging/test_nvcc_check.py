"""scripts/have-nvcc, on which it depends whether `make` installs nvcc."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# The format of nvcc 13.0's own --version.
VERSION = """nvcc: NVIDIA (R) Cuda compiler driver
Cuda compilation tools, release {release}, V{release}.88
"""


def check(repository: Path, bin_directory: Path) -> int:
    environment = {**os.environ, "PATH": f"{bin_directory}:/usr/bin:/bin"}
    return subprocess.run([repository / "scripts/have-nvcc"], env=environment, check=False).returncode


@pytest.mark.parametrize(
    ("release", "status"), [("11.8", 1), ("12.8", 1), ("12.9", 0), ("12.10", 0), ("13.0", 0), ("garbage", 1)]
)
def test_release(repository, tmp_path, release, status):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\ncat <<'E'\n" + VERSION.format(release=release) + "E\n")
    nvcc.chmod(0o755)
    assert check(repository, tmp_path) == status


def test_nvcc_that_fails(repository, tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    nvcc.chmod(0o755)
    assert check(repository, tmp_path) == 1


def test_no_nvcc(repository, tmp_path):
    for tool in ("bash", "sed", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    environment = {"PATH": str(tmp_path)}
    assert subprocess.run([repository / "scripts/have-nvcc"], env=environment, check=False).returncode == 1
