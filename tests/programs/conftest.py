"""Programs that nvcc builds once a session, and how they are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.cli import run
from tests.programs.program_rig import PTX_OF, Emulate, Told, built


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).parent / "cases.cu"
    return built(tmp_path_factory.mktemp("programs"), source, *(PTX_OF.format(arch) for arch in ("90a", "100a")))


@pytest.fixture
def emulate(capfd: pytest.CaptureFixture[str]) -> Emulate:
    def start(program: Path | str, *arguments: str, options: tuple[str, ...] = ()) -> Told:
        capfd.readouterr()
        code = run(["emulate", *options, "--", str(program), *arguments])
        out, err = capfd.readouterr()
        return Told(code, out.splitlines(), err)

    return start
