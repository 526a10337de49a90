"""tcgen05.mma one after another: what the next reads, in D or as A from tensor memory, is what those before it wrote.

All values are small whole numbers, whose sums f32 holds exactly and whose upper halves are bf16 numbers: a model that
performs one MMA at a time gives the very bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import halves, mma_text
from tests.emulator.tcgen05_numbers import d_cells, instruction, k_major

K128 = k_major(128)
B_AT, SIZE, ROWS, K, WORDS = 65536, 131072, 128, 16, 8


@dataclass(frozen=True)
class Step:
    """`a`: the column of A in tensor memory, None for A in shared memory."""

    d: int
    n: int
    accumulate: bool = True
    a: int | None = None

    def text(self) -> str:
        return mma_text(
            ".cta_group::1.kind::f16", self.d, K128.descriptor(rig.BASE) if self.a is None else self.a,
            K128.descriptor(rig.BASE + B_AT), instruction("f16", ROWS, self.n, "bf16", "bf16"),
            a_tmem=self.a is not None, accumulate=self.accumulate,
        )  # fmt: skip

    def apply(self, tmem: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        if self.a is not None:
            a = number(np.ascontiguousarray(tmem[:, self.a : self.a + WORDS]).view(np.uint16))
        d = tmem[:, self.d : self.d + self.n]
        d[:] = (a @ b[: self.n].T + (d.view(np.float32) if self.accumulate else 0)).astype(np.float32).view(np.uint32)


def number(bf16: np.ndarray) -> np.ndarray:
    return (bf16.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def small(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.integers(-1, 2, (rows, K)).astype(np.float64)


def expect_model(steps: list[Step], schedule: str, warps: str = "") -> None:
    rng = np.random.default_rng(1)
    a, b = small(rng, ROWS), small(rng, 256)
    tmem = rng.integers(-8, 9, (ROWS, 512)).astype(np.float32).view(np.uint32)
    want = tmem.copy()
    for step in steps:
        step.apply(want, a, b)
    rows = [bf16(x).view(np.uint8).reshape(len(x), 2 * K) for x in (a, b)]
    shared = K128.place(rows[0], B_AT) + K128.place(rows[1], SIZE - B_AT)
    outcome = rig.run("\n".join(step.text() for step in steps), shared, tmem, warps=warps, schedule=schedule)
    assert set(outcome.rules) <= {"mma-unordered"}
    assert (outcome.tmem == want).all()


CHAINS = {
    "one accumulator, deeper than what is summed at once": [Step(64, 48, accumulate=k > 0) for k in range(12)],
    "started anew in between": [Step(64, 48), Step(64, 48), Step(64, 48, accumulate=False), Step(64, 48)],
    "accumulators that overlap": [Step(64, 48), Step(65, 48), Step(64, 48), Step(64, 64), Step(104, 16)],
    "two accumulators in turns": [Step(64, 48), Step(256, 48), Step(64, 48), Step(256, 48)],
    "A in its own D": [Step(64, 48, a=96), Step(64, 48, a=96), Step(64, 48)],
    "A in the D of those before": [Step(64, 48), Step(64, 48), Step(256, 48, a=80), Step(256, 48, a=80), Step(64, 16)],
    "A beside D, and then from it": [Step(64, 48, a=300), Step(64, 48, a=308), Step(128, 16, a=104)],
}


@pytest.mark.parametrize("schedule", ["realistic", "early", "late"])
@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_each_mma_sees_what_those_before_it_wrote(steps: list[Step], schedule: str) -> None:
    expect_model(steps, schedule)


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_mmas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = (64, 65, 72, 96, 128)
    steps = [
        Step(
            int(rng.choice(columns)),
            int(rng.choice((16, 24, 48))),
            bool(rng.integers(0, 4)),
            None if rng.integers(0, 3) else int(rng.choice(columns)),
        )
        for _ in range(10)
    ]
    expect_model(steps, "realistic")


def test_the_ctas_of_a_pair_chain_together() -> None:
    rng = np.random.default_rng(3)
    a, b = small(rng, 256), small(rng, 64)
    cells = d_cells(256, 64, pair=True)
    text = mma_text(
        ".cta_group::2.kind::f16", 64, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("f16", 256, 64, "bf16", "bf16"),
    )  # fmt: skip
    rows = [bf16(x).view(np.uint8).reshape(len(x), 2 * K) for x in (a, b)]
    shared = [
        K128.place(x, B_AT) + K128.place(y, SIZE - B_AT)
        for x, y in zip(halves(rows[0], True), halves(rows[1], True), strict=True)
    ]
    outcome = rig.run("\n".join([text] * 3), shared, pair=True)
    got = outcome.tmem[cells[..., 0], cells[..., 1], cells[..., 2] + 64].view(np.float32)
    assert (got == 3 * a @ b.T).all()
