"""What a host keeps of a pack that has not arrived whole."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.supervisor.rundir import HostError
from fmha.harness.supervisor.upload import FOLDER, Upload

PACK = random.Random(1).randbytes(100_000)
DIGEST = hashlib.sha256(PACK).hexdigest()


def feeding(data: bytes) -> Callable[[], bytes]:
    pieces = [data[at : at + 7_000] for at in range(0, len(data), 7_000)]
    return lambda: pieces.pop(0) if pieces else b""


def broken(data: bytes) -> Callable[[], bytes]:
    """As when the connection ends after `data`."""
    feed = feeding(data)

    def next_piece() -> bytes:
        piece = feed()
        if not piece:
            raise EOFError
        return piece

    return next_piece


def test_it_goes_on_where_it_broke(tmp_path: Path) -> None:
    with pytest.raises(EOFError), Upload(tmp_path, DIGEST, len(PACK)).taken(broken(PACK[:30_000])):
        raise AssertionError("that was not the whole")
    upload = Upload(tmp_path, DIGEST, len(PACK))
    assert upload.start == 30_000
    with upload.taken(feeding(PACK[30_000:])) as file:
        assert file.read() == PACK
    assert not [*(tmp_path / FOLDER).iterdir()]


def test_two_connections_may_bring_the_same(tmp_path: Path) -> None:
    with pytest.raises(EOFError), Upload(tmp_path, DIGEST, len(PACK)).taken(broken(PACK[:30_000])):
        raise AssertionError("that was not the whole")
    old, new = (Upload(tmp_path, DIGEST, len(PACK)) for _ in range(2))
    with old.taken(feeding(PACK[30_000:])) as one, new.taken(feeding(PACK[30_000:])) as other:
        assert one.read() == other.read() == PACK


@pytest.mark.parametrize(
    "data", [PACK[:-1], PACK[:-1] + b"?", PACK + b"?", b""], ids=["too short", "other bytes", "too long", "nothing"]
)
def test_what_is_not_the_pack_that_was_named_is_not_taken(data: bytes, tmp_path: Path) -> None:
    with (
        pytest.raises(HostError, match=r"is not the one that was named|is longer than was said"),
        Upload(tmp_path, DIGEST, len(PACK)).taken(feeding(data)),
    ):
        raise AssertionError("it is not the pack")
    assert Upload(tmp_path, DIGEST, len(PACK)).start == 0


@pytest.mark.parametrize("name", ["", "../../etc/passwd", DIGEST[:-1], DIGEST.upper()])
def test_a_pack_has_no_other_name_than_a_digest(name: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="what is no pack"):
        Upload(tmp_path, name, 1)
