"""`fmha bench` where it cannot run says in one line what is missing."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from fmha.harness.cli.bench import PEERS
from tests.forked import fmha
from tests.pages import assert_shown


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed here")
def test_without_its_packages_it_says_so() -> None:
    done = fmha("bench")
    assert done.returncode == 3
    assert "triton" in done.stderr
    assert "fmha[cuda,bench]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_peer_that_there_is_not_is_wrong_usage() -> None:
    done = fmha("bench", "--peer", "fa3,fa9")
    assert done.returncode == 2
    assert "no peer 'fa9'; there are fa3, cudnn, flash2, sdpa" in done.stderr


def test_the_command_and_the_benchmark_name_the_same_peers() -> None:
    beside = pytest.importorskip("fmha.harness.bench.beside", reason="torch is not installed")
    assert list(beside.PEERS) == list(PEERS)


@pytest.mark.parametrize(("mark", "made"), [("run", "summary"), ("beside", "table"), ("host", "host_table")])
def test_what_the_documentation_shows_is_of_the_record_that_it_names(repository: Path, mark: str, made: str) -> None:
    beside = pytest.importorskip("fmha.harness.bench.beside", reason="torch is not installed")
    page = repository / "docs/understand/hopper.md"
    (gpu,) = re.findall(rf"<!-- {mark}-(\w+) -->", page.read_text())
    record = json.loads((repository / "results" / f"beside-{gpu}.json").read_text())
    assert_shown(page, f"{mark}-{gpu}", getattr(beside, made)(record))
