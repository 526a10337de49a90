"""What answers to `sbatch` at a site may be a script of the site's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.supervisor import slurm
from fmha.harness.supervisor.rundir import HostError

WISH = dict.fromkeys(("partition", "account", "qos", "gres", "time", "constraint", "exclude", "mem"), "") | {
    "cpus_per_task": None,
    "container_image": "",
}
RUN = f"20260101T000000Z-{'0' * 12}-{'0' * 8}"


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("4711", 4711), ("4711;cluster", 4711), ("Submitted batch job 4711", 4711),
        ("*** Maintenance on 2026-12-01 ***\nQuota: 12 of 100\n4711", 4711), ("4711\nHave a nice day", 4711),
        ("2026\n\n  budget: 7 h\n4711;cluster", 4711),
        ("*** no number ***", None), ("", None), ("job 4711 maybe", None),
    ],
)  # fmt: skip
def test_a_banner_is_no_refusal(said: str, number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "sbatch"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho banner >&2\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if number is not None:
        assert slurm.submit(WISH, RUN, 2, ["true"], tmp_path) == number
        return
    with pytest.raises(HostError, match="sbatch answers"):
        slurm.submit(WISH, RUN, 2, ["true"], tmp_path)
