"""GEMMs compiled by nvcc from CUDA with inline PTX, one a kind and shape, under every schedule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha import emulator
from tests.compiled import nvcc
from tests.emulator.tcgen05_numbers import d_cells, instruction, random_operand

SOURCE = Path(__file__).parents[1] / "kernels" / "tcgen05_gemm.cu"
pytestmark = pytest.mark.nvcc

GEMMS = [
    # kind, element, M, N, .ws, pair
    ("f16", "f16", 64, 64, False, False),
    ("f16", "bf16", 128, 128, False, False),
    ("f16", "bf16", 64, 128, True, False),
    ("f16", "f16", 32, 64, True, False),
    ("tf32", "tf32", 128, 64, False, False),
    ("f8f6f4", "e4m3", 128, 64, False, False),
    ("mxf8f6f4", "e4m3", 128, 128, False, False),
    ("f16", "bf16", 256, 128, False, True),
    ("f16", "bf16", 128, 128, False, True),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    def compile_(**macros: object) -> emulator.Module:
        out = tmp_path_factory.mktemp("gemm") / "gemm.ptx"
        defines = [f"-D{name}={value}" for name, value in macros.items()]
        return emulator.load_ptx(nvcc(out, SOURCE, "-arch=sm_100a", "-ptx", *defines))

    return compile_


def operand(rng: np.random.Generator, name: str, rows: int):
    """Four MMAs of K: (rows x 128 bytes, values)."""
    parts = [random_operand(rng, name, rows) for _ in range(4)]
    return np.hstack([x for x, _ in parts]), np.hstack([v for _, v in parts])


def scale_blocks(codes: np.ndarray) -> np.ndarray:
    """Scales [128, 4] as tcgen05.cp.32x128b.warpx4 takes them: row r % 32, bytes 4 (r / 32) + k."""
    return codes.reshape(4, 32, 4).transpose(1, 0, 2).reshape(32, 16).astype(np.uint8)


@pytest.mark.parametrize(("kind", "name", "m", "n", "ws", "pair"), GEMMS)
def test_gemm(compiled, kind, name, m, n, ws, pair):
    scaled, ctas = kind.startswith("mx"), 1 + pair
    module = compiled(KIND=kind, ROWS=m, COLS=n, WS=int(ws), PAIR=int(pair), SCALED=int(scaled))
    rng = np.random.default_rng(1)
    (a, av), (b, bv) = operand(rng, name, m), operand(rng, name, n)
    scales = rng.integers(122, 130, (2, 128, 4))
    if scaled:
        block = av.shape[1] // 4
        av = av * (2.0 ** (scales[0] - 127)).repeat(block, 1)
        bv = bv * (2.0 ** (scales[1][:n] - 127)).repeat(block, 1)
    inputs = [a.tobytes(), b.tobytes(), b"".join(scale_blocks(x).tobytes() for x in scales)]
    for schedule in ("realistic", "early", "late", "random"):
        device = emulator.Device(schedule=schedule)
        buffers = [device.alloc(len(x), "input") for x in inputs] + [device.alloc(ctas * 128 * n * 4, "out")]
        for buffer, data in zip(buffers, inputs, strict=False):
            device.write(buffer.address, data)
        report = device.launch(
            module, "gemm", (ctas, 1, 1), (128, 1, 1),
            [*(x.address for x in buffers), instruction(kind, m, n, name, name)],
            shared_bytes=(m + n) // ctas * 128 + 1024 + 64, cluster=(ctas, 1, 1),
        )  # fmt: skip
        # The pair meets through an mbarrier alone, with no cluster barrier behind its initialisation and before it
        # allocates. The epilogue reads all 32 lanes of a warp, of which M = 64 writes 16.
        known = (
            {"mbarrier-race", "tmem-pair-alloc"} if pair else {"uninitialised-tmem"} if m == 64 and not ws else set()
        )
        assert {f.rule for f in report.findings} == known
        words = device.read(buffers[3].address, buffers[3].nbytes).view(np.float32).reshape(ctas, 128, n)
        cells = d_cells(m, n, ws=ws, pair=pair)
        got = words[cells[..., 0], cells[..., 1], cells[..., 2]]
        want = av @ bv.T
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
