"""The mutation tool: what it enumerates, how it judges, and samples of our kernels' mutants."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from fmha.emulator import Device, Module, load_ptx
from fmha.emulator.device import Schedule
from fmha.emulator.mutation import (
    MutantTrial,
    MutationError,
    PtxMutant,
    load_redundant,
    mutants_of,
    run_mutants,
    schedule_plan,
)
from fmha.emulator.mutation.__main__ import load_launch, main, sample, summary
from fmha.emulator.mutation.notice import MutantOutcome, check_original, check_reached
from fmha.emulator.mutation.proof import ONE_WARP, ONLY_FENCES, RENAMED, check_separation
from fmha.emulator.mutation.redundant import ANY_LINE
from fmha.emulator.mutation.statements import PtxSource, moved, split_operands, statement_of
from fmha.emulator.ptx import Instruction
from fmha.harness.contract.protocol import BuildResult
from tests.emulator.micro import launch_micro, micro_ptx
from tests.emulator.thirdparty.running import HERE as KERNELS
from tests.emulator.thirdparty.running import NAMES

HERE = Path(__file__).parent
SPEC = str(HERE / "mutation/sm100.py")
REDUNDANT = HERE / "mutation/redundant.yaml"
BULK_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"

# Thread 0 hands a word to thread 32 through an mbarrier.
HANDOVER = """
setp.eq.u32 %p2, %thread, 32;
@%first st.shared.b32 [tile], 5;
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
{
.reg .pred complete;
W:
mbarrier.try_wait.parity.shared::cta.b64 complete, [bar], 0;
@!complete bra W;
}
@%p2 ld.shared.b32 %r1, [tile];
@%p2 st.global.b32 [%out], %r1;
"""


def handover_mutants() -> list[PtxMutant]:
    ptx = micro_ptx(HANDOVER, "barrier")
    return list(mutants_of(ptx, load_ptx(ptx).parsed.functions["kernel"]))


def changes(text: str) -> dict[str, str]:
    """What is done to one instruction, and the line it becomes."""
    ptx = micro_ptx(text)
    line = ptx.splitlines().index(text) + 1
    found = [m for m in mutants_of(ptx, load_ptx(ptx).parsed.functions["kernel"]) if m.line == line]
    for m in found:
        assert len(m.ptx.splitlines()) == len(ptx.splitlines())
    return {m.what: m.ptx.splitlines()[line - 1] for m in found}


# Text


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("", ()),
        ("0", ("0",)),
        ("[%r1], [%rd1, {%r2, %r3}], [%r4]", ("[%r1]", "[%rd1, {%r2, %r3}]", "[%r4]")),
        ("{%r1, %r2}, [%r3+4]", ("{%r1, %r2}", "[%r3+4]")),
        ("_, [x], 1", ("_", "[x]", "1")),
    ],
)
def test_operands_are_split_at_their_own_commas(text: str, operands: tuple[str, ...]) -> None:
    assert split_operands(text) == operands


def test_a_statement_survives_the_round_trip() -> None:
    text = "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8], %r2"
    statement = statement_of(text)
    assert (statement.guard, statement.operands) == ("@!%p1 ", ("_", "[%r1+8]", "%r2"))
    assert str(statement) == text + ";"
    assert str(statement_of("tcgen05.fence::after_thread_sync")) == "tcgen05.fence::after_thread_sync;"


@pytest.mark.parametrize(
    ("address", "further"),
    [("[%r1]", "[%r1+8]"), ("[%r1+16]", "[%r1+24]"), ("[%r1+-8]", "[%r1+0]"), ("[bar]", "[bar+8]")],
)
def test_an_address_moves(address: str, further: str) -> None:
    assert moved(address, 8) == further


def test_a_statement_over_several_lines_keeps_the_lines_behind_it() -> None:
    text = "first;\n  bar.sync\n    0 ;\nlast;"
    source = PtxSource(text)
    span = source.span(Instruction("bar", ("sync",), (), None, 2, "bar.sync 0", None))
    assert span is not None
    assert source.replaced(span, "") == "first;\n  \n\nlast;"


# Operators


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("bar.sync 0;", {"deleted": "", "barrier +1": "add.s32 %mutated, 0, 1"}),
        ("bar.sync 1, 128;", {"threads +32": "add.s32 %mutated, 128, 32", "threads -32": "sub.s32 %mutated, 128, 32"}),
        ("fence.proxy.async.shared::cta;", {"deleted": "", "another space": "fence.proxy.async.global;"}),
        ("fence.proxy.async;", {"another space": "fence.proxy.async.global;"}),
        ("fence.acq_rel.gpu;", {"deleted": "", "scope .cluster": "fence.acq_rel.cluster;"}),
        (
            "mbarrier.init.shared::cta.b64 [bar], 3;",
            {"count +1": "add.s32 %mutated, 3, 1", "count -1": "sub.s32", "barrier +8": "[bar+8], 3;", "deleted": ""},
        ),
        (
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;",
            {
                "relaxed": "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _",
                "bytes +16": "add.s32 %mutated, 64, 16",
                "bytes -16": "sub.s32 %mutated, 64, 16",
            },
        ),
        (
            "@%p1 mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], %r1;",
            {
                "always complete": "@%p1 setp.eq.u32 %p2, 0, 0;",
                "relaxed": "@%p1 mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p2",
                "parity flipped": "xor.b32 %mutated, %r1, 1",
            },
        ),
        ("tcgen05.wait::ld.sync.aligned;", {"deleted": ""}),
        ("tcgen05.fence::before_thread_sync;", {"deleted": ""}),
        (
            "tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, %p1;",
            {
                "D column +1": "[%r1+1]",
                "A start +16 bytes": "add.s64 %mutated, %d1, 1",
                "B swizzle": "xor.b64 %mutated, %d2",
                "instruction N +16": "add.s32 %mutated, %r2, 0x40000",
                "accumulate negated": "not.pred %mutated, %p1",
            },
        ),
        (
            f"{BULK_LOAD} [%r1], [%d1, {{%r2, %r3}}], [%r4];",
            {
                "coordinate 0 +1": "{%mutated, %r3}",
                "coordinate 1 +1": "{%r2, %mutated}",
                "shared address +128": "[%r1+128]",
            },
        ),
    ],
)
def test_what_is_done_to_an_instruction(instruction: str, expected: dict[str, str]) -> None:
    found = changes(instruction)
    for what, text in expected.items():
        assert text in found[what] if text else found[what] == "", found


def test_instructions_that_synchronise_nothing_are_left_alone() -> None:
    for text in ("add.u32 %r1, %r2, 1;", "ld.shared.b32 %r1, [tile];", "@%p1 bra.uni L; L:", "elect.sync _|%p1, -1;"):
        assert changes(text) == {}


def test_mutants_of_an_inline_block_use_its_own_names() -> None:
    """`complete` is a name of the block, which the parsed model renames."""
    (always,) = [m for m in handover_mutants() if m.what == "always complete"]
    assert "setp.eq.u32 complete, 0, 0;" in always.ptx
    load_ptx(always.ptx)


# Judging


def handover(module: Module, schedule: Schedule, seed: int) -> MutantTrial:
    device = Device(schedule=schedule, seed=seed)
    out = device.alloc(4096, "out", zeroed=True)
    report = device.launch(module, "kernel", (1, 1, 1), (128, 1, 1), [out.address, bytes(128)])
    right = int(device.read(out.address, 4).view("uint32")[0]) == 5
    return MutantTrial(tuple(f.rule for f in report.findings), right)


def test_every_broken_handover_is_noticed() -> None:
    outcomes = list(run_mutants(handover_mutants(), handover, schedule_plan(8), "handover"))
    # Three mbarriers go unused, the fence is for asynchronous agents, and any barrier number does.
    spared = re.compile(r"mbarrier\.init\S* \[bar\+|fence\.mbarrier_init|bar\.sync 0\b.*barrier \+1")
    lost = [f"{o.mutant.text} {o.mutant.what}" for o in outcomes if o.status != "killed"]
    assert all(spared.search(text) for text in lost), lost
    by = {o.mutant.what: o.by for o in outcomes if o.mutant.text.startswith("mbarrier.try_wait")}
    by |= {o.mutant.what: o.by for o in outcomes if "bra W" in o.mutant.text}
    # Whether the reader comes before the writer is the schedule's choice.
    assert by["wait not repeated"] in ("race", "uninitialised-shared")
    assert by["always complete"] in ("race", "uninitialised-shared")
    assert by["relaxed"] == "race"


def test_a_kernel_that_fails_by_itself_is_no_subject() -> None:
    ptx = micro_ptx(HANDOVER.replace("[tile], 5", "[tile], 6"), "barrier")
    with pytest.raises(MutationError, match="schedule realistic, seed 0: wrong numbers"):
        check_original(ptx, handover, schedule_plan(0))


def test_a_mutant_that_is_no_ptx_is_invalid_and_counts_for_nothing() -> None:
    mutant = PtxMutant(0, "delete", "deleted", 1, "text", "", "no ptx")
    (outcome,) = run_mutants([mutant], handover, schedule_plan(0), "handover")
    assert outcome.status == "invalid"
    assert summary([outcome])["score"] is None


def test_a_survivor_that_is_never_executed_says_nothing() -> None:
    never = "setp.eq.u32 %p3, %thread, 999;\n@%p3 membar.gl;\nmembar.gl;\n"
    ptx = micro_ptx(never + HANDOVER, "barrier")
    function = load_ptx(ptx).parsed.functions["kernel"]
    mutants = [m for m in mutants_of(ptx, function) if "membar" in m.text]
    outcomes = list(run_mutants(mutants, handover, schedule_plan(0), "handover"))
    assert [o.status for o in outcomes] == ["survived", "survived"]
    judged = [check_reached(o, ptx, function, handover) for o in outcomes]
    assert [o.status for o in judged] == ["unreached", "survived"]
    assert summary(judged)["score"] == 0
    killed = MutantOutcome(mutants[0], "killed", "race")
    assert check_reached(killed, ptx, function, handover) is killed


STEPS = f"""
setp.eq.u32 %p3, %thread, 32;
bar.sync 0;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
bar.sync 0;
{{issue}} {BULK_LOAD} [tile], [%map, {{{{%zero, %zero}}}}], [bar];
{{more}}
bar.sync 0;
{{{{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }}}}
"""


def proof_of(body: str, barrier: int, what: str = "deleted", text: str = "bar.sync 0") -> MutantOutcome:
    """What the tool says of the kernel without its so-manieth bar.sync 0, or of another mutant."""
    ptx = micro_ptx(body, "barrier")
    function = load_ptx(ptx).parsed.functions["kernel"]
    first = body.strip().splitlines()[0]
    start = next(n for n, x in enumerate(ptx.splitlines(), 1) if x.strip() == first.strip())
    mutants = [m for m in mutants_of(ptx, function) if m.what == what and m.text == text and m.line >= start]
    return check_separation(
        MutantOutcome(mutants[barrier], "survived", ""), ptx, function, micro_launch, schedule_plan(1)
    )


def micro_launch(module: Module, schedule: Schedule, seed: int) -> MutantTrial:
    report, _, _ = launch_micro(module, seed=seed, schedule=schedule)
    return MutantTrial(tuple(f.rule for f in report.findings), True)


def test_a_barrier_between_the_steps_of_one_warp_is_proven_redundant() -> None:
    one = proof_of(STEPS.format(issue="@%first", more=""), 1)
    assert (one.status, one.by) == ("redundant", ONE_WARP)
    assert proof_of(STEPS.format(issue="@%p3", more=""), 1).status == "survived"  # another warp
    assert proof_of(STEPS.format(issue="@%first", more="@%first ld.shared.b32 %r1, [slot];"), 1).status == "survived"
    assert proof_of(STEPS.format(issue="@%first", more="AGAIN:"), 1).status == "survived"  # no straight line


def test_a_barrier_before_a_fence_of_all_threads_is_proven_redundant() -> None:
    body = """
    st.shared.b32 [tile], %zero;
    bar.sync 0;
    {guard} fence.proxy.async.shared::cta;
    bar.sync 0;
    """
    every = proof_of(body.format(guard=""), 0)
    assert (every.status, every.by) == ("redundant", ONLY_FENCES)
    assert proof_of(body.format(guard="@%first"), 0).status == "survived"


def test_a_barrier_under_a_number_of_its_own_is_proven_redundant() -> None:
    body = "st.shared.b32 [tile], %zero;\nbar.sync 1, 128;\n{other}"
    renamed = proof_of(body.format(other="bar.sync 3, 128;"), 0, "barrier +1", "bar.sync 1, 128")
    assert (renamed.status, renamed.by) == ("redundant", RENAMED)
    for other in ("bar.sync 2, 128;", "bar.arrive 2, 128;", "mov.u32 %r1, 5; bar.sync %r1, 128;"):
        assert proof_of(body.format(other=other), 0, "barrier +1", "bar.sync 1, 128").status == "survived"


def test_the_redundant_list_excuses_only_what_survives(tmp_path: Path) -> None:
    listed = tmp_path / "redundant.yaml"
    listed.write_text("- {kernel: handover, what: '.*', instruction: '.*', reason: because}\n")
    (entry,) = load_redundant(listed)
    outcomes = list(run_mutants(handover_mutants(), handover, schedule_plan(0), "handover", [entry]))
    assert {o.status for o in outcomes} == {"killed", "redundant"}
    assert {o.by for o in outcomes if o.status == "redundant"} == {"because"}
    assert not any(entry.matches("another kernel", o.mutant) for o in outcomes)


def test_the_redundant_list_may_name_lines(tmp_path: Path) -> None:
    listed = tmp_path / "redundant.yaml"
    mutants = handover_mutants()
    line = mutants[0].line
    listed.write_text(f"- {{kernel: '.*', what: '.*', instruction: '.*', line: '{line}', reason: because}}\n")
    (entry,) = load_redundant(listed)
    assert {m.line for m in mutants if entry.matches("handover", m)} == {line}


def test_lines_of_the_third_party_list_hold_what_it_names() -> None:
    used = 0
    for entry in load_redundant(HERE / "mutation/redundant-thirdparty.yaml"):
        if entry.line.pattern == ANY_LINE:
            continue
        for name in filter(entry.kernel.fullmatch, NAMES):
            lines = (KERNELS / f"{name}.ptx").read_text().splitlines()
            named = [text.strip() for n, text in enumerate(lines, 1) if entry.line.fullmatch(str(n))]
            assert named, (name, entry.line.pattern)
            assert all(map(entry.instruction.search, named)), (name, entry.line.pattern)
            used += len(named)
    assert used > 50


@pytest.mark.parametrize("text", ["kernel: x", "- 1", "- {kernel: x, what: y}"])
def test_a_redundant_list_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"list\.yaml"):
        load_redundant(tmp_path / "list.yaml")


def test_a_sample_is_drawn_by_its_seed() -> None:
    mutants = handover_mutants()
    some = sample(mutants, 5, 1)
    assert some == sample(mutants, 5, 1) != sample(mutants, 5, 2)
    assert len(some) == -(-len(mutants) // 5)
    assert [m.index for m in some] == sorted(m.index for m in some)


def test_a_launch_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(MutationError, match="no such file"):
        load_launch("nowhere.py")


# Our kernels


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sm100_hd64_ptmem", pytest.param("sm100_hd512_psmem", marks=pytest.mark.nightly)])
def test_a_sample_of_our_kernels_mutants_is_killed_or_redundant(
    builds: Mapping[str, BuildResult], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    build = builds[name]
    arguments = [build.ptx, "--entry", build.variant.entry, "--launch", SPEC, "--redundant", str(REDUNDANT)]
    code = main([*arguments, "--every", "120", "--random", "1"])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert '"survived": 0' in printed
