"""A git history of the real kernel with regressions planted in it, and what regress and bisect say to it.

    python -m tests.evidence.seeded_history --repeats 20

prints the table in docs/reference/verdict-trials.md: every commit held against the baseline of the first one, every
clean commit again under so many seeds, and one bisection a regression over the whole history before it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import forked
from tests.harness.support import git

REPOSITORY = Path(__file__).resolve().parents[2]
SUITE = {"axes": {"head_dim": [64], "t": [1, 32, 128], "s_k": [128, 384]}}
Change = Callable[[Path], None]


@dataclass(frozen=True)
class Planned:
    """A commit: what it does, and the kind of regression that regress must find in it; None when it is clean."""

    subject: str
    change: Change
    kind: str | None = None
    plants: bool = False  # the first commit with this regression
    builds: bool = True


def edit(pattern: str, replacement: str) -> Change:
    """Replace the one place under kernel/ that matches; more or fewer are an error, so that no plant becomes void."""

    def change(root: Path) -> None:
        found = [path for path in sorted((root / "kernel").rglob("*.cu*")) if re.search(pattern, path.read_text())]
        assert len(found) == 1, (pattern, found)
        text, count = re.subn(pattern, replacement, found[0].read_text())
        assert count == 1, (pattern, count)
        found[0].write_text(text)

    return change


def comment(text: str) -> Change:
    def change(root: Path) -> None:
        path = root / "kernel" / "sm100" / "fmha_fwd.cu"
        path.write_text(f"// {text}\n{path.read_text()}")

    return change


def without_long(root: Path) -> None:
    """The suite loses its longest t."""
    path = root / "matrix.yaml"
    path.write_text(path.read_text().replace("- 128\n      s_k", "- 64\n      s_k"))


def undo(root: Path) -> None:
    """The sources of the first commit."""
    git(root, "checkout", "-q", "first", "--", "kernel")


HISTORY = (
    Planned("Start", lambda root: None),
    Planned("Say what the file is", comment("The forward kernel.")),
    Planned(
        "Small P of odd keys to seven bits, in five rows of eight",
        # To the nearest: cut off, they would have a direction, which has gates of its own. Below a quarter: a large
        # one would reach the limit of max_error on one drawn input in ten, and be found as `status`.
        edit(
            r'(?<="f"\(low\)\);\n    )return packed;',
            "const bool as_it_was = threadIdx.x % 8 < 3 || packed >= 0x3e800000u;\n"
            "    return as_it_was ? packed : (packed + (packed >> 1 & 0x00010000u)) & 0xfffeffffu;",
        ),
        "numbers",
        plants=True,
    ),
    Planned("Comment while P is coarse", comment("Of sm_100a."), "numbers"),
    Planned("P to eight bits again", undo),
    Planned("LSE in base 2", edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1"), "status", plants=True),
    Planned("LSE in base e again", undo),
    Planned("Half an edit", edit(r"constexpr float kLn2 =", "constexpr float kLn2"), builds=False),
    Planned("The other half", undo),
    Planned(
        "Save a fence",
        edit(r"(ptx::mbarrier_init\(shared\.output_full\(\), 1\);\n\s*)ptx::fence_proxy_async\(\);", r"\1"),
        "hazard",
        plants=True,
    ),
    Planned("Comment while the fence is gone", comment("One CTA, six warps."), "hazard"),
    Planned("Fence again", undo),
    Planned(
        "Four CTAs an SM: registers are spilled",
        edit(r"(__launch_bounds__\(kFmhaSm100Threads), Forward::kCtasPerSm\)", r"\1, 4)"),
        "resources",
        plants=True,
    ),
    Planned("Rename a local", edit(r'"=r"\(packed\)', '"=r"( packed )'), "resources"),
    Planned("One CTA an SM again", undo),
    Planned("Drop the longest t", without_long, "not-run", plants=True),
    Planned("Comment at the end", comment("The end of the history."), "not-run"),
)
CLEAN = [place for place, planned in enumerate(HISTORY) if planned.kind is None and planned.builds]
PLANTS = [place for place, planned in enumerate(HISTORY) if planned.plants]


class History:
    """The repository and its commits, in order; commit 0 is the baseline's."""

    def __init__(
        self, root: Path, history: Sequence[Planned] = HISTORY, suite: Mapping[str, object] = SUITE, workers: int = 1
    ) -> None:
        self.root = root
        self.shas: list[str] = []
        shutil.copytree(REPOSITORY / "kernel", root / "kernel")
        matrix = yaml.safe_load((REPOSITORY / "matrix.yaml").read_text())
        matrix |= {"default_suite": "small", "suites": {"small": dict(suite)}}
        matrix["hosts"]["emulator"]["workers"] = workers  # a second costs its start, and there is little to do
        del matrix["gates"]["resources"]  # a spill is to be found by comparing
        (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
        (root / ".gitignore").write_text(".fmha/\nresults/\n")
        git(root, "init", "-q", "-b", "main")
        for planned in history:
            planned.change(root)
            git(root, "add", ".")
            git(root, "commit", "-q", "--allow-empty", "-m", planned.subject)
            if not self.shas:
                git(root, "tag", "first")
            said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
            self.shas.append(said.stdout.strip())

    def fmha(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.fmha(*arguments, cwd=self.root)

    def accept(self, seeds: int) -> None:
        """The first commit's run as the baseline."""
        git(self.root, "checkout", "-q", self.shas[0])
        ran = self.fmha("run-matrix", "--quiet")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        taken = self.fmha("baseline", "accept", "latest", "--why", "the start", "--seeds", str(seeds), "--quiet")
        assert taken.returncode == 0, taken.stderr

    def regress(self, place: int, *arguments: str) -> dict[str, Any]:
        """What regress says of a commit, with its exit code as `code`."""
        git(self.root, "checkout", "-q", self.shas[place])
        ran = self.fmha("regress", "--json", "--quiet", *arguments)
        assert ran.stdout, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found | {"code": ran.returncode}

    def bisect(self, bad: int, kind: str) -> dict[str, Any]:
        """The bisection between the first commit and a bad one."""
        git(self.root, "checkout", "-q", "main")
        ran = self.fmha("bisect", self.shas[0], self.shas[bad], "--for", kind, "--json", "--quiet")
        assert ran.returncode == 0, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        history.accept(max(repeats, 20))
        print("| commit | planted | regress says | alarms under all seeds |\n| --- | --- | --- | --- |", flush=True)
        for place, planned in enumerate(HISTORY):
            found = history.regress(place)
            kinds = sorted({item["kind"] for item in found["regressions"]})
            alarms = "-"
            if place in CLEAN:
                codes = [history.regress(place, "--seed", str(n))["code"] for n in range(repeats)]
                alarms = f"{sum(code != 0 for code in codes)} of {repeats}"
            planted = planned.kind if planned.plants else ("does not build" if not planned.builds else "")
            drops = [item["before"] - item["after"] for item in found["regressions"] if item["what"] == "cosine"]
            if planned.plants and drops:
                planted = f"{planted}: cosine lower by {min(drops):.1e} to {max(drops):.1e}"
            print(f"| {planned.subject} | {planted or ''} | {', '.join(kinds) or 'nothing'} | {alarms} |", flush=True)
        print("\n| planted | bisected from, to | found | commits run | skipped |\n| --- | --- | --- | --- | --- |")
        for place in PLANTS:
            kind = HISTORY[place].kind
            assert kind
            bad = place + 1 if HISTORY[place + 1].kind else place
            found = history.bisect(bad, kind)
            right = found["commit"] == history.shas[place]
            words = HISTORY[place].subject if right else f"WRONG: {found['subject']}"
            print(f"| {kind} | 0, {bad} | {words} | {found['commits_run']} | {len(found['skipped'])} |", flush=True)


if __name__ == "__main__":
    main()
