"""`fmha diag` and `fmha budget` over one of our kernels: what they say is what docs/understand/kernel.md says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fmha.emulator.debug.observe import ACCESSES, BARRIERS, OPERANDS, words
from fmha.harness.errors import UserError
from fmha.harness.see import budget, diagrams
from fmha.harness.see.budget import ARCHITECTURES, Needs, occupancy

pytestmark = pytest.mark.xdist_group("see")


def test_tensor_memory(ours):
    shown = diagrams.tmem(ours)
    text = "\n".join(shown.lines)
    assert "S0: 128 x 128" in text
    assert "columns 256-319" in text
    assert "O = P0 x v" in text
    assert "S0 = q x k; [0,0] in (0, 0), [0,1] in (0, 1), [1,0] in (1, 0)" in text
    assert "(thread, register) -> row + 128 * column of S0: (128,32):(1,128)" in text
    names = [t.text for t in ElementTree.fromstring(shown.svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"S0", "S1", "O"} <= set(names)


def test_shared_memory_in_cutes_notation(ours):
    """The layout of P that CuTe's make_smem_layout_a gives for an A of 128 x 128, without bank conflicts."""
    text = "\n".join(diagrams.smem(ours).lines)
    assert "P0: A of O, 128 x 128 bf16, K-major" in text
    assert "as MMAs read it: S<3,4,3> o ((128,16),1,(4,2)):((64,1),0,(16,8192))" in text
    assert "TiledCopy, (thread, value) -> row + 128 * k: (128,128):(1,128)" in text
    assert re.search(r"softmax_role.cuh:\d+: 128 x store of 16 bytes, 512 passes of at least 512 \(1.00 times\)", text)
    assert "row 1: 1 0 3 2 5 4 7 6" in text


def test_every_byte_of_an_operand_that_a_copy_brought_is_one_that_the_copy_wrote(ours):
    """Two parts of the machine that compute swizzles each for itself agree, element by element: K as TMA writes it and
    as the MMA reads it."""
    log, _ = diagrams.recorded(ours, OPERANDS | ACCESSES | BARRIERS)
    memory = diagrams.first_cta(log)
    product = next(p for p in memory.products if p.name == "S0")
    written = {}
    for box in memory.boxes:
        if log.buffer(box["address"]) != "k" or box["start"][1] != 0:
            continue
        for byte, at, nbytes in words(box["pieces"]).reshape(-1, 3).tolist():
            for b in range(0, nbytes, 2):
                n = byte + b
                row = n // box["row_bytes"] + box["start"][1]
                written[at + b] = (row, n % box["row_bytes"] // 2 + box["start"][0])
    for (row, k), at in np.ndenumerate(product.b.at):
        assert written[int(at)] == (row, k)


def test_barriers(ours):
    shown = diagrams.barriers(ours)
    text = "\n".join(shown.lines)
    assert re.search(r"count 128, \d phases?.*\n  arrives   warps 0-3 at kernel/sm100/softmax_role.cuh", text)
    assert "bytes     16384 a phase, of 16384 expected" in text
    assert ElementTree.fromstring(shown.svg) is not None


def test_budget(ours):
    found = budget.budget_of(ours)
    assert found.needs == Needs(192, ours.build().resources.registers, ours.build().variant.shape.shared_bytes, 512)
    assert ("O", 256, 64) in found.tensor
    assert ("q", 0x400, 16384) in found.shared
    # The 32 rows that there are belong to warp 0, which alone stores any.
    assert [warps for warps, *_ in found.roles] == ["warp 0", "warps 1-3", "warp 4", "warp 5"]
    live = {warps: registers for warps, registers, *_ in found.roles}
    assert live["warps 1-3"] > live["warp 4"] > 0
    text = "\n".join(budget.lines_of(found, {"columns": 256, "registers": 160, "shared": 100_000}))
    assert "sm_100a (B200): 1 CTAs a multiprocessor" in text
    assert "what if columns were 256, registers were 160, shared were 100000" in text
    assert text.count("sm_100a (B200): 2 CTAs a multiprocessor") == 1


@pytest.mark.parametrize(
    ("needs", "arch", "ctas", "limiting"),
    [
        (Needs(128, 128, 49152, 0), "sm_90a", 4, ("registers", "shared memory")),
        (Needs(1024, 64, 0, 0), "sm_90a", 1, ("registers",)),
        (Needs(1024, 32, 0, 0), "sm_90a", 2, ("warps", "registers")),
        (Needs(32, 32, 0, 0), "sm_90a", 32, ("CTAs",)),
        (Needs(192, 0, 232448, 0), "sm_100a", 1, ("shared memory",)),
        (Needs(192, 0, 232449, 0), "sm_100a", 0, ("shared memory",)),
        (Needs(192, 0, 1024, 256), "sm_100a", 2, ("tensor memory",)),
    ],
)
def test_occupancy(needs, arch, ctas, limiting):
    found = occupancy(needs, ARCHITECTURES[arch])
    assert (found.ctas, found.limiting) == (ctas, limiting)


@pytest.mark.parametrize("text", ["registers", "colour=3", "registers=x", "threads=0"])
def test_what_if_is_checked(text):
    with pytest.raises(UserError):
        budget.check_what_if([text])
