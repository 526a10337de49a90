from __future__ import annotations

import gzip
import json
import math
import os
import re
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from fmha.harness import account, archive
from fmha.harness.archive import Index, prune
from fmha.harness.archive import index as index_module
from fmha.harness.archive.index import index_file
from fmha.harness.archive.record import SCHEMA_VERSION
from fmha.harness.errors import FmhaError, UserError
from tests.evidence.records import IDS, STARTED, archived, measured, record
from tests.harness.support import RACE, git

VERSION = f'"schema_version": {SCHEMA_VERSION}'


def names(folder: Path) -> list[str]:
    with Index(folder) as index:
        return [row.name for row in index.runs()]


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    paths = archived(tmp_path, 3)
    with Index(tmp_path) as index:
        rows = index.runs()
        assert [row.name for row in rows] == [path.name for path in reversed(paths)]
        assert rows[0].started == STARTED + timedelta(minutes=2)
        assert (rows[0].sha, rows[0].word, rows[0].passed, rows[0].total) == (f"{2:040x}", "PASS", 2, 2)
        assert index.runs(host="moon") == []
        assert [row.name for row in index.runs(sha=f"{1:040x}")] == [paths[1].name]


def test_a_history_has_every_bit_of_every_run(tmp_path: Path) -> None:
    archive.write(record(outcomes={IDS[0]: measured(cosine=0.999_998_5, output_hash="ab" * 32)}), tmp_path)
    archive.write(record(minutes=1, outcomes={IDS[0]: measured(cosine=math.nan, max_error=math.inf)}), tmp_path)
    archive.write(record(minutes=2, outcomes={IDS[0]: {"measurement": None, "findings": (RACE,)}}), tmp_path)
    with Index(tmp_path) as index:
        newest, middle, oldest = index.history(IDS[0])
        assert index.history("hd64_t5_sk5") == []
    assert (oldest.metrics["cosine"], oldest.hash) == (0.999_998_5, "ab" * 8)
    assert middle.metrics["cosine"] is None
    assert middle.metrics["max_error"] == math.inf
    assert (newest.hazards, newest.hash, newest.metrics["cosine"]) == (1, "", None)


def test_what_was_judged_leniently_is_marked(tmp_path: Path) -> None:
    """The run where any of its configurations was, a point of a history where that one was."""
    archive.write(record(outcomes={IDS[0]: {"stats": {"profile": "lenient"}}}), tmp_path)
    archive.write(record(minutes=1), tmp_path)
    with Index(tmp_path) as index:
        assert [row.lenient for row in index.runs()] == [False, True]
        assert [row.lenient for row in index.history(IDS[0])] == [False, True]
        assert [row.lenient for row in index.history(IDS[1])] == [False, False]


def test_the_index_follows_its_files(tmp_path: Path) -> None:
    paths = archived(tmp_path, 3)
    assert len(names(tmp_path)) == 3
    paths[0].unlink()
    paths[1].write_text(archive.dumps(record(sha="f" * 40)))
    archive.write(record(minutes=9), tmp_path)
    with Index(tmp_path) as index:
        assert {row.sha for row in index.runs()} == {"f" * 40, f"{2:040x}", "0" * 40}
        assert len(index.history(IDS[0])) == 3


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(tmp_path, 3)
    names(tmp_path)
    opened: list[Path] = []
    monkeypatch.setattr(index_module, "read", lambda path: opened.append(path) or archive.read(path))
    new = archive.write(record(minutes=9), tmp_path)
    assert len(names(tmp_path)) == 4
    assert opened == [new]


def test_files_that_are_no_runs_are_named_and_skipped(tmp_path: Path) -> None:
    good, cut, edited, newer = archived(tmp_path, 4)
    cut.write_bytes(cut.read_bytes()[:100])
    edited.write_text(edited.read_text().replace('"passed": 2', '"passed": 1'))
    newer.write_text(newer.read_text().replace(VERSION, '"schema_version": 99'))
    (tmp_path / "bench-h200.json").write_text("{}")  # of another kind: not the archive's
    with Index(tmp_path) as index:
        assert [row.name for row in index.runs()] == [good.name]
        found = {item.name: item.error for item in index.unreadable()}
    assert set(found) == {cut.name, edited.name, newer.name}
    assert "is not JSON" in found[cut.name]
    assert "checksum" in found[edited.name]
    assert "newer than" in found[newer.name]


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    archived(tmp_path, 2)
    before = names(tmp_path)
    index_file(tmp_path).write_bytes(damage)
    assert names(tmp_path) == before
    with sqlite3.connect(index_file(tmp_path)) as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (2,)


def test_an_index_that_is_damaged_inside_is_made_anew_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first page is whole, so that it opens."""
    archived(tmp_path, 3)
    before = names(tmp_path)
    path = index_file(tmp_path)
    path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"\xff"))
    assert names(tmp_path) == before
    opened: list[Path] = []
    monkeypatch.setattr(index_module, "read", lambda path: opened.append(path) or archive.read(path))
    assert names(tmp_path) == before
    assert opened == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"seed": 0', '"seed": 1e999', "checksum"),
        (VERSION, '"schema_version": []', "is no run record"),
        (VERSION, '"schema_version": "5"', "is no run record"),
        ('"seed": 0', f'"seed": {10**30}', "too large"),
        ('"started": "2026', '"started": "0000', "is no run record"),
        ('"started": "2026-11-21T03:04:05Z"', '"started": "0001-01-01T00:00:00+14:00"', "too large"),
    ],
)
def test_values_that_no_run_has_stop_nothing(tmp_path: Path, old: str, new: str, words: str) -> None:
    good, odd = archived(tmp_path, 2, lambda number: record(sha=f"{number:040x}"))
    text = odd.read_text()
    assert old in text
    if "checksum" not in words:  # version 1 had none, so that only the value is wrong
        text = re.sub(VERSION, '"schema_version": 1', text)
        text = re.sub(r',\n"checksum": "[0-9a-f]+"', "", text)
        old = old.replace(VERSION, '"schema_version": 1')
    odd.write_text(text.replace(old, new))
    with Index(tmp_path) as index:
        assert [row.name for row in index.runs()] == [good.name]
        (found,) = index.unreadable()
    assert (found.name, words in found.error) == (odd.name, True), found


def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    archived(tmp_path, 2)
    names(tmp_path)
    with sqlite3.connect(index_file(tmp_path)) as database:
        database.execute("PRAGMA user_version = 999")
        database.execute("DROP TABLE numbers")
    with Index(tmp_path) as index:
        assert len(index.history(IDS[0])) == 2


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert names(tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()


def test_an_account_without_a_folder_has_it_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(tmp_path, 2)
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("no folder")
    assert len(names(tmp_path)) == 2


ENDLESS = """
CREATE VIEW runs AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
SELECT x AS name, 1 AS size, 1 AS mtime_ns, NULL AS error, 1.0 AS started, 'a' AS sha, 0 AS dirty, 'h' AS host,
 'k' AS kind, 's' AS suite, '' AS filter, 0 AS seed, 's' AS schedule, 'PASS' AS word, 1 AS passed, 1 AS total FROM c;
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("brought", ["queries that never end", "a link"])
def test_an_index_that_a_commit_brings_is_not_opened(tmp_path: Path, brought: str) -> None:
    """Beside the records, where it lay before: it could have rows that no file has, or lead out of the checkout."""
    folder, place = tmp_path / "results", tmp_path / "results" / ".index.sqlite3"
    archived(folder, 2)
    if brought == "a link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        with sqlite3.connect(place) as database:
            database.executescript(f"{ENDLESS}PRAGMA user_version = {index_module._VERSION};")
    assert len(names(folder)) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_only_so_many_indexes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MOST_INDEXES", 2)
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "cache"))
    folders = [tmp_path / str(number) for number in range(4)]
    for number, folder in enumerate(folders):
        archived(folder, 1)
        names(folder)
        os.utime(index_file(folder), (number, number))
    assert [index_file(folder).exists() for folder in folders] == [False, False, True, True]


def test_compressed_runs_are_runs(tmp_path: Path) -> None:
    archived(tmp_path, 3)
    with Index(tmp_path) as index:
        rows = prune.prunable(index, keep=1, older_than=None, now=STARTED)
    saved = prune.compress(tmp_path, rows)
    assert saved > 0
    assert sorted(path.suffix for path in tmp_path.glob("2*")) == [".gz", ".gz", ".json"]
    with Index(tmp_path) as index:
        assert len(index.runs()) == 3
        assert len(index.history(IDS[1])) == 3
    packed = next(tmp_path.glob("*.gz"))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match="is not whole"):
        archive.read(packed)
    packed.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UserError, match="is no run record"):
        archive.read(packed)


def test_a_name_that_was_compressed_is_not_given_again(tmp_path: Path) -> None:
    path = archive.write(record(), tmp_path)
    path.rename(f"{path}.gz")
    assert archive.write(record(), tmp_path).name == path.name.replace(".json", "-2.json")


def test_what_may_be_pruned(tmp_path: Path) -> None:
    archived(tmp_path, 5)
    archived(tmp_path, 2, lambda number: record(host="b200", minutes=number))
    with Index(tmp_path) as index:
        now = STARTED + timedelta(days=10)
        assert len(prune.prunable(index, keep=2, older_than=None, now=now)) == 3
        assert prune.prunable(index, keep=2, older_than=timedelta(days=10), now=now) == []
        rows = prune.prunable(index, keep=0, older_than=timedelta(days=9), now=now)
    prune.remove(tmp_path, rows)
    prune.remove(tmp_path, rows)
    assert names(tmp_path) == []


def test_runs_are_found_by_what_people_call_them(tmp_path: Path, checkout: Path) -> None:
    results = checkout / "results"
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    shas = (checkout / ".git" / "logs" / "HEAD").read_text().splitlines()
    first, second = (line.split()[1] for line in shas[-2:])
    a = archive.write(record(sha=first), results)
    b = archive.write(record(sha=second, minutes=1), results)
    c = archive.write(record(sha=second, minutes=2, host="b200"), results)
    late = record(sha=first, minutes=-1)
    selection = late.selection.model_copy(update={"schedule": "late"})
    d = archive.write(late.model_copy(update={"selection": selection}), results)
    (results / "baselines").mkdir()
    (results / "baselines" / "emulator.json").write_text(a.read_text())
    git(checkout, "branch", "topic/first", first)
    for wanted, path in {
        "latest": c,
        "topic/first": a,
        "HEAD": c,
        "HEAD~1": a,
        "main@emulator": b,
        "@emulator": b,
        "@:late": d,
        "HEAD~1@:late": d,
        "@emulator:late": d,
        "HEAD~1@emulator:realistic": a,
        second[:9]: c,
        a.name: a,
        a.stem: a,
        a.name[:16]: a,
        str(b): b,
        "baseline:emulator": results / "baselines" / "emulator.json",
    }.items():
        assert archive.find(wanted, results, checkout).path == path, wanted


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("nothing", "no run is known as 'nothing'; name a file"),
        ("HEAD@moon", "no run of commit HEAD on moon yet; fmha results ls"),
        ("@moon", "no run archived on moon yet"),
        ("@:late", "no run archived under schedule late yet"),
        ("baseline:moon", "no baseline is named 'moon'; there is none"),
        ("20261121T03", "is the start of 2 runs; add to it"),
        ("--help", "no run is known as '--help'"),
        ("./none.json", "cannot be read: No such file"),
        ("topic/none", "no run is known as 'topic/none'"),
    ],
)
def test_what_is_not_found_is_said_in_one_line(checkout: Path, wanted: str, words: str) -> None:
    archived(checkout / "results", 2)
    with pytest.raises(UserError) as caught:
        archive.find(wanted, checkout / "results", checkout)
    assert words in str(caught.value)


def test_a_damaged_run_that_is_named_says_what_is_wrong_with_it(checkout: Path) -> None:
    (path,) = archived(checkout / "results", 1)
    path.write_text("{")
    with pytest.raises(FmhaError, match="is not JSON"):
        archive.find(path.stem, checkout / "results", checkout)


def test_a_record_of_an_unknown_shape_keeps_its_axes(tmp_path: Path) -> None:
    path = archive.write(record(), tmp_path)
    data = json.loads(path.read_text())
    data["configurations"][0]["parameters"] |= {"sink": "mixed", "kv_lens": [3, 4]}
    path.write_text(archive.dumps(archive.RunRecord.model_validate_json(json.dumps(data))))
    assert archive.read(path).configurations[0].parameters.model_dump()["kv_lens"] == [3, 4]
