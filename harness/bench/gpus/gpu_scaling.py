"""How a run spreads over the GPUs of a host: `python -m fmha.harness.bench.gpus.gpu_scaling FOLDER`.

On 1, 2, 4 ... and all GPUs of this machine, each time through the command: a suite matrix, random cases, and regress,
whose pairs of builds are timed on one GPU. What is said of each comes from the run's own events:

matrix   seconds from the moment a run has its GPUs to the last result, without build, checkout and record
starts   the share of GPU time in it before a GPU's first configuration: Python, the driver's context
between  the share after that in which a GPU had no configuration, though it got another one
at end   the share that GPUs waited for the last of them

FOLDER, a new one, gets gpus.json with these figures, records/ and a log of each step. The exit code is 0 when every
step passed, at most 10% of the GPU time was idle at the end, and any number of GPUs gave the same numbers and hashes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from fmha.harness.bench.gpus.silicon_session import SiliconSession, project
from fmha.harness.judge.comparison.noise import LEAST_SEEDS

MOST_IDLE_AT_END = 0.1
SEEDS = ("--seed", "1")
LAST = ("result", "error")


@dataclass(frozen=True)
class Spread:
    """Of one run on `gpus` GPUs. Seconds, and shares of `gpus * matrix`."""

    what: str
    gpus: int
    configurations: int
    seconds: float  # of the command
    matrix: float
    work: float  # of the configurations, their sum
    balance: float  # of the least busy GPU's work to that of the busiest
    starts: float
    between: float
    at_end: float


def measured(what: str, gpus: int, seconds: float, events: Sequence[dict[str, Any]]) -> Spread:
    """The figures of a run from its event file. ValueError when another number of GPUs had a part in it."""
    busy: dict[str, float] = {}
    matrix = starts = between = at_end = 0.0
    count = 0
    for begun, ended, seats in _jobs(events):
        matrix += ended - begun
        for place, spans in seats.items():
            inside = sum(end - start for start, end in spans)
            busy[place] = busy.get(place, 0.0) + inside
            starts += spans[0][0] - begun
            between += spans[-1][1] - spans[0][0] - inside
            at_end += ended - spans[-1][1]
            count += len(spans)
        at_end += (gpus - len(seats)) * (ended - begun)  # of a job with fewer configurations than GPUs
    if len(busy) != gpus:
        raise ValueError(f"{what}: {len(busy)} GPUs had configurations, not {gpus}")
    shares = (value / (gpus * matrix) for value in (starts, between, at_end))
    balance = min(busy.values()) / max(busy.values())
    return Spread(what, gpus, count, seconds, matrix, sum(busy.values()), balance, *shares)


def _jobs(
    events: Sequence[dict[str, Any]],
) -> Iterator[tuple[float, float, dict[str, list[tuple[float, float]]]]]:
    """Of each job, guard and rest: when it began and ended, and when each GPU ran its configurations."""
    begun = next(event["at"] for event in events if event["kind"] == "state" and event["state"] == "run")
    told = [event for event in events if event["kind"] == "event"]
    for job in dict.fromkeys(event["job"] for event in told):
        seats: dict[str, list[tuple[float, float]]] = {}
        started: dict[str, float] = {}
        ended = begun
        for event in told:
            said = event["event"]
            if event["job"] != job:
                continue
            if said["event"] == "started":
                started[said["config"]] = event["at"]
            elif said["event"] in LAST:
                ended = event["at"]
                seats.setdefault(said.get("place", ""), []).append((started[said["config"]], ended))
        if seats:
            yield begun, ended, seats
        begun = next((e["at"] for e in told if e["job"] == job and e["event"]["event"] == "done"), ended)


def differing(records: Sequence[dict[str, Any]]) -> list[str]:
    """The configurations whose status or numbers, hash included, are not the same in all records."""
    said = [{item["id"]: (item["status"], item["metrics"]) for item in record["configurations"]} for record in records]
    names = dict.fromkeys(name for each in said for name in each)
    return [name for name in names if any(each.get(name) != said[0].get(name) for each in said)]


class Bench:
    """A project of this checkout, and what its host, this machine, is asked to run."""

    def __init__(self, session: SiliconSession, folder: Path, device: str, gpus: Mapping[str, Any]) -> None:
        self.session = session
        self.root, self._home = folder / "project", folder / "home"
        project(self.root, self._home, device)
        path = self.root / "matrix.yaml"
        settings = yaml.safe_load(path.read_text())
        host = settings["hosts"]["local"]
        host["gpus"] |= gpus
        host["protected"] = []  # the baseline is new here
        path.write_text(yaml.safe_dump(settings, sort_keys=False))
        self.commit("The GPUs of this machine")

    def commit(self, subject: str) -> None:
        """Commits all that is there."""
        git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
        subprocess.run([*git, "add", "."], cwd=self.root, check=True)
        subprocess.run([*git, "commit", "-q", "-m", subject], cwd=self.root, check=True)

    def fmha(self, name: str, *words: str) -> bool:
        """Whether it ended with 0."""
        command = [sys.executable, "-m", "fmha", *words]
        return self.session.run(name, command, float("inf"), self.root).code == 0

    def run(self, what: str, gpus: int, *words: str) -> tuple[Spread, dict[str, Any], bool]:
        """What a run said, its record, and whether it passed. ValueError when it left no record."""
        name = f"{what}-{gpus}"
        runs = self._runs()
        before = set((self.root / "results").glob("*.json"))
        passed = self.fmha(name, *words, "--host", "local", "--gpus", str(gpus), "--quiet")
        made = set((self.root / "results").glob("*.json")) - before
        if len(made) != 1:
            raise ValueError(f"{what} on {gpus} GPUs left no record: see {name}.log")
        (path,) = made
        (run,) = self._runs() - runs
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        shutil.copy(path, self.session.folder / "records" / f"{name}.json")
        return measured(what, gpus, self.session.steps[-1].seconds, events), json.loads(path.read_text()), passed

    def _runs(self) -> set[Path]:
        return {path.parent for path in (self._home / "runs").glob("*/events.jsonl")}

    def every(self, what: str, counts: Sequence[int], *words: str) -> tuple[list[Spread], list[str]]:
        """The run on so many GPUs each, and what is wrong with them."""
        done, wrong = [], []
        for gpus in counts:
            try:
                found = self.run(what, gpus, *words)
            except ValueError as error:
                wrong.append(str(error))
                continue
            done.append(found)
            if not found[2]:
                wrong.append(f"{what} on {gpus} GPUs did not pass: see {what}-{gpus}.log")
        spreads = [spread for spread, *_ in done]
        wrong += [
            f"{what} on {s.gpus} GPUs: {s.at_end:.1%} of their time was idle at the end"
            for s in spreads
            if not s.at_end <= MOST_IDLE_AT_END
        ]
        wrong += [f"{what}: {name} is not the same on all" for name in differing([record for _, record, _ in done])]
        return spreads, wrong


def _counts(nvidia_smi: str) -> list[int]:
    """1, 2, 4 ... and as many GPUs as there are."""
    listed = subprocess.run(
        [nvidia_smi, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    most = len(listed.stdout.split("\n")) - 1
    return sorted({most, *(1 << bit for bit in range(most.bit_length()))})


def _table(spreads: Sequence[Spread]) -> Iterator[str]:
    alone = {spread.what: spread for spread in spreads if spread.gpus == 1}
    yield f"{'':10}{'GPUs':>5}{'cases':>7}{'command':>9}{'matrix':>9}{'times':>7}{'work':>8}{'balance':>9}" + "".join(
        f"{name:>9}" for name in ("starts", "between", "at end")
    )
    for s in spreads:
        times = f"{alone[s.what].matrix / s.matrix:7.2f}" if s.what in alone else " " * 7
        yield (
            f"{s.what:10}{s.gpus:5}{s.configurations:7}{s.seconds:9.2f}{s.matrix:9.2f}{times}{s.work:8.2f}{s.balance:9.3f}"
            f"{s.starts:9.1%}{s.between:9.1%}{s.at_end:9.1%}"
        )


def main() -> int:
    """Times a run on growing numbers of GPUs, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m fmha.harness.bench.gpus.gpu_scaling", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, nargs="+", metavar="N", help="[default: 1, 2, 4 ... and all there are]")
    parser.add_argument("--suite", default="seed,cover-sm90", help="of the matrix  [default: %(default)s]")
    parser.add_argument("--filter", help="of the matrix: before=0 leaves out what takes more than 80 GB")
    parser.add_argument("--regress-suite", default="seed", help="[default: %(default)s]")
    parser.add_argument(
        "--cases", type=int, default=1050, help="drawn, of which some 500 are ours  [default: %(default)s]"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "emulator"))
    parser.add_argument("--nvidia-smi", default="nvidia-smi", help="what is asked for GPUs  [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=540.0, help="limit of all of it  [default: %(default)s]")
    given = parser.parse_args()
    folder = given.folder.resolve()
    (folder / "records").mkdir(parents=True)
    counts = given.gpus or _counts(given.nvidia_smi)
    gpus = {"nvidia_smi": given.nvidia_smi, "count": max(counts)}
    # Which way P goes is Blackwell's choice: of 1050 cases some 500 remain.
    random = ["--suite", "random", "--cases", str(given.cases), "--filter", "p=auto"]
    with tempfile.TemporaryDirectory(prefix="fmha-gpus-") as name:
        bench = Bench(SiliconSession(folder, given.seconds), Path(name), given.device, gpus)
        matrix = ["--suite", given.suite, *(("--filter", given.filter) if given.filter else ())]
        spreads, wrong = bench.every("matrix", counts, "run-matrix", *matrix, *SEEDS)
        for more in (
            bench.every("random", counts, "run-matrix", *random, *SEEDS),
            _regress(bench, counts, given.regress_suite),
        ):
            spreads += more[0]
            wrong += more[1]
    (folder / "gpus.json").write_text(json.dumps([asdict(spread) for spread in spreads], indent=1) + "\n")
    print(*_table(spreads), *wrong, sep="\n")
    return 1 if wrong else 0


def _regress(bench: Bench, counts: Sequence[int], suite: str) -> tuple[list[Spread], list[str]]:
    """Against a baseline of the same kernel, made here."""
    try:
        bench.run("baseline", max(counts), "run-matrix", "--suite", suite, *SEEDS)
    except ValueError as error:
        return [], [str(error)]
    accept = ("baseline", "accept", "latest", "--why", "to be compared with", "--seeds", str(LEAST_SEEDS))
    if not bench.fmha("accept", *accept):
        return [], ["regress: no baseline was made"]
    bench.commit("The baseline")
    return bench.every("regress", counts, "regress")


if __name__ == "__main__":
    sys.exit(main())
