"""The debugger, by scripts: what it stops at, what it shows, and that it goes back to where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator.debug.session import DebugSession, WrongCommandError, parse_break
from fmha.emulator.debug.terminal import Terminal
from fmha.harness.see.launch_subject import LaunchSubject
from fmha.harness.see.ptx_files import of_file
from tests.pages import assert_shown
from tests.see.places import LINE

HERE = Path(__file__).parent / "kernels"
SCRIPT = """\
continue
print
pending
back
where
break 35
continue
print %v
barriers
continue
"""
ALLOCATES = """\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry allocates() {
    .shared .align 4 .b32 place;
    .reg .b32 %columns;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
    ld.shared.b32 %columns, [place];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %columns, 32;
    ret;
}
"""


def early() -> LaunchSubject:
    return of_file(HERE / "early.ptx", HERE / "early.yaml")


def said(subject: LaunchSubject, script: str) -> list[str]:
    lines: list[str] = []

    def commands():
        for line in script.splitlines():
            lines.append(f"(fmha) {line}")
            yield line

    DebugSession(subject.run, Terminal(commands(), lines.append)).debug()
    return lines


def answers(subject: LaunchSubject, script: str) -> list[str]:
    return [line for line in said(subject, script) if not line.startswith("(fmha)")]


def test_it_stops_at_a_hazard_and_shows_what_is_there():
    """The load of what a copy is still bringing."""
    lines = answers(early(), "continue\npending\nprint\n")
    assert "bulk-copy-in-flight" in lines[1]
    assert "CTA 0, warp 0 at PTX line 33: ld.shared.u32 %v, [%w]" in lines[1]
    assert lines[2].startswith("copy, issued by warp 0 of CTA 0 at PTX line 26: cp.async.bulk")
    assert lines[4].startswith("%w = lane 0 0x400 (1024), lane 1 0x404")


def test_back_undoes_step():
    lines = answers(early(), "hazards off\nbreak 33\ncontinue\nstep\nprint %v\nback\nback\nstep\nstep\nprint %v\n")
    place = [line for line in lines if "PTX line" in line and line.startswith("[")]
    at = [line.split(":", 2)[1].split("]")[0] for line in place]
    assert "PTX line 33" in place[1]
    assert "PTX line 34" in place[2]
    assert at[2] == at[6], "after two back and two steps it is where it was"
    values = [line for line in lines if line.startswith("%v = ")]
    assert values[0] == values[1]


def test_reverse_goes_to_the_break_before():
    lines = answers(early(), "hazards off\nbreak 14\nbreak 35\ncontinue\ncontinue\ncontinue\nreverse\nreverse\n")
    places = [line.split("PTX line ")[1].split(":")[0] for line in lines if line.startswith("[")]
    assert places[-1] == "14"
    assert places[-2] in ("14", "35")


def test_a_condition_over_a_register():
    """Of the two warps only the second has a thread 40."""
    lines = answers(early(), "hazards off\nbreak 19 if %tid == 40\ncontinue\nprint %tid\n")
    assert "warp 1 at PTX line 19" in lines[2]
    assert lines[3].startswith("%tid = lane 0 0x20 (32)")


def test_an_mbarrier_and_an_asynchronous_operation():
    lines = answers(early(), "hazards off\nbreak barrier 0x480\ncontinue\ncontinue\nbarriers\ndelete\nasync\n")
    assert "mbarrier 0x480: init: CTA 0, warp 0" in lines[2]
    assert "mbarrier 0x480: expect" in lines[3]
    assert lines[4] == "mbarrier 0x480: phase 0, 1 of 1 arrivals and 128 bytes missing"
    assert "an asynchronous operation has completed: CTA 0, warp 0 at PTX line 26" in lines[5]


def test_the_end_and_back_from_it():
    lines = answers(early(), "hazards off\ncontinue\nback\nwhere\n")
    assert lines[1] == "the run has ended"
    assert "CTA 0, warp 0 at PTX line 39: mbarrier.test_wait" in lines[2], "the last that was not an exit"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("break", "'break': no such command"),
        ("break nowhere", "give a PTX line, FILE:LINE, or barrier OFFSET"),
        ("break 1", "no instruction is at 1"),
        ("break 34 if x", "'x' is no condition"),
        ("print %zz", "no register is named %zz"),
        ("tmem 0 0", "nothing is allocated in tensor memory"),
        ("smem 0x100000", "shared memory ends at"),
        ("smem x", "'x' is no number"),
        ("fly", "no such command; help lists them"),
    ],
)
def test_wrong_commands_are_answered(command, answer):
    assert answer in answers(early(), command)[1]


def test_tensor_memory_of_a_cta_that_is_gone_is_not_shown():
    module = emulator.load_ptx(ALLOCATES)
    assert not emulator.Device().launch(module, "allocates", 1, 32, []).findings
    assert answers(early(), "tmem 0 0")[1] == "nothing is allocated in tensor memory"


def test_breaks():
    with pytest.raises(WrongCommandError):
        parse_break("barrier x")
    assert parse_break("a/b.cu:7 if %r1 >= 0x10").condition == ("%r1", ">=", 16)


def test_our_kernel_stops_at_lines_of_cuda(ours):
    """In the MMA warp, whose descriptors are told in words."""
    lines = answers(ours, f"break kernel/sm100/ptx/tcgen05.cuh:81\nbreak softmax_role.cuh:{LINE}\ncontinue\nbarriers\n")
    assert any(f"softmax_role.cuh:{LINE}" in line for line in lines[1:])
    assert any(line.startswith("mbarrier 0x") for line in lines)


def test_the_transcript_in_the_guide(repository):
    assert_shown(repository / "docs/use/see.md", "session", "\n".join(f"    {line}" for line in said(early(), SCRIPT)))
