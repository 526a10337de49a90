"""Regress with a real GPU's clock: a commit against itself but for a comment, and against one slowed on purpose.

`python -m tests.remote.silicon_speed RECORD [--repeats N]` makes a project of this checkout and runs it with
`--host local`. It needs a GPU, writes what every regress said to RECORD, and ends with 0 when after the comment every
configuration is SAME, and after the sleep none is FASTER and the shortest is SLOWER: a microsecond is nothing to the
longer ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tests.harness.support import git
from tests.remote.silicon import copy_checkout

SUITE = {"axes": {"head_dim": [64, 128], "t": [1, 128], "s_k": [512, 8192], "heads": [16]}}
KERNEL = {"sm_90a": "kernel/sm90/fmha_fwd.cu", "sm_100a": "kernel/sm100/fmha_fwd.cu"}
SLEEP = '    asm volatile("nanosleep.u32 {};");\n    extern __shared__'


class Project:
    """A repository of this checkout, whose host is this machine."""

    def __init__(self, root: Path, home: Path, device: str, arch: str) -> None:
        self.root = root
        self._kernel = root / KERNEL[arch]
        copy_checkout(root)
        matrix = yaml.safe_load((root / "matrix.yaml").read_text())
        matrix["default_suite"] = "timed"
        matrix["suites"] = {"timed": SUITE}
        matrix["hosts"] = {
            "local": {
                "kind": "local",
                "device": device,
                "arch": arch,
                "folder": str(home),
                "python": sys.executable,
                "environment": {"setup": ""},
                "gpus": {"nvidia_smi": "nvidia-smi" if device == "cuda" else None, "locks": str(home / "locks")},
                "sync": "direct",
            }
        }
        (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
        git(root, "init", "-q", "-b", "main")
        self.commit("start")

    def commit(self, subject: str) -> None:
        git(self.root, "add", ".")
        git(self.root, "commit", "-q", "-m", subject)

    def change(self, old: str, new: str, subject: str) -> None:
        text = self._kernel.read_text()
        assert old in text
        self._kernel.write_text(text.replace(old, new, 1))
        self.commit(subject)

    def fmha(self, *arguments: str) -> str:
        """What the command printed; its words go to standard error as they come."""
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "fmha", *arguments], cwd=self.root, stdout=subprocess.PIPE, text=True, check=False
        )
        print(f"fmha {arguments[0]}: exit code {done.returncode}, {time.monotonic() - start:.1f} s", flush=True)
        return done.stdout

    def regress(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.fmha("regress", "--host", "local", "--json", "-q"))
        print(found["words"], *found["notes"], sep="\n")
        for item in found["speeds"]:
            print(
                f"{item['id']} {item['verdict']} {item['change']:+.2%} [{item['low']:+.2%}, {item['high']:+.2%}] "
                f"{item['base_seconds'] * 1e6:.2f} -> {item['new_seconds'] * 1e6:.2f} us, "
                f"{item['base_clock']} -> {item['new_clock']} MHz {item['reason']}",
                flush=True,
            )
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--repeats", type=int, default=3, help="of equal against equal")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    said: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fmha-speed-") as folder:
        project = Project(Path(folder) / "project", Path(folder) / "work", options.device, options.arch)
        project.fmha("run-matrix", "--host", "local", "-q")
        project.fmha("baseline", "accept", "latest", "--why", "the start", "-q")
        project.commit("baseline")
        project.change("    extern __shared__", "    // Nothing else.\n    extern __shared__", "comment")
        for _ in range(options.repeats):
            said.append({"planted": "SAME", **project.regress()})
        project.change("    extern __shared__", SLEEP.format(1000), "sleep")
        said.append({"planted": "SLOWER", **project.regress()})
    options.record.write_text(json.dumps(said, indent=1) + "\n")
    wrong = [one["words"] for one in said if not _right(one)]
    print(*wrong, f"{len(wrong)} of {len(said)} are wrong", sep="\n")
    return 1 if wrong else 0


def _right(one: dict[str, Any]) -> bool:
    verdicts = {item["verdict"] for item in one["speeds"]}
    if one["planted"] == "SAME":
        return verdicts == {"SAME"} and one["exit_code"] == 0
    shortest = min(one["speeds"], key=lambda item: item["base_seconds"])
    return shortest["verdict"] == "SLOWER" and "FASTER" not in verdicts and one["exit_code"] == 1


if __name__ == "__main__":
    sys.exit(main())
