"""`fmha bench` where it cannot run says in one line what is missing."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from fmha.harness.cli import bench
from fmha.harness.cli.bench import PEERS
from fmha.harness.errors import InfrastructureError
from tests.forked import fmha
from tests.pages import assert_shown


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed here")
def test_without_its_packages_it_says_so() -> None:
    done = fmha("bench")
    assert done.returncode == 3
    assert "triton" in done.stderr
    assert "pip install 'cuda-bindings" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_peer_that_there_is_not_is_wrong_usage() -> None:
    done = fmha("bench", "--peer", "fa3,fa9")
    assert done.returncode == 2
    assert "no peer 'fa9'; there are fa3, flashmla, flashinfer, cudnn, flash2, sdpa, triton" in done.stderr


@pytest.mark.parametrize(
    ("peer", "module", "package"),
    [
        ("fa3", "fa3_fwd_interface", "fa3_fwd"),
        ("flashmla", "flash_mla", "--no-deps sgl-flash-mla"),
        ("flashinfer", "flashinfer", "flashinfer-python"),
    ],
)
def test_a_peer_whose_module_is_not_at_hand_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, peer: str, module: str, package: str
) -> None:
    monkeypatch.setattr(bench, "_installed", lambda name: name != module)
    with pytest.raises(InfrastructureError) as refused:
        bench._run(Path("bench.json"), True, ["sdpa", peer], False)
    steps = f"pip install {package}, or leave that peer out"
    assert str(refused.value) == f"the peer {peer} needs the module {module}; {steps}"


def test_the_command_and_the_benchmark_name_the_same_peers() -> None:
    beside = pytest.importorskip("fmha.harness.bench.runs.beside", reason="torch is not installed")
    assert list(beside.PEERS) == list(PEERS)


@pytest.mark.parametrize(
    ("name", "mark", "made"),
    [
        ("understand/hopper", "run", "summary"),
        ("reference/hopper-times", "beside", "table"),
        ("reference/hopper-times", "host", "host_table"),
        ("understand/beside", "given", "given_table"),
        ("understand/beside", "latent", "latent_table"),
        ("understand/beside", "ways", "ways_table"),
    ],
)
def test_what_the_documentation_shows_is_of_the_record_that_it_names(
    repository: Path, name: str, mark: str, made: str
) -> None:
    beside = pytest.importorskip("fmha.harness.bench.runs.beside", reason="torch is not installed")
    page = repository / f"docs/{name}.md"
    (gpu,) = re.findall(rf"<!-- {mark}-(\w+) -->", page.read_text())
    record = json.loads((repository / "results" / f"beside-{gpu}.json").read_text())
    assert_shown(page, f"{mark}-{gpu}", getattr(beside, made)(record))
