"""The order of SASS: what of a listing is read, what the model makes of it, and what is said without a disassembler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness import account
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.see import listings, sass
from fmha.harness.see.named import named
from fmha.harness.worker.compilers.nvcc import Nvcc
from tests.forked import fmha

LISTING = """
//--------------------- .text.k --------------------------
	.section	.text.k,"ax",@progbits
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
	//## File "kernel.ptx", line 12
        /*0010*/                   MUFU.EX2 R3, R3 ;
	//## File "kernel.ptx", line 10
        /*0020*/              @!P2 FADD R2, R2, R2 ;
        /*0030*/                   FADD R2, R2, R2 ;
	.section	.text.other,"ax",@progbits
        /*0000*/                   EXIT ;
"""
TWO_CHAINS = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .f32 %f<4>;
.reg .b32 %r<2>;
.reg .b64 %rd<2>;
mov.u32 %r0, %tid.x;
cvt.rn.f32.u32 %f0, %r0;
add.f32 %f1, %f0, 0f3F800000;
FIRST
SECOND
STORED
ret;
}
"""
LINKS = 64


STORED = "ld.param.u64 %rd0, [out];\nadd.f32 %f2, %f0, %f1;\nst.global.f32 [%rd0], %f2;"


def chains(stored: bool = False) -> emulator.Module:
    """Two, one behind the other, which do not depend on one another. What is not stored ptxas leaves out."""
    text = TWO_CHAINS.replace("STORED", STORED if stored else "")
    for place, register in (("FIRST", "%f0"), ("SECOND", "%f1")):
        text = text.replace(place, f"ex2.approx.ftz.f32 {register}, {register};\n" * LINKS)
    return emulator.load_ptx(text)


def timing() -> LaunchTiming:
    device = emulator.Device(timing="b200", reordered=True)
    report = device.launch(chains(), "k", 1, 32, [device.alloc(4, "out").address])
    assert report.timing is not None
    return report.timing


def warm(kept: LaunchTiming) -> float:
    return kept.modelled({"code_miss": 0.0, "code_jump": 0.0}).cycles


def test_a_listing_has_each_instruction_with_the_ptx_line_that_it_is_of() -> None:
    found = sass.read(LISTING)
    assert set(found) == {"k", "other"}
    assert [line for line, _ in found["k"]] == [0, 12, 10, 10]
    assert sass.Sass(found["k"]).by_line == {12: ("MUFU.EX2 R3, R3",), 10: ("@!P2 FADD R2, R2, R2", "FADD R2, R2, R2")}


def test_ptx_has_a_line_before_each_instruction_and_no_other() -> None:
    text = ".address_size 64\n.loc 1 5 0\nadd;\n\tret;\n.section .debug_line { }\n"
    lines = sass.with_lines(text, frozenset({3, 4}))
    assert lines == '.address_size 64\n.file 1 "kernel.ptx"\n.loc 1 3 1\nadd;\n.loc 1 4 1\n\tret;\n'


def test_ranks_are_by_the_first_instruction_of_a_line() -> None:
    kept = timing()
    lines = [source.line for source in kept.sources]
    listing = sass.Sass(((lines[4], "b"), (lines[2], "a"), (lines[4], "b again"), (0, "of nothing")))
    ranks = listing.ranks(kept.sources)
    assert (ranks[4], ranks[2], ranks[0]) == (0, 1, sass.ANYWHERE)
    assert listing.matched(kept.sources) == 0.75


def test_warps_execute_by_rank_what_does_not_depend() -> None:
    """One chain beside the other takes the time of one."""
    kept = timing()
    behind = warm(kept)
    first = next(pc for pc, source in enumerate(kept.sources) if source.opcode == "ex2")
    ranks = list(range(len(kept.sources)))
    for link in range(LINKS):
        ranks[first + link], ranks[first + LINKS + link] = first + 2 * link, first + 2 * link + 1
    kept.ranks = ranks
    link = architecture("b200").values["mufu_latency"]
    assert behind - warm(kept) == pytest.approx(LINKS * link, rel=0.05)


def test_no_rank_puts_an_instruction_before_what_it_depends_on() -> None:
    kept = timing()
    kept.ranks = [-pc for pc in range(len(kept.sources))]
    least = LINKS * architecture("b200").values["mufu_latency"]
    assert kept.modelled().forced == 0
    assert warm(kept) >= least + architecture("b200").values["cta_start"]


PRODUCTS = 8


def products() -> emulator.Module:
    """Eight products, and a chain that waits for them."""
    sums = ", ".join(f"%f{n}" for n in range(32))
    product = f"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{sums}}}, %rd1, %rd1, 1, 1, 1, 0, 0;\n"
    return emulator.load_ptx(f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .f32 %f<32>;
.reg .b32 %r<2>;
.reg .b64 %rd<2>;
.shared .align 1024 .b8 tile[8192];
mov.u32 %r0, tile;
shr.u32 %r0, %r0, 4;
cvt.u64.u32 %rd1, %r0;
{"".join(f"mov.f32 %f{n}, 0f00000000;" for n in range(32))}
wgmma.fence.sync.aligned;
{product * PRODUCTS}wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{"ex2.approx.ftz.f32 %f0, %f0;" * LINKS}
ld.param.u64 %rd0, [out];
st.global.f32 [%rd0], %f0;
ret;
}}
""")


def test_a_wait_ends_with_the_products_that_a_commit_without_sass_has_closed() -> None:
    """ptxas makes no instruction of a commit of wgmma: it is part of the last product, and no rank says so."""
    device = emulator.Device(timing="h200", reordered=True, checks=False)
    kept = device.launch(products(), "k", 1, 128, [device.alloc(4, "out").address]).timing
    assert kept is not None
    as_written = warm(kept)
    ranks = list(range(len(kept.sources)))
    (commit,) = [pc for pc, source in enumerate(kept.sources) if "commit_group" in source.modifiers]
    ranks[commit] = sass.ANYWHERE
    kept.ranks = ranks
    assert warm(kept) == pytest.approx(as_written, rel=0.01)
    first = next(pc for pc, source in enumerate(kept.sources) if source.opcode == "ex2")
    kept.ranks = [sass.ANYWHERE if pc >= first else rank for pc, rank in enumerate(ranks)]
    assert warm(kept) == pytest.approx(as_written, rel=0.01)  # nor does one who reads a sum come before the wait


def test_there_is_a_rank_for_each_instruction_or_none() -> None:
    kept = timing()
    kept.ranks = [0]
    with pytest.raises(ValueError, match="a rank for each instruction is wanted, or none"):
        kept.modelled()


def test_without_a_disassembler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = Nvcc(tmp_path / "nvcc", "of a folder with nothing else", (13, 0))
    monkeypatch.setattr(sass, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(sass.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no nvdisasm"):
        sass.find_nvdisasm()


def test_what_was_made_of_ptx_once_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither tool is there to make it again. Other PTX, another compiler or disassembler are other names; what is
    damaged is not taken."""
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "own"))
    nvcc, nvdisasm = Nvcc(tmp_path / "nvcc", "one version", (13, 0)), tmp_path / "nvdisasm"
    nvdisasm.write_text("")
    monkeypatch.setattr(sass, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(sass, "find_nvdisasm", lambda: nvdisasm)
    module = chains()
    sources = module.decode("k", {}).sources
    names: list[str] = []
    with monkeypatch.context() as made:
        made.setattr(sass, "_listing", lambda *words: LISTING)
        made.setattr(listings, "take", lambda name: names.append(name))
        for ptx, arch, options, tool in (
            (module.parsed.source, "sm_90a", "", ""),
            (module.parsed.source + "\n", "sm_100a", "", ""),
            (module.parsed.source, "sm_100a", "-Xptxas -O0", ""),
            (module.parsed.source, "sm_100a", "", "another"),
            (module.parsed.source, "sm_100a", "", ""),
        ):
            made.setenv("NVCC_APPEND_FLAGS", options)
            (tmp_path / "ptxas").write_text(tool)
            sass.disassembled(ptx, arch, sources, tmp_path)
    assert len(set(names)) == 5
    found = sass.disassembled(module.parsed.source, "sm_100a", sources, tmp_path)
    assert found == {entry: sass.Sass(each) for entry, each in sass.read(LISTING).items()}
    kept = tmp_path / "own" / listings.FOLDER / names[-1]
    kept.write_bytes(kept.read_bytes()[:-9])
    assert listings.take(names[-1]) is None


@pytest.mark.nvcc
def test_an_order_that_is_none_is_refused(repository: Path) -> None:
    done = fmha("roofline", "--order", "c", "hd64_t1_sk128_out-bf16", cwd=repository)
    assert (done.returncode, done.stderr) == (ExitCode.USAGE, "fmha: --order: 'c' is not one of ptx, sass\n")


@pytest.mark.nvcc
def test_our_kernel_is_modelled_in_the_order_of_its_sass(repository: Path, tmp_path: Path) -> None:
    try:
        sass.find_nvdisasm()
    except UserError as error:
        pytest.skip(str(error))
    name, trace = "hd64_t128_sk1024_out-bf16", tmp_path / "trace.json"
    times = {}
    for order in ("ptx", "sass"):
        done = fmha("roofline", "--order", order, "--json", name, cwd=repository)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        assert row["forced"] == 0
        times[order] = row["modelled_us"]
    assert times["sass"] != times["ptx"]
    assert times["sass"] == pytest.approx(times["ptx"], rel=0.25)
    said, *_ = [line for line in done.stderr.splitlines() if "SASS" in line]
    assert float(said.split("instructions, ")[1].split("%")[0]) > 95
    assert fmha("trace", "--order", "sass", name, "--output", str(trace), cwd=repository).returncode == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("sass" in event.get("args", {}) for event in events)


PTX_LAUNCH = """
entry: k
grid: [1]
block: [32]
buffers: {out: {dtype: f32, shape: [1]}}
args: [{buffer: out}]
"""


@pytest.mark.nvcc
def test_a_file_of_ptx_is_modelled_in_the_order_of_its_sass(tmp_path: Path) -> None:
    """ptxas lays one of the chains beside the other."""
    try:
        sass.find_nvdisasm()
    except UserError as error:
        pytest.skip(str(error))
    (tmp_path / "k.ptx").write_text(chains(stored=True).parsed.source)
    (tmp_path / "launch.yaml").write_text(PTX_LAUNCH)
    times = {}
    for order in ("ptx", "sass"):
        done = fmha("roofline", "k.ptx", "--launch", "launch.yaml", "--order", order, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        times[order] = row["modelled_us"]
    assert times["sass"] < 0.9 * times["ptx"]


@pytest.mark.parametrize("command", [("./program",), ("python", "script.py")])
def test_a_program_is_not_modelled_in_the_order_of_sass(command: tuple[str, ...]) -> None:
    found = named(command, command=True)
    with pytest.raises(UserError, match="modelled in the PTX's order alone") as told:
        found.time(found.gpu, "sass")
    assert "fmha launches --write" in str(told.value.next_step)


def test_times_in_the_order_of_sass_are_not_kept_beside_others(repository: Path) -> None:
    done = fmha("roofline", "--archive", "--order", "sass", "hd64_t1_sk128_out-bf16", cwd=repository)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "fmha: --archive: trends are of times in the PTX's order; leave --order out\n"
