"""Another commit's word on its kernels is asked for in the sandbox, and held against what there can be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fmha.harness import isolate
from fmha.harness.judge.identity import installed_root
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.planner.offered_kernels import OfferError, offered

LIES = {
    "a path out of the tree": ("source='../../secret.cu'", "no file of the tree"),
    "a compiler of its own": ("compiler='evil.py:Evil evil'", "only an adapter has one"),
    "a folder elsewhere": ("flags=('-I/usr/../root',)", "lies outside the repository"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root, left_out = installed_root(), shutil.ignore_patterns("__pycache__", "*.so")
    for part in ("fmha", "harness", "emulator", "kernel"):
        shutil.copytree(root / part, tmp_path / part, symlinks=True, ignore=left_out)
    return tmp_path


def _says(tree: Path, change: str) -> None:
    path = tree / "harness" / "kernel_side" / "offer.py"
    path.write_text(path.read_text().replace("\ndef main() -> None:\n", f"\n{change}\n\n\ndef main() -> None:\n"))


def test_a_commit_says_what_it_has(tree: Path) -> None:
    assert offered(tree) == VARIANTS


@pytest.mark.skipif(isolate.isolation().mechanism == "none", reason=isolate.isolation().missing)
def test_what_says_so_reaches_nothing(tree: Path, tmp_path: Path) -> None:
    marker, secret = tmp_path / "written", tmp_path / "secret"
    secret.write_text("PRIVATE")
    _says(
        tree,
        f"try:\n    open({str(marker)!r}, 'w')\nexcept OSError:\n    pass\nprint(open({str(secret)!r}).read())",
    )
    with pytest.raises(OfferError) as caught:
        offered(tree)
    assert "PRIVATE" not in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES)
def test_a_lie_is_not_built(tree: Path, lie: str, words: str) -> None:
    _says(tree, f"import dataclasses\nVARIANTS = (dataclasses.replace(VARIANTS[0], {lie}),)")
    with pytest.raises(OfferError, match=words):
        offered(tree)


@pytest.mark.parametrize("said", ["print('[' * 100_000); raise SystemExit", "print('{}'); raise SystemExit"])
def test_what_is_no_offer_is_said(tree: Path, said: str) -> None:
    _says(tree, said)
    with pytest.raises(OfferError, match="cannot be used"):
        offered(tree)
