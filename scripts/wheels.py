"""Builds a wheel with each Python that is named, and tries it where nothing else is: what a release does, without its
containers. `python scripts/wheels.py FOLDER python3.11 python3.12 python3.13`

Settings and trial are those of [tool.cibuildwheel] in pyproject.toml. Each wheel is installed by pip, with what it
requires, into a new environment; the tried ones are left in FOLDER. They are for this machine's glibc and newer ones:
only cibuildwheel, which compiles in a manylinux container, makes those that PyPI takes.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main(folder: Path, pythons: list[str]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    for python in pythons:
        with tempfile.TemporaryDirectory() as name:
            wheel = built(python, Path(name), settings)
            tried(python, Path(name) / "venv", wheel, settings)
            folder.mkdir(parents=True, exist_ok=True)
            kept = folder / wheel.name
            kept.write_bytes(wheel.read_bytes())
            print(f"{kept}: {kept.stat().st_size / 1e6:.1f} MB", flush=True)


def built(python: str, folder: Path, settings: dict[str, Any]) -> Path:
    chosen = [f"-C{name}={value}" for name, value in settings["config-settings"].items()]
    chosen.append(f"-Cbuild-dir={folder / 'build'}")  # the checkout's own is configured for its CPU
    subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, *chosen], check=True)
    (wheel,) = folder.glob("fmha-*.whl")
    return wheel


def tried(python: str, home: Path, wheel: Path, settings: dict[str, Any]) -> None:
    subprocess.run([python, "-m", "venv", home], check=True)
    inside = home / "bin" / "python"
    subprocess.run([inside, "-m", "pip", "install", "-q", wheel], check=True)
    command = settings["test-command"].replace("{project}", str(ROOT)).split()
    subprocess.run([inside if word == "python" else word for word in command], cwd=home, check=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python scripts/wheels.py FOLDER PYTHON...")
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, error.cmd))}: ended with {error.returncode}")
