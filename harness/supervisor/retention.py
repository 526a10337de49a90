"""What a host keeps of ended runs. After a run it removes old ones of the same person, and nobody else's.

A run stays whatever its age while it lives, while it is of a commit that a baseline was made of, and where it is
another's: another account's in any case, and on an account that several people share, another person's or machine's.
Beyond the number of runs that are kept, one that no client has fetched yet stays for `days` all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness.supervisor import environments, removal
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import RunDirectory, runs

DAY = 86400.0


@dataclass(frozen=True)
class Policy:
    """Nothing older than `days`, and no more than `runs` runs. `spare` are commits whose runs stay, `by` is whose runs
    these are."""

    days: float
    runs: int
    spare: frozenset[str]
    by: str

    @staticmethod
    def of(job: dict[str, Any]) -> Policy:
        """What a job says of keeping runs."""
        keep = job["keep"]
        return Policy(float(keep["days"]), int(keep["runs"]), frozenset(keep["spare"]), str(job["by"]))


def apply(directory: RunDirectory, policy: Policy, tell: Callable[[str], None]) -> None:
    """Removes what the policy does not keep, and says what that was. The run `directory` has itself come to its end."""
    old = time.time() - policy.days * DAY
    removed = _surplus([run for run in runs(directory.folder) if run.run != directory.run], policy, old)
    repository = Repository(directory.folder)
    sizes = [size for run in removed if (size := removal.remove(repository, run)) is not None]
    unused = [path for path in environments.names(directory.folder) if environments.last_used(path) < old]
    freed = [size for path in unused if (size := _removed(path)) is not None]
    if sizes:
        repository.prune()
    if sizes or freed:
        what = [f"{len(sizes)} run{'s' * (len(sizes) != 1)}"] * bool(sizes)
        what += [f"{len(freed)} environment{'s' * (len(freed) != 1)}"] * bool(freed)
        rule = f"keep: {{days: {policy.days:g}, runs: {policy.runs}}}"
        tell(f"removed {' and '.join(what)} from the host, {sum(sizes + freed) / 1e6:.1f} MB: the host has {rule}")


def _surplus(found: list[RunDirectory], policy: Policy, old: float) -> list[RunDirectory]:
    """Those to remove of the others, oldest first."""
    if len(found) < policy.runs and not any(_made(run) < old for run in found):
        return []
    mine = [run for run in found if _is_mine(run, policy)]
    many = mine[: max(0, len(mine) + 1 - policy.runs)]
    return [run for run in mine if _made(run) < old or (run in many and run.fetched())]


def _is_mine(run: RunDirectory, policy: Policy) -> bool:
    """Whether it is a run of the same person that has ended, of a commit that need not be spared."""
    try:
        job = run.job()
    except (OSError, ValueError):
        return False  # being made or being removed
    return job.get("by") == policy.by and job["sha"] not in policy.spare and run.status() is not None


def _made(run: RunDirectory) -> float:
    try:
        return (run.path / "job.json").stat().st_mtime
    except OSError:
        return time.time()


def _removed(environment: Path) -> int | None:
    """Removes an environment that nobody uses; its size, None where somebody does."""
    with environments.unused(environment) as free:
        if not free:
            return None
        return removal.remove_folder(environment)
