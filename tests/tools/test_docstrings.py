"""What `make lint` says of public names without a docstring."""

from __future__ import annotations

from pathlib import Path

from tools.docstrings import lacking

SOURCE = '''
from typing import Protocol
import typer

class Silent:
    def told(self) -> None:
        """Says."""
    @property
    def mute(self) -> int:
        return 1

class Said(Protocol):
    """A protocol."""
    def first(self) -> None:
        """Says."""

class Does:
    """Has what the protocol says."""
    def first(self) -> None: ...
    def second(self) -> None: ...

class Heir(Does):
    """Of a class that says nothing of `second`."""
    def second(self) -> None: ...

def command(context: typer.Context) -> None: ...
def pytest_configure() -> None: ...
def _own() -> None: ...
if True:
    def hidden() -> None: ...
'''


def test_public_names_without_a_docstring_are_named(tmp_path: Path) -> None:
    for folder in ("harness/room", "harness/examples"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file.py").write_text(SOURCE)
    found = [line.split(" ") for line in lacking(tmp_path)]
    assert [name for _, name in found] == ["Silent", "Silent.mute", "Does.second", "Heir.second", "hidden"]
    assert found[0][0] == "harness/room/file.py:5"
