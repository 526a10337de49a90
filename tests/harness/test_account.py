"""The folder that fmha keeps for itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fmha.harness import account
from fmha.harness.errors import InfrastructureError, UserError


def test_it_is_the_accounts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(account.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    found = account.folder("judges")
    assert found == tmp_path / "caches" / "fmha" / "judges"
    assert found.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "no/absolute/path")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert account.folder("judges") == tmp_path / "home" / ".cache" / "fmha" / "judges"


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_one_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "cache"))
    account.folder("judges").chmod(mode)
    with pytest.raises(InfrastructureError, match="another account could write fmha's own folder"):
        account.folder("judges")


def test_a_link_and_anothers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "theirs")
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(InfrastructureError, match="or it is a link"):
        account.folder("judges")
    if os.geteuid() == 0:
        monkeypatch.setenv(account.VARIABLE, str(tmp_path / "theirs"))
        os.chown(tmp_path / "theirs", 65534, 65534)
        with pytest.raises(InfrastructureError, match="another account"):
            account.folder("judges")


def test_one_in_the_judged_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "checkout" / ".fmha"))
    with pytest.raises(InfrastructureError, match="lies in the checkout"):
        account.folder("judges", outside=tmp_path / "checkout")
    assert account.folder("judges", outside=tmp_path / "other")


def test_what_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match=r"fmha cannot keep what it makes: (File exists|Not a directory)"):
        account.folder("judges")


@pytest.mark.parametrize("link", [".fmha", ".fmha/runs"])
def test_a_link_in_the_checkout_leads_nobody_elsewhere(tmp_path: Path, link: str) -> None:
    (tmp_path / "theirs" / "runs").mkdir(parents=True)
    (tmp_path / "checkout" / Path(link).parent).mkdir(parents=True)
    (tmp_path / "checkout" / link).symlink_to(tmp_path / "theirs")
    with pytest.raises(UserError, match="it is a link"):
        account.in_checkout(tmp_path / "checkout", "runs")
    assert account.in_checkout(tmp_path, "runs") == tmp_path / ".fmha" / "runs"
