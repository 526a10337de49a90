"""The Python mirror of the C ABI against what a C++ compiler makes of the headers."""

import struct
import subprocess

import pytest

from harness.worker import params

ZERO_MAP = bytes(params.TENSOR_MAP_BYTES)


def ask_compiler(repository, folder, expressions):
    """The integer values of C++ expressions over fmha_params.h and fmha_launch.h."""
    lines = "\n".join(f'std::printf("%lld\\n", static_cast<long long>({text}));' for text in expressions)
    source = folder / "ask.cpp"
    source.write_text(
        f'#include <cstddef>\n#include <cstdio>\n#include "fmha_params.h"\n#include "fmha_launch.h"\n'
        f"int main() {{\n{lines}\n}}\n"
    )
    include = f"-I{repository / 'kernel' / 'include'}"
    subprocess.run(["g++", "-std=c++17", include, "-o", folder / "ask", source], check=True, timeout=120)
    answer = subprocess.run([folder / "ask"], check=True, capture_output=True, text=True, timeout=60)
    return [int(line) for line in answer.stdout.split()]


def test_every_field_lies_where_the_header_puts_it(repository, tmp_path):
    questions, expected = ["sizeof(FmhaParams)"], [params.PARAMS_BYTES]
    for name, offset, kind in params.LAYOUT:
        questions += [f"offsetof(FmhaParams, {name})", f"sizeof(FmhaParams::{name})"]
        expected += [offset, struct.calcsize(f"<{kind}")]
    assert ask_compiler(repository, tmp_path, questions) == expected


def test_the_header_has_no_other_field(repository):
    text = (repository / "kernel" / "include" / "fmha_params.h").read_text()
    body = text.partition("struct FmhaParams {")[2].partition("};")[0]
    declared = [line.partition(";")[0].split()[-1] for line in body.splitlines() if ";" in line]
    assert declared == [name for name, _, _ in params.LAYOUT]


def test_launch_constants_are_the_header_s(repository, tmp_path):
    mirror = {
        "kFmhaThreadsPerCta": params.THREADS_PER_CTA,
        "kFmhaRowsPerCta": params.ROWS_PER_CTA,
        "kFmhaKeysPerTile": params.KEYS_PER_TILE,
        "kFmhaKvStages": params.KV_STAGES,
        "kFmhaSharedAlignment": params.SHARED_ALIGNMENT,
        "kFmhaSharedControlBytes": params.SHARED_CONTROL_BYTES,
        "fmha_dynamic_shared_bytes(64)": params.dynamic_shared_bytes(64),
        "fmha_dynamic_shared_bytes(128)": params.dynamic_shared_bytes(128),
    }
    assert ask_compiler(repository, tmp_path, list(mirror)) == list(mirror.values())


def test_packs_each_field_at_its_offset():
    packed = params.FmhaParams(b"q" * 128, b"k" * 128, b"v" * 128, 1, 2, 3, 2**40, 5, 6, 0.125, 7).pack()
    assert len(packed) == params.PARAMS_BYTES
    assert packed[127:129] == b"qk"
    assert struct.unpack_from("<4Q2ifi", packed, 384) == (1, 2, 3, 2**40, 5, 6, 0.125, 7)


def test_refuses_a_short_tensor_map():
    with pytest.raises(ValueError, match="v: a tensor map has 128 bytes, not 3"):
        params.FmhaParams(ZERO_MAP, ZERO_MAP, b"abc", 0, 0, 0, 0, 1, 1, 1.0).pack()
