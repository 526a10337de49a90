"""The build stage with the real nvcc."""

import dataclasses
import re
import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.compilers.build_kernels import build_variants, warnings
from fmha.harness.worker.compilers.sources import hash_sources

VARIANT = VARIANTS[0]
PACKAGED = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvcc"
pytestmark = pytest.mark.nvcc

PROBE = """\
#include "probe.h"
extern "C" __global__ void fmha_fwd_sm100_hd64_ptmem(float* p) {
    asm volatile("tcgen05.fence::before_thread_sync;");
    p[threadIdx.x] = probe(FMHA_HEAD_DIM);
}
extern "C" __global__ void fmha_combine(float* p) { __shared__ float s[8]; s[threadIdx.x] = *p; p[1] = s[3]; }
"""


@pytest.fixture
def tree(tmp_path):
    """A small checkout: the kernel's paths and entry, compiled in a second."""
    root = tmp_path / "tree"
    (root / "kernel" / "include").mkdir(parents=True)
    (root / "kernel" / "sm100").mkdir()
    (root / "kernel" / "include" / "probe.h").write_text("__device__ inline float probe(int x) { return x; }\n")
    (root / VARIANT.source).write_text(PROBE)
    return root


def build(root, cache, variants=(VARIANT,), progress=lambda line: None):
    return build_variants(root, variants, cache, 120, 2, progress)


def test_ptx_and_cubin_of_the_kernel_s_entry(tree, tmp_path):
    lines = []
    (result,) = build(tree, tmp_path / "cache", progress=lines.append)
    assert result.error is None
    assert not result.cached
    ptx = Path(result.ptx).read_text()
    assert f".entry {VARIANT.entry}(" in ptx
    assert ".target sm_100a" in ptx
    assert Path(result.cubin).read_bytes()[:4] == b"\x7fELF"
    assert result.resources is not None
    assert result.resources.registers > 0
    assert result.resources.shared_static == 0
    assert result.combine_resources is not None
    assert result.combine_resources.shared_static == 32
    assert "-DFMHA_HEAD_DIM=64" in result.flags
    assert result.source_hash == hash_sources(tree)
    assert "release" in result.nvcc
    assert any("built in" in line for line in lines)


def test_progress_counts_and_names_what_is_still_to_be_built(tree, tmp_path):
    variants = [replace(VARIANT, name=f"probe{n}") for n in range(5)]
    lines = []
    build(tree, tmp_path / "cache", variants, lines.append)
    done = lines[1:]
    assert [line.split()[0] for line in done] == [f"[{n}/5]" for n in range(1, 6)]
    finished = set()
    for line in done:
        finished.add(line.split()[1].rstrip(":"))
        assert not finished & set(re.findall(r"probe\d", line.partition(" s left for ")[2])), "done, yet still to come"
    assert "left for" not in done[-1]
    assert re.search(r"; about \d+ s left for probe\d, probe\d, probe\d( and 1 more)?$", done[0])


def test_neither_artefact_knows_where_the_checkout_is(tree, tmp_path):
    (result,) = build(tree, tmp_path / "cache")
    assert str(tmp_path).encode() not in Path(result.ptx).read_bytes()
    assert str(tmp_path).encode() not in Path(result.cubin).read_bytes()
    assert f'"{VARIANT.source}"' in Path(result.ptx).read_text()


def test_a_second_build_comes_from_the_cache_wherever_the_checkout_is(tree, tmp_path):
    (first,) = build(tree, tmp_path / "cache")
    moved = tree.rename(tmp_path / "moved")
    (second,) = build(moved, tmp_path / "cache")
    assert second.cached
    assert first.processor_seconds is not None
    assert 0.05 < first.processor_seconds < 60, "of nvcc's own processes, which are behind the wall"
    assert second.processor_seconds is None, "what comes from the cache has no time"
    assert (second.ptx, second.cubin, second.resources) == (first.ptx, first.cubin, first.resources)
    assert second.combine_resources == first.combine_resources


@pytest.mark.parametrize("change", ["header", "define", "new file"])
def test_what_decides_the_outcome_is_in_the_key(tree, tmp_path, change):
    build(tree, tmp_path / "cache")
    variant = VARIANT
    if change == "header":
        header = tree / "kernel" / "include" / "probe.h"
        header.write_text(header.read_text().replace("return x", "return 2 * x"))
    elif change == "define":
        variant = dataclasses.replace(VARIANT, defines=(("FMHA_HEAD_DIM", "65"),))
    else:
        (tree / "kernel" / "include" / "more.h").write_text("")
    (result,) = build(tree, tmp_path / "cache", (variant,))
    assert not result.cached
    assert result.error is None


def test_a_corrupt_entry_is_built_again(tree, tmp_path):
    (first,) = build(tree, tmp_path / "cache")
    with Path(first.cubin).open("r+b") as file:
        file.write(b"\0\0\0\0")
    (second,) = build(tree, tmp_path / "cache")
    assert not second.cached
    assert Path(second.cubin).read_bytes()[:4] == b"\x7fELF"
    assert build(tree, tmp_path / "cache")[0].cached


def test_what_the_compiler_warns_of_is_told_from_the_cache_too(tree, tmp_path):
    source = tree / VARIANT.source
    source.write_text(source.read_text() + "__device__ void odd() { int never_read = 1; }\n")
    lines = []
    for _ in range(2):
        (result,) = build(tree, tmp_path / "cache", progress=lines.append)
        assert len(warnings(result)) == 1
        assert "never_read" in lines[-1]
        assert "; 1 warned of, first: " in lines[-1]
    assert result.cached


def test_a_compile_error_is_a_headline_and_takes_no_other_variant_down(tree, tmp_path):
    (tree / "kernel" / "sm100" / "bad.cu").write_text("int main( {\n")
    bad = dataclasses.replace(VARIANT, name="bad", source="kernel/sm100/bad.cu")
    first, second = build(tree, tmp_path / "cache", (bad, VARIANT))
    assert first.error is not None
    assert first.error.splitlines()[0].startswith("kernel/sm100/bad.cu(1): error:")
    assert (first.ptx, first.cubin, first.resources) == ("", "", None)
    assert second.error is None


def test_a_missing_entry_is_an_error(tree, tmp_path):
    variant = dataclasses.replace(VARIANT, entry="elsewhere")
    (result,) = build(tree, tmp_path / "cache", (variant,))
    assert result.error is not None
    assert "there is no elsewhere; there are fmha_fwd_sm100_hd64_ptmem" in result.error.splitlines()[0]


def test_flags_from_the_environment_do_not_reach_the_compiler(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DFMHA_HEAD_DIM=nonsense")
    (result,) = build(tree, tmp_path / "cache")
    assert result.error is None


def test_nothing_but_the_entry_stays(tree, tmp_path):
    before = set(psutil.Process().children(recursive=True))  # servers of other tests
    (result,) = build(tree, tmp_path / "cache")
    entry = Path(result.ptx).parent
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {".lock", ".hashes.json", entry.name}
    made = {f"{VARIANT.name}.ptx", f"{VARIANT.name}.cubin"}
    assert {path.name for path in entry.iterdir()} == made | {"manifest.json", "compiler.log"}
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.skipif(not PACKAGED.is_file(), reason="the nvcc of PyPI is not installed here")
def test_the_packaged_nvcc_builds_the_real_kernel(repository, tmp_path, monkeypatch):
    # A PATH with a C++ compiler and the shell, and without nvcc.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("FMHA_NVCC", raising=False)
    assert shutil.which("nvcc") is None
    (result,) = build(repository, tmp_path / "cache")
    assert result.error is None
    assert result.resources is not None
    assert (result.resources.spill_stores, result.resources.spill_loads) == (0, 0)
