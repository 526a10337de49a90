from __future__ import annotations

import hashlib
import json
import math
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fmha.harness import archive
from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import SCHEMA_VERSION, Parameters
from fmha.harness.config import parse_filter
from fmha.harness.contract.protocol import BuildResult, Configuration, FindingRecord, LaunchShape, Resources, Variant
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.hosts import HostProvenance, Machine
from fmha.harness.judge.identity import identity
from fmha.harness.judge.limits import FailedCheck
from fmha.harness.judge.status import Status
from fmha.harness.stages.archive import Circumstances, make_record
from fmha.harness.stages.outcome import Outcome, Step
from fmha.harness.stages.plan import Plan
from fmha.harness.stages.preflight import GitFacts
from tests.harness.support import GOOD, RACE

SHAPE = LaunchShape(128, 128, 4, 192, 1024)
VARIANT = Variant("hd64", "sm_100a", "kernel/a.cu", "entry", 64, "tmem", SHAPE, (("A", "1"),))
STARTED = datetime(2026, 11, 21, 3, 4, 5, 678, tzinfo=UTC)


def record(host: str = "emulator", configurations: int = 3) -> RunRecord:
    """A record with a pass, a failure full of numbers that JSON has no token for, and one that was not run."""
    steps = tuple(Step(Configuration(64, 1, index + 1), True, True, VARIANT) for index in range(configurations))
    wild = replace(GOOD, cosine=math.nan, max_error=math.inf, row_sum_error=-math.inf)
    odd = FindingRecord("rule", "warning", "lone \ud800 surrogate", {"ratio": math.inf, "list": [math.nan, {"x": 1.5}]})
    outcomes = [Outcome(step, Status.PASS, measurement=GOOD, seconds=0.5) for step in steps]
    outcomes[0] = Outcome(steps[0], Status.NOT_RUN, ("no kernel",))
    outcomes[1] = Outcome(
        steps[1],
        Status.FAIL,
        ("cosine is nan",),
        (FailedCheck("cosine", math.nan, 0.9, "at least"),),
        wild,
        (RACE, odd),
        {"warp_instructions": 5, "rate": math.nan},
        0.25,
    )
    built = BuildResult(VARIANT, "", "", Resources(128, 0, 0, 0, 1024), "ab" * 32, "nvcc 13.0", ("-O3",), 1.0, False)
    run = Circumstances(
        git=GitFacts(Path("/r"), "0123456789abcdef" * 2 + "01234567", None, tuple(f"f{n}" for n in range(150))),
        host=HostProvenance(host, "emulator", Machine("a CPU", 2, "Linux"), {"python": "3.11", "torch": None}),
        plan=Plan("proven", parse_filter(["hd=64"]), steps),
        seed=0,
        schedule="realistic",
        matrix_sha256="c" * 64,
        judge=identity("c" * 64),
        apart=None,
        alike=None,
        builds={"hd64": built},
        durations={"build": 1.25},
        started=STARTED,
        finished=STARTED,
    )
    return make_record(run, list(reversed(outcomes)))


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """The document with the checksum that belongs to it."""
    rest = {key: value for key, value in data.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return rest | {"checksum": hashlib.sha256(text.encode()).hexdigest()}


def refuse(token: str) -> Any:
    raise AssertionError(token)


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    original = record()
    path = archive.write(original, tmp_path / "new" / "results")
    assert path.name == "20261121T030405Z-0123456789ab-emulator.json"
    again = archive.read(path)
    assert archive.dumps(again) == archive.dumps(original) == path.read_text()
    assert [item.id for item in again.configurations] == ["hd64_t1_sk1", "hd64_t1_sk2", "hd64_t1_sk3"]
    assert again.commit.dirty_count == 150
    assert len(again.commit.dirty_files) == 100
    assert again.verdict.word == "FAIL"
    assert again.verdict.counts == {Status.PASS: 1, Status.FAIL: 1, Status.NOT_RUN: 1}
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_numbers_that_json_has_no_token_for(tmp_path: Path) -> None:
    path = archive.write(record(), tmp_path)
    failed = json.loads(path.read_text(), parse_constant=refuse)["configurations"][1]
    assert failed["metrics"]["cosine"] == "nan"
    assert failed["metrics"]["max_error"] == "inf"
    assert failed["metrics"]["row_sum_error"] == "-inf"
    assert failed["failed_checks"][0]["value"] == "nan"
    assert failed["stats"]["rate"] == "nan"
    assert failed["findings"][1]["where"] == {"ratio": "inf", "list": ["nan", {"x": 1.5}]}
    metrics = archive.read(path).configurations[1].metrics
    assert metrics is not None
    assert math.isnan(metrics.cosine)
    assert metrics.max_error == math.inf


def test_numbers_keep_every_bit(tmp_path: Path) -> None:
    read = archive.read(archive.write(record(), tmp_path)).configurations[2].metrics
    assert read is not None
    assert read == GOOD


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    names = [archive.write(record(), tmp_path).name for _ in range(3)]
    stem = "20261121T030405Z-0123456789ab-emulator"
    assert names == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]


def test_writers_at_the_same_moment_all_keep_their_record(tmp_path: Path) -> None:
    threads = [threading.Thread(target=archive.write, args=(record(), tmp_path)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = list(tmp_path.iterdir())
    assert len(files) == 8
    assert {path.read_text() for path in files} == {archive.dumps(record())}


@pytest.mark.parametrize("host", ["../up", "a b", "a/b;$(c)"])
def test_a_hosts_name_stays_inside_the_file_name(tmp_path: Path, host: str) -> None:
    path = archive.write(record(host), tmp_path)
    assert path.parent == tmp_path
    assert archive.read(path).host.name == host


def test_the_schema_is_current_and_holds(repository: Path, tmp_path: Path) -> None:
    checked_in = (repository / "harness" / "archive" / "schema.json").read_text()
    assert checked_in == archive.schema(), "run python -m fmha.harness.archive"
    schema = json.loads(checked_in)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    document = json.loads(archive.dumps(record()))
    validator.validate(document)
    document["configurations"][0]["status"] = "green"
    assert not validator.is_valid(document)


VERSION = f'"schema_version": {SCHEMA_VERSION}'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (VERSION, f'"schema_version": {SCHEMA_VERSION + 1}', f"newer than {SCHEMA_VERSION}; update fmha"),
        (VERSION, '"schema_version": 0', "is no run record: schema_version"),
        ('"passed": 1', '"passed": 2', "does not match its checksum: it was damaged or edited"),
        ('"rate": "nan"', '"rate": NaN', "is not JSON: NaN is no JSON number"),
        ('"counts": {', '"counts": ', "is not JSON"),
    ],
)
def test_a_reader_refuses_what_is_no_record(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = archive.write(record(), tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        archive.read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["configurations"][1].update(status="green"), "is no run record: configurations.1.status"),
        (lambda data: data["selection"].update(suite=4), "is no run record: selection.suite"),
        (lambda data: data["selection"].pop("suite"), "is no run record: selection.suite"),
    ],
)
def test_a_reader_refuses_what_another_program_wrote(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    """The checksum is right; what it covers is not."""
    path = archive.write(record(), tmp_path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(sealed(data)))
    with pytest.raises(UserError) as caught:
        archive.read(path)
    assert words in str(caught.value)


def test_the_checksum_is_what_the_page_says(tmp_path: Path) -> None:
    data = json.loads(archive.write(record(), tmp_path).read_text())
    assert data == sealed(data)


def test_the_layout_does_not_matter(tmp_path: Path) -> None:
    path = archive.write(record(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    assert archive.dumps(archive.read(path)) == archive.dumps(record())


def test_every_version_there_has_been_is_read(tmp_path: Path) -> None:
    files = sorted((Path(__file__).parent / "archive").glob("version-*.json"))
    assert [path.stem for path in files] == [f"version-{number}" for number in range(1, SCHEMA_VERSION)]
    for path in files:
        old = archive.read(path)
        assert old.schema_version == SCHEMA_VERSION
        assert old.verdict.word == "PASS"
        first = old.configurations[0]
        assert (first.id, first.parameters.s_k) == ("hd64_t1_sk128", 128)
        assert first.metrics is not None
        assert first.metrics.cosine == json.loads(path.read_text())["configurations"][0]["metrics"]["cosine"]
        assert archive.read(archive.write(old, tmp_path)).configurations == old.configurations


def test_a_reader_survives_cut_and_strange_files(tmp_path: Path) -> None:
    path = archive.write(record(), tmp_path)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"\xff\xfe", b"[" * 100_000, b"[]", b"null"):
        path.write_bytes(content)
        with pytest.raises(UserError):
            archive.read(path)
    with pytest.raises(UserError, match="cannot be read"):
        archive.read(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting needs privileges")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_no_trace(small_disk: Path) -> None:
    large = record(configurations=300)
    with pytest.raises(
        InfrastructureError, match="disk: cannot archive: No space left on device; free space"
    ) as caught:
        archive.write(large, small_disk)
    assert str(small_disk) in str(caught.value)
    assert list(small_disk.iterdir()) == []
    archive.write(record(), small_disk)


def test_a_write_that_stops_half_way_leaves_no_trace(tmp_path: Path, repository: Path) -> None:
    """The same where nothing can be mounted: the process may not write files of more than 4 KiB."""
    program = (
        "import signal, sys; from pathlib import Path; from fmha.harness import archive;"
        "from tests.harness.test_archive import record;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); archive.write(record(configurations=50), Path(sys.argv[1]))"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    command = [sys.executable, "-B", "-c", program, str(tmp_path)]
    ran = subprocess.run(command, cwd=repository, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert "InfrastructureError" in ran.stderr
    assert "cannot archive: File too large" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        archive.write(record(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_preparing_proves_that_a_file_can_be_made(tmp_path: Path) -> None:
    archive.prepare(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    with pytest.raises(InfrastructureError, match="cannot archive"):
        archive.prepare(Path("/proc/nowhere"))


def test_fields_of_ones_own_may_have_the_names_of_attentions() -> None:
    """A kernel with a field `mask` that is a number ran, and then had no record."""
    given = {"kernel": "scores", "mask": 0, "head_dim": "wide", "rows": 3}
    assert Parameters.model_validate(given).model_dump() == given
    assert Parameters.model_validate({"head_dim": 64, "mask": "causal"}).family == "hd 64"
