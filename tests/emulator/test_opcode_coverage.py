"""Which opcodes of public sm_100a kernels the machine decodes. The list of what is missing may only shrink."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator.decode import decode_entry
from tests.emulator.opcode_samples import HEADER, module, sample

HERE = Path(__file__).parent
OPCODES = (HERE / "opcodes.txt").read_text().split()
MISSING = frozenset((HERE / "opcodes_missing.txt").read_text().split())


def _refusal(opcode: str) -> str:
    """Why the decoder refuses the sample of an opcode; empty when it takes it."""
    parsed = emulator.load_ptx(module(opcode)).parsed
    try:
        decode_entry(parsed, "k", {})
    except emulator.PtxError as error:
        return str(error)
    return ""


def test_the_list_of_missing_opcodes_names_listed_opcodes_only() -> None:
    assert set(OPCODES) >= MISSING
    assert len(OPCODES) == len(set(OPCODES)) > 0


@pytest.mark.parametrize("opcode", OPCODES)
def test_opcode_decodes_unless_it_is_listed_as_missing(opcode: str) -> None:
    refusal = _refusal(opcode)
    assert bool(refusal) == (opcode in MISSING), refusal
    assert not refusal or opcode.split(".")[0] in refusal


def test_operands_too_few_are_refused_and_no_fault_of_the_decoder() -> None:
    """Whatever is left out at the end, none of them included: it is refused as PTX, or read as what it says."""
    samples = [sample(opcode).rstrip(";") for opcode in OPCODES]
    samples += ["stacksave.u64 %d1", "stackrestore.u64 %d1", "getctarank.shared::cluster.u32 %r1, %r2"]
    samples += ["fence.proxy.tensormap::generic.acquire.gpu [%d1], 128"]
    for text in samples:
        head, _, operands = text.partition(" ")
        parts = operands.split(", ")
        for count in range(len(parts)):
            whole = HEADER.replace("%s", f"{head} {', '.join(parts[:count])};")
            try:
                decode_entry(emulator.load_ptx(whole).parsed, "k", {})
            except emulator.PtxError:
                continue
            except Exception as error:
                raise AssertionError(f"{head} with {count} operands") from error


# What stands in place of an operand: a register of another kind, a vector, constants that no register holds.
OTHERS = ("%p1", "{%r1, %r2, %r3}", "0d7FE0000000000000", "99999999999999999999", "[%d1+9223372036854775807]", "_")


@pytest.mark.parametrize("other", OTHERS)
def test_operands_of_another_kind_are_refused_and_no_fault_of_the_decoder(other: str) -> None:
    """Found by tools/fuzz.py: vectors of predicates, offsets of more than 64 bits, and what no f32 holds."""
    for opcode in OPCODES:
        head, _, operands = sample(opcode).rstrip(";").partition(" ")
        parts = operands.split(", ")
        for at in range(len(parts)):
            line = f"{head} {', '.join([*parts[:at], other, *parts[at + 1 :]])};"
            try:
                decode_entry(emulator.load_ptx(HEADER.replace("%s", line)).parsed, "k", {})
            except emulator.PtxError:
                continue
            except Exception as error:
                raise AssertionError(line) from error


def test_the_refusal_names_the_unknown_modifier() -> None:
    with pytest.raises(emulator.PtxError, match="sparkling"):
        decode_entry(emulator.load_ptx(module("add.sparkling.s32")).parsed, "k", {})
