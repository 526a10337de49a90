"""A configuration of an archived run, as it was run there: its commit, seed and schedule."""

from __future__ import annotations

from pathlib import Path

from fmha.harness.archive.find_run import find
from fmha.harness.archive.record import ConfigurationRecord, RunRecord
from fmha.harness.errors import UserError
from fmha.harness.judge.schedules import parse_schedule
from fmha.harness.see.configurations import of_configuration
from fmha.harness.see.differing import tree_of
from fmha.harness.see.launch_subject import LaunchSubject


def archived(root: Path, run: str, name: str) -> LaunchSubject:
    """Of the checkout `root` and its archive. Raises UserError for a run or a configuration that is not there."""
    record = find(run, root / "results", root).record
    wanted = next((item for item in record.configurations if item.id == name), None)
    if wanted is None:
        raise UserError(f"{name}: the run {run} has no such configuration", next_step="fmha results show lists them")
    return of_configuration(
        tree_of(root, record.commit.sha, name),
        name,
        schedule=schedule_of(record, wanted),
        seed=record.selection.seed,
    )


def schedule_of(record: RunRecord, item: ConfigurationRecord) -> str:
    """The first schedule that showed a finding, or the run's first; random ones with their seed."""
    shown = [str(f.where["schedule"]) for f in item.findings if "schedule" in f.where]
    first = (shown or record.selection.schedule.split(","))[0]
    name, seed = parse_schedule(first, record.selection.seed)
    return f"random:{seed}" if name == "random" else name
