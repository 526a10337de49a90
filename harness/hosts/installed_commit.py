"""The fmha that is installed here, as a commit that goes to a host with a run of one's own kernels.

A repository that has kernels and no fmha is judged on a host by the very files that would judge it here. They travel
as the judge's commit does: packed once, checked out beside the run's own, proved before and after.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fmha.harness.errors import InfrastructureError
from fmha.harness.git import git, git_failure
from fmha.harness.kernel_side.abi import HEADERS, header

REF: Final = "refs/fmha/installed"
# Nobody's, at no time: the same files are the same commit, which a host that has it is not sent again.
_NOBODY: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "fmha"), ("EMAIL", "fmha@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
}
_LEFT_OUT: Final = frozenset({"__pycache__", "core", "project", "examples", "bench", "report"})
_SETUP: Final = """\
# Makes the environment of runs that this fmha judges: what it requires, and nvcc where there is none.
set -eu
"${FMHA_PYTHON:-python3}" -m venv "$FMHA_ENVIRONMENT"
python=$FMHA_ENVIRONMENT/bin/python
install() { "$python" -m pip install -qq --disable-pip-version-check --no-input -r "requirements/$1.txt"; }
install run
[ "${FMHA_DEVICE:-}" != cuda ] || install cuda
find='from fmha.harness.worker.compilers.nvcc import find_nvcc; find_nvcc()'
[ -n "${FMHA_NVCC:-}" ] || "$python" -c "$find" 2>/dev/null || install nvcc
"""


def committed(root: Path, device: str) -> str:
    """The commit, made in the repository at `root`; with the emulator's core for a device that is the emulator.

    InfrastructureError for an fmha that was not installed, only found: nobody knows what it requires.
    """
    try:
        version = metadata.version("fmha")
    except metadata.PackageNotFoundError as error:
        raise InfrastructureError(
            "this fmha was not installed, so a host cannot be given what it requires",
            where=str(Path(__file__).resolve().parents[2]),
            next_step="pip install it",
        ) from error
    texts = {
        ".gitignore": "__pycache__/\n",
        "scripts/environment.sh": _SETUP,
        **{f"requirements/{extra or 'run'}.txt": text for extra, text in _requirements().items()},
    }
    with tempfile.TemporaryDirectory(prefix="fmha-installed-") as folder:
        files = dict(_files(device))
        for name, text in texts.items():
            path = files[name] = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        listed = "".join(f"{path}\n" for path in files.values())
        blobs = _git(root, "hash-object", "-w", "--no-filters", "--stdin-paths", text=listed).split()
        entries = "".join(f"100644 {blob}\t{name}\n" for name, blob in zip(files, blobs, strict=True))
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(root, "update-index", "--add", "--index-info", text=entries, more=index)
        tree = _git(root, "write-tree", more=index).strip()
    sha = _git(root, "commit-tree", tree, "-m", f"fmha {version}", more=_NOBODY).strip()
    _git(root, "update-ref", REF, sha)
    return sha


def _files(device: str) -> Iterator[tuple[str, Path]]:
    """The package's files by their names from its root, in order."""
    package = Path(__file__).resolve().parents[2]
    package = package if package.name == "fmha" else package / "fmha"  # a checkout's has links to the rooms
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(names):
            if not name.endswith((".so", ".pyc")):
                path = Path(folder) / name
                yield f"fmha/{path.relative_to(package).as_posix()}", path
    yield from ((f"fmha/harness/project/{name}", header(name)) for name in HEADERS)
    if device.startswith("emulator"):
        yield from _cores()


def _cores() -> Iterator[tuple[str, Path]]:
    from fmha.emulator.levels import LEVELS  # here: only who sends the core has to have one

    spec = find_spec("fmha.emulator._core")
    if spec is None or spec.origin is None:
        raise InfrastructureError("this fmha has no emulator's core to send", next_step="install it anew")
    home = Path(spec.origin).parent
    home = home.parent if home.name in LEVELS else home
    for path in sorted([*home.glob("_core*.so"), *home.glob("*/_core*.so")]):
        yield f"fmha/emulator/{path.relative_to(home).as_posix()}", path


def _requirements() -> Mapping[str, str]:
    """What the distribution requires, by extra, "" for what every run needs."""
    found: dict[str, list[str]] = {"": [], "cuda": [], "nvcc": []}
    for line in metadata.requires("fmha") or []:
        name, _, marker = line.partition(";")
        extra = re.search(r"extra == [\"'](\w+)", marker)
        if (key := extra[1] if extra else "") in found:
            found[key].append(name.strip())
    return {key: "".join(f"{line}\n" for line in sorted(lines)) for key, lines in found.items()}


def _git(root: Path, *arguments: str, text: str = "", more: Mapping[str, str] | None = None) -> str:
    done = git(root, *arguments, text=text, more=more)
    if done.returncode != 0:
        raise git_failure(done)
    return done.stdout
