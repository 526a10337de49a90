"""What is called in place of our kernels: SDPA on this CPU, under the gates of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.config import load
from fmha.harness.contract.protocol import PeerCell, Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.gate import judge
from fmha.harness.judge.status import Status
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.subjects.peers import PEERS, Peer, PeerRefusedError, refusal
from tests.worker.numpy_device import NumpyDevice

PLAIN = Configuration(64, 5, 70, heads=3, batch=2)
PROBLEMS = (
    PLAIN,
    replace(PLAIN, kv="shared", head_dim=512),
    replace(PLAIN, mask="causal"),
    replace(PLAIN, mask="window", window=9),
    replace(PLAIN, mask="band", left=4, right=2),
    replace(PLAIN, data="steps"),
)
DEVICE: Any = NumpyDevice()


@pytest.mark.torch
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda item: item.id)
def test_sdpa_passes_the_gates_of_ours_and_one_with_another_scale_does_not(
    problem: Configuration, repository: Path
) -> None:
    peer, cell = Peer("sdpa"), PeerCell("sdpa", problem)
    inputs = peer.inputs(0, cell)
    expected = peer.reference(cell, inputs)
    variant = peer.variant_for(cell, "sm_90a")
    assert isinstance(variant, Variant)
    limits = load(repository, own=False).thresholds_for(cell)
    for given, status in ((inputs, Status.PASS), (replace(inputs, scale=1.02 * inputs.scale), Status.FAIL)):
        measured = peer.measure(cell, peer.run(DEVICE, None, variant, cell, given), expected)
        assert judge(measured, (), limits).status is status


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (replace(PLAIN, sink="finite"), "sdpa is not called with sink finite"),
        (replace(PLAIN, kv_lens="ragged"), "sdpa is not called with kv_lens ragged"),
        (replace(PLAIN, topk=4, s_sparse=9), "sdpa is not called with topk 4"),
        (replace(PLAIN, mask="causal", t=71), "rows see no key"),
    ],
)
def test_what_it_does_not_take(problem: Configuration, words: str, repository: Path) -> None:
    assert words in (refusal("sdpa", problem) or "")
    assert words in str(Peer("sdpa").variant_for(PeerCell("sdpa", problem), "sm_90a"))
    assert load(repository, own=False).with_peers((problem,), ("ours", "sdpa")) == (problem,)


def test_what_needs_a_gpu_says_so_elsewhere() -> None:
    cell = PeerCell("fa3", PLAIN)
    with pytest.raises(PeerRefusedError, match="fa3 runs on a GPU alone"):
        Peer("fa3").run(DEVICE, None, Any, cell, Peer("fa3").inputs(0, cell))  # type: ignore[arg-type]
    assert PEERS["fa3"].gpu


@pytest.mark.nvcc
def test_nothing_is_built(tmp_path: Path) -> None:
    variant = Peer("sdpa").variant_for(PeerCell("sdpa", PLAIN), "sm_90a")
    assert isinstance(variant, Variant)
    (tmp_path / "tree").mkdir()
    said: list[str] = []
    (built,) = build_variants(tmp_path / "tree", [variant], tmp_path / "cache", 60, 1, said.append)
    assert (built.ptx, built.cubin, built.error) == ("", "", None)
    assert said[-1] == "[1/1] sdpa_sm90a: called, not built"
