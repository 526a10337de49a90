"""scripts/environment.sh for real, on a loopback host: `python -m tests.remote.environment`.

Two runs on the emulator there. The first builds the environment, packages and the emulator's core, from pip's index as
the PIP_ variables here configure it; the second, of another commit with the same lock file, uses it again. It takes
minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.harness.support import git
from tests.remote.conftest import make_template
from tests.remote.server import client_config, serving

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fmha-remote-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with serving(folder / "server") as server:
            root = make_template(folder, REPOSITORY, server, whole=True)
            config = client_config(server, folder / "ssh")
            _use_the_script(root)
            for _ in range(2):
                git(root, "commit", "-q", "-a", "--allow-empty", "-m", "next")
                start = time.monotonic()
                _command(root, config)
                print(f"{time.monotonic() - start:.0f} s", flush=True)


def _use_the_script(root: Path) -> None:
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    host = matrix["hosts"]["real"]
    del host["environment"]
    host["env"] = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))


def _command(root: Path, config: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "fmha", "run-matrix", "--host", "real", "--suite", "proven"],
        cwd=root,
        env=os.environ | {"FMHA_SSH_CONFIG": str(config)},
        check=True,
    )


if __name__ == "__main__":
    main()
