"""Mistakes in the harness and the core, and whether the tests that `make test` runs still see them.

    python -m tests.planted              # all
    python -m tests.planted --only seal  # those whose names contain that

What tests/nightly.txt leaves to the night was chosen by what it costs. That others of its kind see the same is shown
here: each mistake goes into a copy of the tree, and those tests of the group that are left are run until one fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", ".fmha", ".*_cache", ".hypothesis")


@dataclass(frozen=True, slots=True)
class Planted:
    """`old`, which the file has once, becomes `new`; `tests` are what could notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


STALE = ("tests/worker/test_never_stale.py",)
BUILD = ("tests/worker/test_build.py", *STALE)
FAULTS = ("tests/integration/test_worker_faults.py",)
WALL = ("tests/evidence/test_wall.py",)
VERDICT = ("tests/evidence/test_verdict.py",)
HISTORY = ("tests/evidence/test_comparison.py", "tests/evidence/test_seeded_history.py")
CALLS = ("tests/harness/test_attention_statistics.py", "tests/harness/test_attention_options.py")
RUNS = ("tests/remote/test_runs.py",)
HOST = ("tests/remote/test_host_faults.py",)
ACCOUNTS = ("tests/remote/test_accounts.py",)
CONNECTION = ("tests/remote/test_connection_faults.py", "tests/remote/test_upload.py")
KEY = ("tests/remote/test_forced_key.py",)
FORWARD = ("tests/kernel/test_forward.py",)
HOPPER = ("tests/kernel/test_sm90.py", "tests/kernel/test_sm90_launch.py", "tests/kernel/test_sm90_packed.py")

COMPILERS = "harness/worker/compilers"
COMPARISON = "harness/judge/comparison/comparison.py"
PLANTED = (
    Planted(
        "a file that appears is not asked for",
        f"{COMPILERS}/build_inputs.py",
        "hashes.names(os.path.join(base, folder)).isdisjoint(names) for folder, names",
        "True for folder, names",
        STALE,
    ),
    Planted(
        "what was read is not looked at again",
        f"{COMPILERS}/build_inputs.py",
        "hashes.of(os.path.join(base, path)) == digest for path, digest",
        "True for path, digest",
        STALE,
    ),
    Planted(
        "an entry of any name is taken",
        f"{COMPILERS}/build_kernels.py",
        "if entry.name == cache.name_of(variant.name, asked, key):",
        "if True:",
        STALE,
    ),
    Planted(
        "flags are not in the key",
        f"{COMPILERS}/build_steps.py",
        "task.toolchain.digest, task.flags_of(variant), deciding]",
        "task.toolchain.digest, deciding]",
        BUILD,
    ),
    Planted(
        "no limit of a configuration",
        "harness/worker/pool/supervise.py",
        "if now - self._event_at > limits.total:",
        "if False:",
        FAULTS,
    ),
    Planted(
        "no limit of silence",
        "harness/worker/pool/supervise.py",
        "if now - self._heard_at > limits.silence:",
        "if False:",
        FAULTS,
    ),
    Planted(
        "words of a shell are taken as flags",
        "harness/worker/planner/process.py",
        "if _OF_A_SHELL & set(word):",
        "if False:",
        WALL,
    ),
    Planted(
        "a variant may lead out of the tree",
        "harness/worker/planner/process.py",
        'path.is_absolute() or ".." in path.parts or not',
        "not",
        WALL,
    ),
    Planted(
        "a kernel's side of another protocol is believed",
        "harness/worker/planner/process.py",
        "if spoken != PROTOCOL:",
        "if False:",
        WALL,
    ),
    Planted("what was loosened is not told", COMPARISON, "if found.laxer:", "if False:", VERDICT),
    Planted(
        "a metric may grow a thousandfold",
        COMPARISON,
        "if scaled(metric, after[metric]) > limit:",
        "if scaled(metric, after[metric]) > 1000 * limit:",
        (*HISTORY, *VERDICT),
    ),
    Planted(
        "a status that got worse is not told",
        COMPARISON,
        "elif b.status in RED and a.status not in RED:",
        "elif False:",
        HISTORY,
    ),
    Planted(
        "counters may grow",
        COMPARISON,
        "if count is not None and count > value * (1.0 + allowance):",
        "if False:",
        (*HISTORY, *VERDICT),
    ),
    Planted("other bits are not told", COMPARISON, "    if before != after:", "    if False:", (*HISTORY, *VERDICT)),
    Planted(
        "a scale that is given is ignored",
        "harness/attention/options.py",
        "1.0 / math.sqrt(head_dim) if scale is None else scale",
        "1.0 / math.sqrt(head_dim)",
        ("tests/harness/test_attention.py", *CALLS),
    ),
    Planted(
        "protected files need no approval",
        "harness/supervisor/protection.py",
        "    if known and not approve:",
        "    if False:",
        RUNS,
    ),
    Planted(
        "a stopped supervisor is waited for",
        "harness/supervisor/keeper.py",
        "elif time.monotonic() - self._since > self._patience:",
        "elif False:",
        HOST,
    ),
    Planted(
        "accounts do not take turns",
        "harness/supervisor/locks.py",
        "if claim.uid == uid), default=-1)",
        "if False), default=-1)",
        ACCOUNTS,
    ),
    Planted(
        "an upload is not compared with its digest",
        "harness/supervisor/upload.py",
        'if hashlib.file_digest(file, "sha256").hexdigest() != self._digest:',
        "if False:",
        CONNECTION,
    ),
    Planted(
        "a stolen key runs what it offers",
        "harness/supervisor/forced.py",
        "    if offered != own:",
        "    if False:",
        KEY,
    ),
    Planted(
        "a stolen key approves",
        "harness/supervisor/forced.py",
        '    if job["approve_protected"]:',
        "    if False:",
        KEY,
    ),
)


class NotBegunError(RuntimeError):
    """Nothing could be tested; with what pytest says."""


def lay_out(folder: Path) -> None:
    import fmha.emulator._core as core

    shutil.copytree(ROOT, folder, symlinks=True, ignore=_LEFT_OUT)
    compiled = Path(str(core.__file__))
    if not (folder / "emulator" / compiled.name).exists():
        shutil.copy(compiled, folder / "emulator" / compiled.name)


def first_red(
    folder: Path,
    tests: Sequence[str],
    *,
    night: bool = False,
    seconds: float | None = None,
    without: Sequence[str] = (),
) -> str:
    """The first of them that fails, of those that make test runs or of those of the night, `without` some; empty where
    none does.

    :raises NotBegunError: Where pytest ends before it has come to the tests.
    :raises subprocess.TimeoutExpired: After `seconds`.
    """
    chosen = ["-m", "nightly" if night else "not nightly", *(f"--deselect={test}" for test in without)]
    own = ["-p", "no:cacheprovider", f"--basetemp={folder.with_name('temp')}"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", *chosen, *own, *tests]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(_passed_over(folder))])}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=seconds
    )
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", ran.stdout, re.MULTILINE)
    if found is None and ran.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise NotBegunError(f"pytest ends with {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return found.group(1) if found else ""


def _passed_over(folder: Path) -> Path:
    """A folder beside the tree with empty modules of the names by which an editable installation finds fmha: its finder
    comes before PYTHONPATH, so that what is planted would never be imported. Its own variable for that does not get
    into a sandbox."""
    found = folder.with_name("passed-over")
    found.mkdir(exist_ok=True)
    for name in (path.name for path in Path(sysconfig.get_path("purelib")).glob("_editable_*.py")):
        (found / name).touch()
    return found


def noticed_by(planted: Planted, folder: Path, *, night: bool = False) -> str:
    """The first test that fails with the mistake and not without it, of those that make test runs or of those of the
    night; empty where none does."""
    place = folder / planted.file
    text = place.read_text(encoding="utf-8")
    if text.count(planted.old) != 1:
        raise SystemExit(f"{planted.name}: {planted.file} has its place {text.count(planted.old)} times; rewrite it")
    place.write_text(text.replace(planted.old, planted.new), encoding="utf-8")
    try:
        found = first_red(folder, planted.tests, night=night)
    finally:
        place.write_text(text, encoding="utf-8")
    if found and first_red(folder, [found], night=night):
        raise SystemExit(f"{found} fails without a mistake as well")
    return found


def main() -> int:
    """0 where every mistake is noticed, 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORDS", help="mistakes whose names have these words")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name) / "tree"
        lay_out(folder)
        subprocess.run("git init -q && git add -A && git -c user.name=x -c user.email=x@y commit -qm start", shell=True,
                       cwd=folder, check=True)  # fmt: skip
        for planted in PLANTED:
            if options.only not in planted.name:
                continue
            start = time.monotonic()
            test = noticed_by(planted, folder)
            missed += not test
            print(f"| {planted.name} | `{planted.file}` | {f'`{test}`' if test else '**nothing**'} | "
                  f"{time.monotonic() - start:.0f} s |", flush=True)  # fmt: skip
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
