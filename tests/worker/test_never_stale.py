"""What a build has read decides whether it is taken again: with the real nvcc, and with a compiler of one's own."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fmha.harness.contract.protocol import LaunchShape, Variant
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.compilers.cache import CacheError
from fmha.harness.worker.compilers.flags import repeatable
from fmha.harness.worker.compilers.hashes import Hashes
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.compilers.sources import hash_sources
from fmha.harness.worker.compilers.toolchain import said_by, toolchain
from tests.integration.test_own_kernels import fmha, repository_with

pytestmark = pytest.mark.nvcc

KERNEL = """\
#include "listed.cuh"
#include "beside.cuh"
#include <outside.cuh>
#if __has_include("chosen.cuh")
#include "chosen.cuh"
#else
#define CHOSEN 0
#endif
#ifdef __CUDA_ARCH__
#include "device.cuh"
#endif
extern "C" __global__ void probe(int* p) { *p = LISTED + BESIDE + OUTSIDE + CHOSEN + device_only(); }
"""
VARIANT = Variant(
    "probe", "sm_90a", "kernels/probe.cu", "probe", None, None, LaunchShape(0, 0, 0, 0, 0),
    flags=("-std=c++17", "-Iearly", "-Iinclude", "-I../outside"), sources=("kernels/probe.cu", "include/listed.cuh"),
)  # fmt: skip


FILES = {
    "tree/kernels/probe.cu": KERNEL,
    "tree/include/listed.cuh": "#define LISTED 1000\n",
    "tree/include/beside.cuh": "#define BESIDE 200\n",
    "tree/include/device.cuh": "__device__ inline int device_only() { return 0; }\n",
    "tree/early/unrelated.cuh": "",
    "outside/outside.cuh": "#define OUTSIDE 30\n",
}


def lay_out(folder):
    """A repository whose kernel reads a header that it declares, others that it does not, and one that lies outside."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "tree"


@pytest.fixture
def tree(tmp_path):
    return lay_out(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A place, and beside it the cache after one build there."""
    place = tmp_path_factory.mktemp("first")
    assert stored(build(lay_out(place / "place"))) == 1230
    (place / "place" / "cache").rename(place / "cache")
    return place


@pytest.fixture
def built(first):
    """The repository and what one build has left: most tests are about the second. Always at one path, since what lies
    outside of the repository is known by its own."""
    shutil.rmtree(first / "place")
    tree = lay_out(first / "place")
    shutil.copytree(first / "cache", first / "place" / "cache")
    return tree


def build(tree, variant=VARIANT, said=None, cache=None):
    cache = cache or tree.parent / "cache"
    (result,) = build_variants(tree, [variant], cache, 300, 1, (said if said is not None else []).append)
    return result


def stored(result):
    """What the kernel stores."""
    assert result.error is None, result.error
    (value,) = re.findall(r"\bmov\.\w32\s+%r\d+, (\d+);", Path(result.ptx).read_text())
    return int(value)


CHANGES = {
    "listed": ("include/listed.cuh", "#define LISTED 2000\n", 2230),
    "unlisted": ("include/beside.cuh", "#define BESIDE 300\n", 1330),
    "outside": ("../outside/outside.cuh", "#define OUTSIDE 40\n", 1240),
    "shadows on the include path": ("early/beside.cuh", "#define BESIDE 400\n", 1430),
    "shadows beside the source": ("kernels/beside.cuh", "#define BESIDE 500\n", 1530),
    "shadows one from outside": ("include/outside.cuh", "#define OUTSIDE 50\n", 1250),
    "asked for by __has_include": ("include/chosen.cuh", "#define CHOSEN 4\n", 1234),
    "read for the device alone": ("include/device.cuh", "__device__ inline int device_only() { return 5; }\n", 1235),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_header_is_never_stale(built, change):
    assert stored(build(built)) == 1230
    assert build(built).cached
    name, text, wanted = CHANGES[change]
    (built / name).write_text(text)
    changed = build(built)
    assert not changed.cached
    assert stored(changed) == wanted
    assert build(built).cached


BY_MACRO = {
    "the name is a macro's value": '#define NAME "chosen.cuh"\n#if __has_include(NAME)\n',
    "a macro asks": '#define HAS(x) __has_include(x)\n#if HAS("chosen.cuh")\n',
    "a macro with another name": '#define HAS __has_include\n#if HAS("chosen.cuh")\n',
}


@pytest.mark.parametrize("asks", BY_MACRO.values(), ids=BY_MACRO)
def test_a_build_that_asks_by_a_macro_is_not_kept(tree, asks):
    """No reading of the text says for which file it asks, so that nobody knows when it appears."""
    source = tree / "kernels" / "probe.cu"
    source.write_text(KERNEL.replace('#if __has_include("chosen.cuh")\n', asks))
    assert stored(build(tree)) == 1230
    (tree / "include" / "chosen.cuh").write_text("#define CHOSEN 4\n")
    again = build(tree)
    assert not again.cached
    assert stored(again) == 1234


QUESTIONS = {
    "a line that goes on within the word": ("chosen.cuh", '__has_inc\\\nlude("chosen.cuh")', ""),
    "behind a blank": ("chosen.cuh", '__has_inc\\ \nlude("chosen.cuh")', ""),
    "by a trigraph": ("chosen.cuh", '__has_inc??/\nlude("chosen.cuh")', "-std=c++14 -Xcompiler -std=c++14"),
    "within the name": ("chosen.cuh", '__has_include("cho\\\nsen.cuh")', ""),
    "a name with the other mark": ("cho>sen.cuh", '__has_include("cho>sen.cuh")', ""),
    "a name that is no UTF-8": ("cho\udcffsen.cuh", '__has_include("cho\udcffsen.cuh")', ""),
    "a line that ends in a carriage return": ("chosen.cuh", '__has_inc\\\rlude("chosen.cuh")', ""),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_understood_however_it_is_written(tree, question):
    """As gcc reads it; a build whose question nobody saw would be taken though the file has come since."""
    name, asks, flags = QUESTIONS[question]
    body = KERNEL.replace('#if __has_include("chosen.cuh")\n#include "chosen.cuh"', f"#if {asks}\n#define CHOSEN 4")
    (tree / "kernels" / "probe.cu").write_bytes(os.fsencode(body))
    variant = replace(VARIANT, flags=(*flags.split(), *VARIANT.flags[bool(flags) :]))
    assert stored(build(tree, variant)) == 1230
    assert build(tree, variant).cached
    (tree / "kernels" / name).write_text("")
    assert stored(build(tree, variant)) == 1234


@pytest.mark.parametrize("name", ["-optf=kernels/o.cu", "@kernels/o.cu", "kernels/$(cat o).cu"])
def test_a_source_is_a_file_and_nothing_else(tree, name):
    """nvcc takes the first for a file of options, gcc the second, their shell carries out the third: flags and files
    come of it that no build would be kept by."""
    (tree / "kernels" / "o.cu").write_text("kernels/probe.cu")
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(KERNEL)
    result = build(tree, replace(VARIANT, source=name))
    assert result.error == f"error: compilers do not take {name!r} for the name of a file; give it another"


LONG = 1 << 20
TEXTS = {
    "a word": ("include/listed.cuh", f"// {'x' * LONG}\n#define LISTED 1000\n"),
    "words that may ask": ("include/listed.cuh", f"// {'HAS_INCLUDE' * (LONG // 11)}\n#define LISTED 1000\n"),
    "questions": ("include/listed.cuh", "// __has_include\n" * (LONG // 17) + "#define LISTED 1000\n"),
    "blank lines in PTX": (
        "include/device.cuh",
        'asm(".global .b32 odd;' + r"\n" * (LONG // 2) + '");\n__device__ inline int device_only() { return 0; }\n',
    ),
    "an error": ("include/listed.cuh", f"#error {'x ' * LONG}\n"),
    "a warning": ("include/listed.cuh", f"#warning {'x ' * LONG}\n#define LISTED 1000\n"),
}  # fmt: skip


@pytest.mark.timeout(240, method="thread")
@pytest.mark.parametrize("text", TEXTS)
def test_no_text_of_a_commit_takes_the_judge_the_square_of_its_length(tree, text):
    """A pattern that does holds the interpreter: nobody who wants to end the run is heard."""
    name, content = TEXTS[text]
    (tree / name).write_text(content)
    result = build(tree)
    assert (result.error is not None) is (text == "an error")


def test_to_ask_whether_one_can_ask_is_no_question(tree):
    source = tree / "kernels" / "probe.cu"
    source.write_text(
        f"#ifdef __has_include\n#if defined(__has_include) && defined __has_include\n#endif\n#endif\n{KERNEL}"
    )
    assert stored(build(tree)) == 1230
    assert build(tree).cached


def test_a_link_that_leads_out_counts_by_what_it_says(tree, tmp_path):
    """What is elsewhere is no source, and is not read."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("a")
    link = tree / "kernels" / "link.cuh"
    link.symlink_to(elsewhere)
    before = hash_sources(tree, ("kernels",))
    elsewhere.write_text("b")
    assert hash_sources(tree, ("kernels",)) == before
    link.unlink()
    link.symlink_to(tmp_path / "another")
    elsewhere.rename(tmp_path / "another")
    assert hash_sources(tree, ("kernels",)) != before


def test_what_was_there_before_is_found_again(built):
    first = build(built)
    header = built / "include" / "beside.cuh"
    text = header.read_text()
    header.write_text("#define BESIDE 300\n")
    assert not build(built).cached
    header.write_text(text)
    again = build(built)
    assert again.cached
    assert (again.ptx, again.source_hash) == (first.ptx, first.source_hash)


def test_a_file_that_no_build_reads_changes_nothing(built):
    build(built)
    (built / "include" / "other.cuh").write_text("#define OTHER 1\n")
    (built / "README.md").write_text("# Kernels\n")
    assert build(built).cached


def test_the_hash_of_the_sources_has_what_was_read_of_the_repository(built):
    first = build(built)
    read = ("include/beside.cuh", "include/device.cuh")
    assert first.source_hash == hash_sources(built, (*VARIANT.sources, *read))
    declared = replace(VARIANT, sources=("kernels", "include"))
    assert build(built, declared).source_hash == hash_sources(built, declared.sources)


def test_a_file_that_changes_while_it_is_compiled_is_not_taken_for_what_was_read(tree, tmp_path, monkeypatch):
    """The compiler has read it by the time it changes."""
    real = find_nvcc().path
    wrapper = tmp_path / "nvcc"
    header = tree / "include" / "beside.cuh"
    wrapper.write_text(
        f'#!/bin/sh\n{real} "$@" || exit\ncase "$*" in *-MD*) echo "#define BESIDE 300" >{header};; esac\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("FMHA_NVCC", str(wrapper))
    monkeypatch.setenv("FMHA_ISOLATION", "off")  # it could not write there
    assert stored(build(tree)) == 1230
    wrapper.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    second = build(tree)
    assert not second.cached
    assert stored(second) == 1330


@pytest.mark.parametrize("updated", ["wrapper", "program"])
def test_an_updated_compiler_of_the_same_version_builds_anew(tree, tmp_path, monkeypatch, updated):
    real = find_nvcc()
    roots = toolchain(real, said_by(real), Hashes(tmp_path)).roots
    kit = next(path for path in roots if (path / "bin" / "ptxas").is_file())
    mine = tmp_path / "kit"
    (mine / "bin").mkdir(parents=True)
    for path in kit.iterdir():
        if path.name != "bin":
            (mine / path.name).symlink_to(path)
    for path in (kit / "bin").iterdir():
        if path.name in ("nvcc", "nvcc.profile"):
            shutil.copy(path, mine / "bin" / path.name)
        else:
            (mine / "bin" / path.name).symlink_to(path)
    wrapper = tmp_path / "nvcc"
    wrapper.write_text(f'#!/bin/sh\nexec {mine}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("FMHA_NVCC", str(wrapper))
    first = build(tree)
    assert first.error is None
    assert build(tree).cached
    if updated == "wrapper":
        wrapper.write_text(f'#!/bin/sh\nexec {mine}/bin/nvcc -DFMHA_UPDATED=1 "$@"\n')
    else:
        assembler = mine / "bin" / "ptxas"
        assembler.unlink()
        assembler.write_text(f'#!/bin/sh\nexec {kit}/bin/ptxas "$@"\n')
        assembler.chmod(0o755)
    second = build(tree)
    assert second.nvcc == first.nvcc
    assert second.error is None
    assert not second.cached


def test_flags_under_which_nvcc_does_not_tell_what_it_reads_build_anew_each_time(tree, tmp_path):
    (tree / "flags.txt").write_text("-DLATER=1\n")
    variant = replace(VARIANT, flags=(*VARIANT.flags, "--options-file", "flags.txt"))
    for _ in range(2):
        result = build(tree, variant)
        assert stored(result) == 1230
        assert not result.cached


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("-O3", "-lineinfo", "-Ikernel", "-Xcompiler", "-Wall,-Wextra", "--expt-relaxed-constexpr"), True),
        (("-ccbin", "./evil"), False),
        (("-Xcompiler", "-Wall,-fplugin=./x.so"), False),
        (("-Xcompiler=-MF,elsewhere",), False),
        (("-MF", "elsewhere"), False),
        (("@flags.txt",), False),
        (("-forward-unknown-to-host-compiler", "-Bkernel/tools/"), False),
        (("-Bkernel/tools/",), False),
        (("-Xcompiler", "-DA -Bkernel/tools/"), False),
        (("-Xcompiler=-Wall,-Wp,-MF,elsewhere",), False),
        (("-Xcompiler", "-fmodule-mapper=./x"), False),
        (("-DA=1 -Bkernel/tools/",), False),
        (("-D", "A -Bkernel/tools/"), False),
        (("-I", "kernel -Bkernel/tools/"), False),
        (("-Xptxas", "-v,-optf,x"), False),
        (("-Xptxas=--options-file=x",), False),
        (("-Xcicc", "-x"), False),
        (("-Xcompiler",), False),
        (("-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas=-v,-O3", "--use_fast_math"), True),
        (("-D", "A=1", "-isystem", "/opt/cutlass/include", "-maxrregcount=128", "-Xcompiler", "-fPIC"), True),
    ],
)
def test_which_flags_hide_what_is_read(flags, expected):
    assert repeatable(flags) is expected


@pytest.mark.parametrize(
    "handing_on",
    [("-forward-unknown-to-host-compiler", "-Btools/"), ("-Xcompiler", "-DNDEBUG -Btools/")],
    ids=["forwarded", "behind a blank"],
)
def test_a_pass_of_the_host_compiler_that_a_commit_brings_is_never_stale(tree, handing_on):
    """gcc takes it for its own, and no list of includes names it."""
    real = subprocess.run(
        ["gcc", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (tree / "include" / "listed.cuh").write_text("#ifndef LISTED\n#define LISTED 1000\n#endif\n")
    own = tree / "tools" / "cc1plus"
    own.parent.mkdir()
    variant = replace(VARIANT, flags=(*VARIANT.flags, *handing_on))
    for more, wanted in (("", 1230), (" -DLISTED=2000", 2230)):
        own.write_text(f'#!/bin/sh\nexec {real} "$@"{more}\n')
        own.chmod(0o755)
        result = build(tree, variant)
        assert (stored(result), result.cached) == (wanted, False)


@pytest.mark.parametrize("space", ["\u00a0", "\t", "\u3000", " "], ids=ascii)
def test_a_header_with_any_space_in_its_name_is_never_stale(tree, space):
    """gcc's list for make has a backslash before some of them, and parts at few."""
    header = tree / "include" / f"a{space}b.cuh"
    (tree / "include" / "listed.cuh").write_text(f'#include "{header.name}"\n')
    for value in (1000, 2000):
        header.write_text(f"#define LISTED {value}\n")
        assert stored(build(tree)) == value + 230


def test_what_time_it_is_decides_nothing(tree):
    """Or a kernel could be right in some minutes, and kept in one of them."""
    (tree / "include" / "listed.cuh").write_text("#define LISTED 1000 + sizeof(__DATE__) * 0 + (__TIME__)[4] - '0'\n")
    assert stored(build(tree)) == 1230
    (tree / "include" / "beside.cuh").write_text('#define BESIDE 200 + 0 * sizeof("" __TIMESTAMP__)\n')
    assert not [build(tree).cached for _ in range(2) if build(tree).cached]


def test_a_question_for_a_fifo_or_a_device_waits_for_nobody(tree, tmp_path):
    """The judge itself looks whether what was asked for is there, and the author names any path."""
    os.mkfifo(tmp_path / "fifo")
    asked = " ".join(f'__has_include("{path}")' for path in (tmp_path / "fifo", "/proc/kmsg", "/dev/full"))
    (tree / "include" / "listed.cuh").write_text(f"#define LISTED 1000\n// {asked}\n")
    assert stored(build(tree)) == 1230
    assert build(tree).cached


def test_good_ptx_that_a_commit_brings_is_not_taken(built, monkeypatch):
    """Under the very names that its broken source is cached by."""
    good = build(built)
    source = built / VARIANT.source
    source.write_text(source.read_text().replace("LISTED + ", "LISTED - "))
    broken = build(built)
    assert stored(broken) == 830
    for name in (Path(broken.ptx).parent.name, f"{VARIANT.name}-{'0' * 32}"):
        for folder in ("cache", "builds"):
            shutil.copytree(Path(good.ptx).parent, built / ".fmha" / folder / name)
    shutil.rmtree(built.parent / "cache")
    rebuilt = build(built)
    assert (rebuilt.cached, stored(rebuilt)) == (False, 830)
    with pytest.raises(CacheError, match="lies in the tree that is judged, so that a commit could bring what is in it"):
        build(built, cache=built / ".fmha" / "cache")


@pytest.mark.parametrize("damage", ["ptx", "log", "inputs", "another's"])
def test_an_entry_that_was_tampered_with_is_built_again_with_a_word(built, damage):
    first = build(built)
    entry = Path(first.ptx).parent
    good = Path(first.ptx).read_bytes()
    if damage == "ptx":
        Path(first.ptx).write_bytes(good.replace(b"1230", b"1231"))
    elif damage == "log":
        (entry / "compiler.log").write_text("")
    elif damage == "inputs":
        manifest = entry / "manifest.json"
        manifest.write_text(manifest.read_text().replace("include/beside.cuh", "include/device.cuh"))
    else:  # of another source, under the name of this one
        (built / "include" / "beside.cuh").write_text("#define BESIDE 300\n")
        other = Path(build(built).ptx).parent
        (built / "include" / "beside.cuh").write_text("#define BESIDE 200\n")
        shutil.rmtree(entry)
        other.rename(entry)
    said = []
    second = build(built, said=said)
    assert not second.cached
    assert Path(second.ptx).read_bytes() == good
    assert [line for line in said if "is damaged and is not taken" in line and str(entry) in line], said
    assert build(built).cached


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_cache_that_others_may_write_is_refused(tree, mode):
    cache = tree.parent / "cache"
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(CacheError, match="can be written by other accounts; chmod go-w"):
        build(tree)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_cache_of_another_account_is_refused(tree):
    cache = tree.parent / "cache"
    cache.mkdir(mode=0o755)
    os.chown(cache, 65534, 65534)
    with pytest.raises(CacheError, match=r"belongs to another account \(uid 65534\)"):
        build(tree)


def test_a_new_cache_is_the_account_s_alone(tree):
    build(tree)
    assert (tree.parent / "cache").stat().st_mode & 0o777 == 0o700


ADAPTER = """\
import sys
from pathlib import Path
import fmha
sys.path.insert(0, str(Path(__file__).parent / "lib"))
import helper
import package.part
class Own(fmha.Kernel):
    source = "own.py"
    fields = (fmha.Field("n"),)
    def build(self, case, arch): return fmha.Build("probe")
    def compile(self, case, arch):
        value = helper.VALUE + package.part.VALUE + int((Path(__file__).parent / "data.txt").read_text())
        return PTX.replace("VALUE", str(value))
    def inputs(self, case, random): return {}
    def outputs(self, case): return {}
    def launches(self, case): return []
    def reference(self, case, inputs): return {}
PTX = '''
.version 8.0
.target sm_90a
.address_size 64
.visible .entry probe(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.b32 %r1, VALUE;
  st.global.b32 [%rd1], %r1;
  ret;
}
'''
"""
OWN = replace(
    VARIANT,
    name="own",
    source="own.py",
    sources=("own.py",),
    flags=("-O3",),
    compiler="own.py:Own own",
    example="own_n1",
)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A repository whose adapter compiles with a helper module, a package of the environment's and a file of data."""
    files = {
        "own/own.py": ADAPTER,
        "own/lib/helper.py": "VALUE = 1000\n",
        "own/data.txt": "4\n",
        "site-packages/package/__init__.py": "",
        "site-packages/package/part.py": "VALUE = 230\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = [str(tmp_path / "site-packages"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    return tmp_path / "own"


EARLIER = """\
import sys, types
part = sys.modules["package.part"] = types.SimpleNamespace(VALUE=430)
"""
OTHERS = {
    "a helper module": ("lib/helper.py", "VALUE = 2000\n", 2234),
    "a package of the environment": ("../site-packages/package/part.py", "VALUE = 330\n", 1334),
    "a file of data": ("data.txt", "5\n", 1235),
    "a package that comes earlier": ("lib/package/__init__.py", EARLIER, 1434),
    "a package beside a module of its name": ("lib/helper/__init__.py", "VALUE = 3000\n", 3234),
}


@pytest.mark.parametrize("change", OTHERS)
def test_what_another_compiler_reads_is_never_stale(own, change):
    assert stored(build(own, OWN)) == 1234
    assert build(own, OWN).cached
    name, text, wanted = OTHERS[change]
    path = own / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    changed = build(own, OWN)
    assert not changed.cached
    assert stored(changed) == wanted


LOOKS = {
    "whether a file is there": 'int((HERE / "tuned.json").exists())',
    "whether a file is there, by a link's own": 'int(os.path.lexists(HERE / "tuned.json"))',
    "whether it may be read": 'int(os.access(HERE / "tuned.json", os.R_OK))',
    "how long a file is": '(HERE / "tuned.json").stat().st_size // 2 if os.path.isfile(HERE / "tuned.json") else 0',
    "what is in a folder": 'sum(name.startswith("tuned") for name in os.listdir(HERE))',
    "what matches": 'len(list(HERE.glob("tuned*")))',
    "whether a folder is there": 'int((HERE / "tuned.json").is_dir() or (HERE / "tuned.json").is_file())',
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("first", ["there", "not there"])
def test_what_another_compiler_looks_for_is_never_stale(own, look, first):
    """A kernel that is tuned where a file says how, and has defaults where none does: either change builds it anew."""
    source = own / "own.py"
    text = source.read_text().replace("import sys\n", "import os, sys\n")
    text = text.replace("class Own", "HERE = Path(__file__).parent\nclass Own")
    source.write_text(text.replace("str(value)", f"str(value + ({LOOKS[look]}))"))
    tuned = own / "tuned.json"
    for there in (True, False) if first == "there" else (False, True):
        tuned.write_text("{}") if there else tuned.unlink(missing_ok=True)
        result = build(own, OWN)
        assert (stored(result), result.cached) == (1234 + there, False)
    assert build(own, OWN).cached


@pytest.mark.parametrize("look", ["whether a file is there", "what is in a folder"])
def test_what_another_compiler_looks_for_counts_in_each_checkout(own, look):
    """A host has a worktree for each run, and one cache for all."""
    source = own / "own.py"
    text = source.read_text().replace("import sys\n", "import os, sys\n")
    text = text.replace("class Own", "HERE = Path(__file__).parent\nclass Own")
    source.write_text(text.replace("str(value)", f"str(value + ({LOOKS[look]}))"))
    same, tuned = (shutil.copytree(own, own.with_name(name)) for name in ("same", "tuned"))
    (tuned / "tuned.json").write_text("{}")
    assert stored(build(own, OWN)) == 1234
    assert build(same, OWN).cached, "nothing of where a checkout lies is in what was read"
    assert stored(build(tuned, OWN)) == 1235


def test_a_folder_that_another_compiler_has_found_is_asked_for_again(own):
    source = own / "own.py"
    text = source.read_text().replace("import sys\n", "import os, sys\n")
    source.write_text(text.replace("str(value)", 'str(value + os.path.isdir(Path(__file__).parent / "tuned"))'))
    (own / "tuned").mkdir()
    assert stored(build(own, OWN)) == 1235
    (own / "tuned" / "new").write_text("")
    assert build(own, OWN).cached
    (own / "tuned" / "new").unlink()
    (own / "tuned").rmdir()
    assert stored(build(own, OWN)) == 1234


def test_where_a_sandbox_is_required_the_whole_tree_counts_for_another_compiler(own, monkeypatch):
    monkeypatch.setenv("FMHA_ISOLATION", "require")
    assert not build(own, OWN).cached
    assert build(own, OWN).cached
    (own / "unread.bin").write_text("x")
    assert not build(own, OWN).cached


OWN_FOLDER = "import sys\nsys.path.insert(0, __file__.rpartition('/')[0])\n"


@pytest.mark.triton
def test_a_helper_module_of_triton_s_is_never_stale(tmp_path):
    root = repository_with("triton", tmp_path / "ours")
    (root / "helpers.py").write_text("import triton\n@triton.jit\ndef scaled(x):\n    return x\n")
    source = root / "attention.py"
    text = source.read_text().replace("tl.exp2(top - higher)", "scaled(tl.exp2(top - higher))")
    source.write_text(f"from helpers import scaled\n{text}")
    assert taken_again(root) == {False}
    assert taken_again(root) == {True}
    (root / "helpers.py").write_text((root / "helpers.py").read_text().replace("return x", "return 2 * x"))
    assert taken_again(root) == {False}


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed here")
def test_a_package_of_cute_s_is_never_stale(tmp_path):
    root = repository_with("cute", tmp_path / "ours")
    (root / "layouts").mkdir()
    (root / "layouts" / "__init__.py").write_text("TILE = 1\n")
    source = root / "fmha_kernels.py"
    source.write_text(f"{source.read_text()}{OWN_FOLDER}import layouts\n")
    assert taken_again(root) == {False}
    assert taken_again(root) == {True}
    (root / "layouts" / "__init__.py").write_text("TILE = 2\n")
    assert taken_again(root) == {False}


def taken_again(root):
    """Whether a run of what is in the folder takes its builds from the cache."""
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    return {variant["cached"] for variant in json.loads(ran.stdout)["variants"]}


def test_a_file_is_hashed_again_until_it_has_settled(tmp_path):
    file = tmp_path / "file"
    file.write_text("one")
    hashes = Hashes(tmp_path)
    first = hashes.of(str(file))
    facts = file.stat()
    with file.open("r+") as opened:
        opened.write("two")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert hashes.of(str(file)) != first
    assert hashes.of(str(tmp_path / "none")) == ""
