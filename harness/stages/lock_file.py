"""Lock: what fmha and its extras require, each at one version and with the digest of its wheel, for pip to insist on.

pip itself finds them, as it would for that Python on that platform; nothing is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from fmha.harness.errors import InfrastructureError, UserError

NAME: Final = "fmha-lock.txt"
# What compiles fmha's core where it is installed from a commit, without build isolation; pyproject.toml has the same.
BUILD: Final = ("scikit-build-core>=0.11", "nanobind>=2.4", "cmake>=3.26", "ninja>=1.11")
_GLIBC: Final = range(39, 16, -1)  # ubuntu-24.04's, and what older ones make
_SECONDS: Final = 600.0
_HEAD: Final = """# What fmha requires in CI, each with the digest of its wheel. For newer ones, run again:
#   fmha lock --extras {extras} --python {python} --machine {machine}
# CI installs it by: pip install --require-hashes --only-binary :all: -r {name}
"""


def required(extras: Sequence[str]) -> list[str]:
    """By fmha itself and by these extras, as pip takes them. UserError for an extra that there is not."""
    known = metadata.metadata("fmha").get_all("Provides-Extra") or []
    if unknown := [extra for extra in extras if extra not in known]:
        raise UserError(f"there is no extra {unknown[0]!r}", next_step=f"use one of {', '.join(sorted(known))}")
    made = []
    for item in metadata.requires("fmha") or []:
        requirement, _, marker = item.partition(";")
        extra = re.search(r"""extra == ['"](\w+)['"]""", marker)
        if extra is None or extra[1] in extras:
            made.append(requirement.strip())
    return made


def lock(requirements: Sequence[str], python: str, machine: str) -> list[str]:
    """Lines of a requirements file: all that these require, on Linux. InfrastructureError in pip's words where it
    finds none that fit."""
    with tempfile.TemporaryDirectory(prefix="fmha-lock-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--disable-pip-version-check", "--no-input", "--report", str(report), "--target", folder]
        command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
        platforms = [*(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC), f"manylinux2014_{machine}"]
        command += [word for platform in platforms for word in ("--platform", platform)]
        try:
            done = subprocess.run(
                [*command, *requirements], capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InfrastructureError(f"pip did not answer: {error}", next_step="try it again") from error
        if done.returncode:
            raise InfrastructureError(
                f"pip finds no wheels of all that is required: {done.stderr.strip()[-1000:]}",
                next_step="pip needs its index, and for torch the one of its CPU builds (docs/use/install.md)",
            )
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    lines = {}
    for item in found:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise InfrastructureError(f"pip names no digest of {name}", next_step="update pip")
        lines[name.lower()] = f"{name}=={version} --hash=sha256:{digest}"
    return [lines[name] for name in sorted(lines)]


def written(root: Path, extras: Sequence[str], python: str, machine: str) -> Path:
    """The file in the repository at `root`."""
    head = _HEAD.format(extras=",".join(extras), python=python, machine=machine, name=NAME)
    made = lock([*required(extras), *BUILD], python, machine)
    path = root / NAME
    path.write_text(head + "".join(f"{line}\n" for line in made), encoding="utf-8")
    return path
