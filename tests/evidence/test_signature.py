"""Baselines signed by real SSH keys, and what becomes of those that somebody has edited."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from fmha.harness import archive
from fmha.harness.archive import BASELINES, signature
from fmha.harness.errors import UserError
from fmha.harness.evidence import baseline
from tests.evidence.records import record
from tests.harness.support import git

LEAD = "lead@example.org"


def key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return key(tmp_path, "mine")


@pytest.fixture
def signed(tmp_path: Path, mine: Path) -> Path:
    """A baseline with the signature of the one who may sign."""
    folder = tmp_path / BASELINES
    folder.mkdir()
    path = archive.write(record(), folder, "emulator")
    (folder / signature.SIGNERS).write_text(f"{LEAD} {mine.with_suffix('.pub').read_text()}")
    signature.sign(path, mine)
    return path


def forge(path: Path) -> None:
    """Another number, and the checksum that goes with it."""
    data = json.loads(path.read_text())
    data["configurations"][0]["metrics"]["cosine"] = 0.9
    del data["checksum"]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path.write_text(json.dumps(data | {"checksum": hashlib.sha256(text.encode()).hexdigest()}))
    archive.read(path)  # the checksum holds: it tells damage, not forgery


def test_the_signer_is_named(signed: Path) -> None:
    assert signature.check(signed) == signature.Signed(LEAD, f"baseline emulator is signed by {LEAD}")
    assert baseline.load("emulator", signed.parent.parent).commit.sha == "0" * 40


def test_a_forged_baseline_with_its_checksum_redone_is_refused(signed: Path, tmp_path: Path) -> None:
    forge(signed)
    with pytest.raises(UserError, match="is not what was signed: it was edited"):
        baseline.load("emulator", tmp_path)
    with pytest.raises(UserError, match="is not what was signed: it was edited"):
        archive.find("baseline:emulator", tmp_path, tmp_path)


def test_a_forger_cannot_sign_himself_or_take_the_signature_away(signed: Path, tmp_path: Path) -> None:
    forge(signed)
    signature.sign(signed, key(tmp_path, "his"))
    with pytest.raises(UserError, match="is signed by nobody in allowed_signers"):
        signature.check(signed)
    signature.signature_of(signed).unlink()
    with pytest.raises(UserError, match="is not signed, and allowed_signers says who has to"):
        signature.check(signed)


def test_a_signature_made_for_something_else_is_none(signed: Path, mine: Path) -> None:
    signature.signature_of(signed).unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(mine), "-n", "git", str(signed)], check=True)
    with pytest.raises(UserError, match="is not what was signed"):
        signature.check(signed)


def test_an_unsigned_baseline_is_told_of(signed: Path) -> None:
    (signed.parent / signature.SIGNERS).unlink()
    assert "nobody can check" in signature.check(signed).note
    signature.signature_of(signed).unlink()
    assert signature.check(signed) == signature.Signed(None, "baseline emulator is not signed")


def test_what_cannot_sign_leaves_the_old_signature(signed: Path, tmp_path: Path) -> None:
    before = signature.signature_of(signed).read_bytes()
    with pytest.raises(UserError, match="cannot sign"):
        signature.sign(signed, tmp_path / "no such key")
    assert signature.signature_of(signed).read_bytes() == before
    assert sorted(path.name for path in signed.parent.iterdir()) == [
        "allowed_signers", "emulator.json", "emulator.json.sig",
    ]  # fmt: skip


def test_the_usual_key_is_the_one_that_git_signs_with(checkout: Path, mine: Path) -> None:
    git(checkout, "config", "user.signingkey", str(mine))
    git(checkout, "config", "gpg.format", "openpgp")
    assert signature.usual_key(checkout) is None
    git(checkout, "config", "gpg.format", "ssh")
    assert signature.usual_key(checkout) == mine


def test_of_several_baselines_the_suite_chooses(tmp_path: Path) -> None:
    folder = tmp_path / BASELINES
    folder.mkdir()
    archive.write(record(), folder, "emulator")
    assert baseline.of_suite("proven", "emulator", tmp_path) == "emulator"
    with pytest.raises(UserError, match="no baseline is of suite cover on emulator; there is emulator of suite proven"):
        baseline.of_suite("cover", "emulator", tmp_path)
    archive.write(record(seed=1), folder, "second")
    with pytest.raises(UserError, match="several baselines are of suite proven"):
        baseline.of_suite("proven", "emulator", tmp_path)
