"""A real GPU, on which two configurations go wrong: one hangs, one makes the context unusable. Their t picks them.

`python -m tests.remote.silicon [RECORD]` makes a project of this checkout and runs it with `--host local`. It needs a
GPU, and prints what came of every configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from fmha.harness.contract.device import LaunchConfig, LaunchReport
from fmha.harness.kernel_side.params import LAYOUT
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.devices.cuda import CudaDevice, architecture

HANGS, POISONS = 13, 14
EXPECTED = {1: "pass", HANGS: "timeout", 4: "pass", POISONS: "crash", 32: "pass", 128: "pass"}
SILENCE_SECONDS = 8
T_OFFSET = next(offset for name, offset, _ in LAYOUT if name == "t")
NOWHERE = 0x10
# The packages of where this runs, and these tests: of a worktree a run finds `fmha` alone by name.
SETUP = """set -eu
"$FMHA_PYTHON" -m venv --without-pip --system-site-packages "$FMHA_ENVIRONMENT"
cp -r tests "$FMHA_ENVIRONMENT"/lib/python3.*/site-packages/
"""


class FaultyCudaDevice(CudaDevice):
    """A CudaDevice that launches a probe in place of the kernel where t says so."""

    def launch(self, module: Any, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        t = int.from_bytes(params[T_OFFSET : T_OFFSET + 4], "little")
        if t == HANGS:
            flag = self.alloc(4, "flag")
            self._driver.cuMemsetD32(flag, 0, 1)  # one word of zero
            return self._probe("spin", flag)
        if t == POISONS:
            return self._probe("poison", NOWHERE)
        return super().launch(module, entry, config, params)

    def _probe(self, entry: str, pointer: int) -> LaunchReport:
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "probe.cubin"
            source = Path(__file__).with_name("probe.cu")
            command = [find_nvcc().path, f"-arch={architecture()}", "-cubin", "-o", cubin, source]
            subprocess.run(command, check=True)
            module = self.load(cubin)
        return super().launch(module, entry, LaunchConfig((1, 1, 1), (1, 1, 1)), pointer.to_bytes(8, "little"))


def main() -> int:
    """Returns 0 when everything came as EXPECTED and nothing of the run is left."""
    with tempfile.TemporaryDirectory(prefix="fmha-silicon-") as name:
        root, home = Path(name) / "project", Path(name) / "work"
        _project(root, home)
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "fmha", "run-matrix", "--host", "local"], cwd=root, check=False)
        print(f"exit code {done.returncode} after {time.monotonic() - start:.1f} s")
        (path,) = (root / "results").glob("*.json")
        record = json.loads(path.read_text())
        if len(sys.argv) > 1:
            shutil.copy(path, sys.argv[1])
        (run,) = (home / "runs").iterdir()
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        for event in events:
            if event["kind"] in ("state", "waiting", "note"):
                print(json.dumps(event))
        workers = list(run.glob("workers/*/*.stderr"))
        print(f"{len(workers)} workers were started")
        statuses = {item["parameters"]["t"]: item["status"] for item in record["configurations"]}
        for item in record["configurations"]:
            print(item["id"], item["status"], f"{item['seconds']:.2f} s", *item["reasons"][:1])
        again = subprocess.run([sys.executable, "-m", "fmha", "attach", run.name], cwd=root, check=False)
        print(f"attached again: exit code {again.returncode}, {len(list((root / 'results').glob('*.json')))} record")
        apps = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(f"on the GPU afterwards: {apps.stdout.strip() or 'nobody'}")
        subprocess.run([sys.executable, "-m", "fmha", "doctor", "--host", "local"], cwd=root, check=False)
        return 0 if statuses == EXPECTED else 1


def copy_checkout(root: Path) -> None:
    """This checkout's files without its history."""
    here = Path(__file__).resolve().parents[2]
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "results", ".fmha")
    shutil.copytree(here, root, symlinks=True, ignore=ignored)


def _project(root: Path, home: Path) -> None:
    """This checkout as a repository of one commit, with a matrix.yaml for this machine."""
    copy_checkout(root)
    matrix = yaml.safe_load((root / "matrix.yaml").read_text())
    matrix["default_suite"] = "probe"
    matrix["suites"] = {"probe": {"axes": {"head_dim": [64], "t": list(EXPECTED), "s_k": [256]}}}
    matrix["limits"]["configuration_silence_seconds"] = SILENCE_SECONDS
    matrix["hosts"] = {
        "local": {
            "kind": "local",
            "device": "tests.remote.silicon:FaultyCudaDevice",
            "arch": architecture(),
            "folder": str(home),
            "python": sys.executable,
            "environment": {"setup": SETUP, "files": []},
            "gpus": {"nvidia_smi": "nvidia-smi", "locks": str(home / "locks")},
            "sync": "direct",
        }
    }
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *words], cwd=root, check=True, env=os.environ | {"LC_ALL": "C"})


if __name__ == "__main__":
    sys.exit(main())
