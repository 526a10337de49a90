"""Every rule of the core: documented, triggered by a micro-kernel, and silent on the nearest correct one."""

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fmha.emulator import Report
from fmha.emulator.device import SCHEDULES, Profile, Schedule
from fmha.emulator.rules import RULES
from fmha.emulator.rules.__main__ import page
from tests.emulator.micro import run_micro

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "hazards"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.diff"))
NEVER = {"internal"}  # no program triggers it
# Rules whose programs need more than a micro-kernel: a cluster, a compiler, a rig of operands. Where they are tested.
ELSEWHERE = {
    "copies/test_bulk_copies.py": ("bulk-copy-ignored", "bulk-reduction", "bulk-store-in-flight"),
    "machine/test_clusters.py": (
        "cluster-barrier-arrival",
        "cluster-barrier-wait",
        "cluster-exit-race",
        "cluster-rank",
        "mbarrier-no-complete",
        "mbarrier-remote",
        "mbarrier-remote-state",
        "scope-too-narrow",
    ),
    "copies/test_cp_async.py": ("cp-async-in-flight", "cp-async-size"),
    "memory/test_device_heap.py": ("heap-free", "use-after-free"),
    "machine/test_grid.py": (
        "barrier-mixed-reduction",
        "barrier-operands",
        "barrier-over-arrival",
        "cancel-after-refusal",
        "cancel-refused",
        "setmaxnreg",
        "setmaxnreg-divergent",
        "tensor-map-stale",
    ),
    "machine/test_launches.py": ("launch-race", "stream-counter", "stream-race", "uninitialised-global"),
    "test_scalar_calls.py": ("assert", "branch-index", "indirect-call", "printf", "printf-format"),
    "tcgen05/test_tcgen05_memory.py": ("cta-pair", "tmem-alloc-blocked", "tmem-pair-alloc", "tmem-pair-dealloc"),
    "tcgen05/test_tcgen05_order.py": ("mma-unordered",),
    "tcgen05/test_tcgen05_refusals.py": ("mixed-cta-group", "zero-column-mask"),
    "copies/test_tensor_loads.py": ("bulk-copy-mbarrier", "multicast-mask", "swizzle-base"),
    "mma/test_warp_mma.py": ("partial-warp",),
    "test_device_launches.py": ("device-launch", "device-runtime", "grid-race"),
    "textures/test_surfaces.py": ("surface-out-of-bounds",),
    "textures/test_textures.py": ("image-object",),
    "mma/test_scaled_mma.py": ("scale-selector",),
    "mma/test_wgmma.py": ("wgmma-divergent", "wgmma-nonuniform"),
    "mma/test_wgmma_hazards.py": (
        "wgmma-missing-fence",
        "wgmma-partial-warpgroup",
        "wgmma-register-in-flight",
        "wgmma-sync-divergent",
    ),
}


class Example(NamedTuple):
    rule: str
    broken: str
    correct: str
    settings: dict[str, str]  # the `// key: value` lines: setup, block, lenient, also (another rule)

    def run(self, body: str, schedule: Schedule = "realistic", profile: Profile = "strict", seed: int = 0) -> Report:
        options: dict[str, Any] = {"schedule": schedule, "profile": profile, "seed": seed}
        if "max_instructions" in self.settings:
            options["max_instructions"] = int(self.settings["max_instructions"])
        setup, block = self.settings.get("setup", "none"), int(self.settings.get("block", 128))
        return run_micro(body, setup, block, **options)[0]


def load(name: str) -> Example:
    lines = (EXAMPLES / f"{name}.diff").read_text().splitlines()
    code = [line for line in lines if not line.startswith("//")]
    assert all(line[:2] in ("  ", "- ", "+ ") for line in code), "an example's line starts with '  ', '- ' or '+ '"
    settings = dict(re.findall(r"^// (\w+): (.*)$", "\n".join(lines), re.MULTILINE))
    broken, correct = ("\n".join(x[2:] for x in code if x[0] != other) for other in "+-")
    return Example(name.partition(".")[0], broken, correct, settings)


def rules(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def rules_in_the_core() -> set[str]:
    """Rules are the hyphenated literals of the sources, and the single words where a rule is expected."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "emulator/core").rglob("*.[ch]pp")))
    hyphenated = re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"', text)
    single = re.findall(r'(?:\b(?:Fault\(|return \{|report\(&w,)\s*|report_deadlock\([^"]*, )"([a-z0-9]+)"', text)
    return {*hyphenated, *single}


def test_the_table_has_every_rule_of_the_core_and_no_other() -> None:
    assert rules_in_the_core() == set(RULES)


def test_every_rule_has_an_example() -> None:
    here = {load(name).rule for name in NAMES}
    elsewhere = [rule for rules_of_file in ELSEWHERE.values() for rule in rules_of_file]
    assert here.isdisjoint(elsewhere)
    assert sorted([*here, *elsewhere, *NEVER]) == sorted(RULES)


@pytest.mark.parametrize("name", [*ELSEWHERE])
def test_a_rule_tested_elsewhere_is_named_there(name: str) -> None:
    tree = ast.parse((Path(__file__).parent / name).read_text())
    literals = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert set(ELSEWHERE[name]) <= literals


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/reference/hazards.md").read_text() == page(EXAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_the_broken_kernel_is_reported(name: str) -> None:
    example = load(name)
    report = example.run(example.broken)
    allowed = {example.rule, *example.settings.get("also", example.rule).split(", ")}
    assert example.rule in rules(report), report.findings
    assert rules(report) <= allowed, [str(f) for f in report.findings]
    finding = next(f for f in report.findings if f.rule == example.rule)
    assert finding.severity == RULES[example.rule].severity
    assert finding.place is not None
    rule = RULES[example.rule]
    assert finding.remedy in (rule.remedy, *(remedy for _, remedy in rule.instead))


@pytest.mark.parametrize("schedule", [*SCHEDULES])
@pytest.mark.parametrize("name", NAMES)
def test_the_correct_kernel_is_not(name: str, schedule: Schedule) -> None:
    example = load(name)
    for seed in range(4 if schedule == "random" else 1):
        report = example.run(example.correct, schedule, seed=seed)
        assert report.findings == (), [str(f) for f in report.findings]


@pytest.mark.parametrize("name", NAMES)
def test_the_lenient_profile_leaves_out_what_the_table_says(name: str) -> None:
    example = load(name)
    report = example.run(example.broken, profile="lenient")
    reported = RULES[example.rule].lenient and example.settings.get("lenient") != "nothing"
    assert (example.rule in rules(report)) == reported


# Thread 0 fills a ring of two slots, warps 1 to 3 read it: twelve turns, each slot's barriers pass six phases.
RING = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], 1;
@%first mbarrier.init.shared::cta.b64 [bar+16], 96;
@%first mbarrier.init.shared::cta.b64 [bar+24], 96;
bar.sync 0;
mov.b32 %r1, 0;
L:
and.b32 %r2, %r1, 1;
shr.u32 %r3, %r1, 1;
and.b32 %r3, %r3, 1;
xor.b32 %r4, %r3, 1;
mov.b32 %r5, bar;
shl.b32 %r6, %r2, 3;
add.u32 %r5, %r5, %r6;
mov.b32 %r7, tile;
add.u32 %r7, %r7, %r6;
@!%warp0 bra READ;
@!%first bra NEXT;
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5+16], %r4; @!%p1 bra W; }
st.shared.b32 [%r7], %r1;
mbarrier.arrive.shared::cta.b64 _, [%r5];
bra NEXT;
READ:
{ W: mbarrier.WAIT.parity.shared::cta.b64 %p1, [%r5], %r3; @!%p1 bra W; }
ld.shared.b32 %r8, [%r7];
add.u32 %r9, %r9, %r8;
mbarrier.arrive.shared::cta.b64 _, [%r5+16];
NEXT:
add.u32 %r1, %r1, 1;
setp.lt.u32 %p2, %r1, 12;
@%p2 bra L;
"""

# Warp 1 waits for phases 0 and 2 alone. It learns of phase 1 from warp 2, by the barrier of the whole CTA.
EVERY_OTHER = """
setp.eq.u32 %p2, %warp, 1;
setp.eq.u32 %p3, %warp, 2;
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@!%p2 bra A;
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
A:
bar.sync 0;
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@!%p3 bra B;
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1; @!%p1 bra W; }
B:
bar.sync 0;
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@!%p2 bra C;
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
C:
"""


@pytest.mark.parametrize("schedule", [*SCHEDULES])
@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
def test_a_ring_that_nobody_can_overtake_is_no_phase_aliasing(wait: str, schedule: Schedule) -> None:
    for seed in range(8):
        body = "mov.b32 %r9, 0;" + RING.replace("WAIT", wait)
        assert run_micro(body, schedule=schedule, seed=seed)[0].findings == ()


def test_a_ring_whose_readers_do_not_answer_is_overtaken() -> None:
    lines = [line for line in RING.replace("WAIT", "try_wait").splitlines() if "[%r5+16], %r4" not in line]
    body = "\n".join(["mov.b32 %r9, 0;", *lines])
    found = set().union(*(rules(run_micro(body, schedule="random", seed=seed)[0]) for seed in range(4)))
    assert {"race", "mbarrier-phase-aliasing"} <= found


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_a_waiter_that_learned_of_the_phase_it_skips_is_no_phase_aliasing(schedule: Schedule) -> None:
    for seed in range(8):
        assert run_micro(EVERY_OTHER, "barrier", schedule=schedule, seed=seed)[0].findings == ()


# Attention Gym, KDA: warp 2 skips the first phase of a barrier that warps 0 and 1 arrive on; they meet before one of
# them tells it.
SKIPS = """
.reg .pred %waits, %lane0;
setp.eq.u32 %waits, %warp, 2;
setp.eq.u32 %lane0, %lane, 0;
@%first mbarrier.init.shared::cta.b64 [tile], 2;
bar.sync 0;
@%waits bra WAIT;
@%lane0 mbarrier.arrive.shared::cta.b64 _, [tile];
MEET
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@%lane0 mbarrier.arrive.shared::cta.b64 _, [tile];
bra.uni END;
WAIT:
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 1; @!%p1 bra W; }
END:
"""


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_a_waiter_that_knows_who_arrived_in_the_phase_it_skips_is_no_phase_aliasing(schedule: Schedule) -> None:
    for seed in range(8):
        body = SKIPS.replace("MEET", "bar.sync 1, 64;")
        assert run_micro(body, "barrier", block=96, schedule=schedule, seed=seed)[0].findings == ()


def test_to_know_some_of_those_who_arrived_is_not_enough() -> None:
    body = SKIPS.replace("MEET", "")
    reports = [run_micro(body, "barrier", block=96, schedule="random", seed=seed)[0] for seed in range(8)]
    assert set().union(*map(rules, reports)) == {"mbarrier-phase-aliasing"}


# Three phases of one barrier complete by commits, and a fourth commit says so by another barrier.
COMMITS = """
@!%first bra READ;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar+8];
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar+8];
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar+8];
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
READ:
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar+8], 0; @!%p1 bra W; }
"""


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_a_commit_knows_the_phases_that_those_before_it_completed(schedule: Schedule) -> None:
    """FlashAttention-4's decode kernels wait for the last phase of several, which an earlier wait has made the one."""
    for seed in range(4):
        assert run_micro(COMMITS, "tensor", schedule=schedule, seed=seed)[0].findings == ()
    lines = COMMITS.splitlines()
    swapped = "\n".join([*lines[:2], lines[5], *lines[2:5], *lines[6:]])
    found = set().union(*(rules(run_micro(swapped, "tensor", schedule="random", seed=seed)[0]) for seed in range(8)))
    assert found == {"mbarrier-phase-aliasing", "exit-with-work-in-flight"}


COMMIT = "@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{}];\n"
WAIT = "{{ W{0}: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar+{0}], 0; @!%p1 bra W{0}; }}\n"


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_a_commit_that_no_wait_has_shown_may_arrive_after_the_exit(schedule: Schedule) -> None:
    """Under every schedule, whether it comes late or not; a wait for a later commit shows it as well."""
    both = COMMIT.format("bar+8") + COMMIT.format("bar")
    for waits, found in ((WAIT.format(8), {"exit-with-work-in-flight"}), (WAIT.format(0), set())):
        report = run_micro(both + waits, "tensor", schedule=schedule)[0]
        assert rules(report) == found, schedule
