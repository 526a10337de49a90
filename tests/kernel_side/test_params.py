"""What Python reads of the C ABI against what a C++ compiler makes of the same headers."""

import dataclasses
import itertools
import struct
import subprocess

import pytest

from fmha.harness.contract.protocol import LaunchShape
from fmha.harness.kernel_side import abi, params

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


def test_a_changed_header_changes_the_layout(repository, tmp_path):
    """Another field, another order, another constant: Python has what the compiler has, and nothing else is changed."""
    text = (repository / abi.PARAMS_HEADER).read_text()
    changed = text.replace(
        "    int32_t t;\n", "    const float* pointer_of_mine;  // more\n    int32_t t;\n    float number_of_mine;\n"
    )
    changed = changed.replace("kFmhaScattered = 1u << 5", "kFmhaScattered = 1u << 9")
    include = tmp_path / "kernel" / "include"
    include.mkdir(parents=True)
    (include / "fmha_params.h").write_text(changed)
    (include / "fmha_launch.h").write_bytes((repository / abi.LAUNCH_HEADER).read_bytes())
    layout, size = abi.layout_of(changed)
    questions, expected = ["sizeof(FmhaParams)", "kFmhaScattered"], [size, abi.constants_of(changed)["Scattered"]]
    for name, offset, kind in layout:
        questions += [f"offsetof(FmhaParams, {name})", f"sizeof(FmhaParams::{name})"]
        expected += [offset, struct.calcsize(f"<{kind}")]
    assert ask_compiler(tmp_path, tmp_path, questions) == expected
    assert {name for name, _, _ in layout} - {name for name, _, _ in params.LAYOUT} == {
        "pointer_of_mine",
        "number_of_mine",
    }
    assert layout != params.LAYOUT


def test_a_field_that_is_not_understood_is_an_error():
    """Neither an array nor a double is read as something else, nor is a struct that is gone."""
    text = abi.header(abi.PARAMS_HEADER).read_text()
    for line in ("double scale;", "int32_t window[2];", "int32_t a, b;", "FmhaSide side;"):
        with pytest.raises(ValueError, match="is no field of a type that is known here"):
            abi.layout_of(text.replace("int32_t splits;", line))
    with pytest.raises(ValueError, match="no struct FmhaParams"):
        abi.layout_of(text.replace("struct FmhaParams {", "struct Params {"))


DERIVED = {f"{name}_{part}" for name in ("heads", "kv_heads") for part in ("multiplier", "shift")}


def test_whoever_packs_names_the_header_s_fields():
    """All but what is computed of the others; and what no launch goes without."""
    least = {"q": ZERO_MAP, "o": 0, "batch": 1, "t": 1, "s_k": 1, "scale": 1.0, "head_dim": 64}
    assert len(params.FmhaParams(**least).pack()) == params.PARAMS_BYTES
    for name in ("windw_left", "heads_shift"):
        with pytest.raises(TypeError, match=f"fmha_params.h has no {name}"):
            params.FmhaParams(**least, **{name: 1})
    for name in least:
        with pytest.raises(TypeError, match=f"every launch has {name}"):
            params.FmhaParams(**{other: value for other, value in least.items() if other != name})


def of_fields(shape, mine):
    return {f"{shape}.{name}": value for name, value in dataclasses.asdict(mine).items()}


def test_launch_shapes_are_the_header_s(repository, tmp_path):
    mirror = {
        "kFmhaCombineThreads": params.COMBINE_THREADS,
        "kFmhaSharedAlignment": params.SHARED_ALIGNMENT,
    }
    own = [(head_dim, path, 0) for head_dim, path in itertools.product((64, 128, 256, 512), ("tmem", "smem"))]
    for head_dim, p_path, asked in (*own, *((head_dim, "smem", rows) for head_dim, rows in params.SM100_FEW_ROWS)):
        shape = f"fmha_sm100_shape({head_dim}, {'true' if p_path == 'smem' else 'false'}, {asked})"
        mine = params.sm100_shape(head_dim, p_path, asked)
        mirror[f"fmha_sm100_ctas_per_sm({head_dim}, {asked})"] = params.sm100_ctas_per_sm(head_dim, asked)
        mirror |= of_fields(shape, mine)
        for t, heads, topk in ((1, 1, 0), (3, 64, 0), (129, 1, 0), (3, 130, 0), (3, 1, 8), (2, 130, 8), (2, 128, 8)):
            blocks = params.query_blocks(mine, t, heads, topk)
            mirror[f"fmha_query_blocks({shape}, {t}, {heads}, {topk})"] = blocks
    for head_dim in (64, 128):
        shape = f"fmha_sm100_prefill_shape({head_dim})"
        mirror |= of_fields(shape, params.sm100_prefill_shape(head_dim))
    for head_dim, rows in params.SM100_PAIRS:
        mirror |= of_fields(f"fmha_sm100_pair_shape({head_dim}, {rows})", params.sm100_pair_shape(head_dim, rows))
    assert ask_compiler(repository, tmp_path, list(mirror)) == list(mirror.values())


def test_a_changed_shape_changes_python_s(repository, tmp_path):
    """Another number, a choice among three, a group: what the compiler makes of it is what Python has."""
    text = (repository / abi.LAUNCH_HEADER).read_text()
    changed = text.replace("rows = 256, keys = 128, stages = head_dim == 64 ? 8 : 4", "rows = 3 * (64 + 64), keys = 64,"
                           " stages = head_dim == 64 ? 9 : head_dim < 128 && rows / 5 > 3 ? 7 : 5")  # fmt: skip
    assert changed != text
    include = tmp_path / "kernel" / "include"
    include.mkdir(parents=True)
    (include / "fmha_launch.h").write_text(changed)
    (include / "fmha_params.h").write_bytes((repository / abi.PARAMS_HEADER).read_bytes())
    made = abi.functions_of(changed, abi.constants_of(changed))["fmha_sm100_prefill_shape"]
    mirror = {}
    for head_dim in (64, 100, 128):
        mirror |= of_fields(f"fmha_sm100_prefill_shape({head_dim})", LaunchShape(*made(head_dim)))
    assert ask_compiler(tmp_path, tmp_path, list(mirror)) == list(mirror.values())
    assert [made(head_dim)[2] for head_dim in (64, 100, 128)] == [9, 7, 5]
    with pytest.raises(ValueError, match=r"fmha_sm100_prefill_shape of .* is not understood"):
        abi.functions_of(changed.replace("return {rows", "for (;;) return {rows", 3), {})


def test_a_shape_that_is_not_read_is_an_error():
    """Python reads the header as text: each row that the compiler sees is one that it has, with every figure."""
    text = abi.header(abi.SM90_TABLE).read_text()
    assert text.count("SHAPE(") == len(params.SM90_SHAPES)
    with pytest.raises(TypeError, match="registers"):
        params._sm90_shapes(text.replace(".registers = 160, ", ""))


def test_flags_are_the_header_s(repository, tmp_path):
    mirror = {
        "kFmhaNormalise": params.NORMALISE,
        "kFmhaOutputBf16": params.OUTPUT_BF16,
        "kFmhaSharedKv": params.SHARED_KV,
        "kFmhaPartialF16": params.PARTIAL_F16,
        "kFmhaByHead": params.BY_HEAD,
        "kFmhaScattered": params.SCATTERED,
        "kFmhaUnlimited": params.UNLIMITED,
    }
    assert ask_compiler(repository, tmp_path, list(mirror)) == list(mirror.values())


def test_query_blocks_by_hand():
    shape = params.sm100_shape(512, "smem")  # 64 rows
    assert params.query_blocks(shape, t=3, heads=64, topk=0) == 3
    assert params.query_blocks(shape, t=1, heads=65, topk=0) == 2
    assert params.query_blocks(shape, t=3, heads=16, topk=0) == 1  # three queries of 16 heads fit one CTA
    assert params.query_blocks(shape, t=3, heads=16, topk=4) == 3  # but each has a list of its own
    assert params.query_blocks(shape, t=3, heads=65, topk=4) == 6


def test_packs_each_field_at_its_offset():
    of_kind = {"Q": lambda i: 2**33 + i, "i": lambda i: i - 5, "I": lambda i: 2**31 + i, "f": lambda i: i / 8}
    of_kind["128s"] = lambda i: bytes([1 + i]) * 128
    values = {name: of_kind[kind](i) for i, (name, _, kind) in enumerate(params.LAYOUT) if name not in DERIVED}
    packed = params.FmhaParams(**values).pack()
    for name in ("heads", "kv_heads"):
        values |= zip((f"{name}_multiplier", f"{name}_shift"), params.divisor(values[name]), strict=True)
    assert len(packed) == params.PARAMS_BYTES
    assert packed[127:129] == b"\1\2"
    for name, offset, kind in params.LAYOUT:
        assert struct.unpack_from(f"<{kind}", packed, offset)[0] == values[name], name


def test_refuses_a_short_tensor_map():
    with pytest.raises(ValueError, match="v: a tensor map has 128 bytes, not 3"):
        params.FmhaParams(q=ZERO_MAP, v=b"abc", o=0, batch=1, t=1, s_k=1, scale=1.0, head_dim=64).pack()
