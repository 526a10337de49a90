"""Large modules, of which an entry's body is parsed at the first look at it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fmha.emulator import Device, PtxError, load_ptx
from fmha.emulator.ptx import parse
from fmha.emulator.ptx.deferred import LARGE, DeferredFunction, entry_bodies
from fmha.emulator.ptx.parsed_module import ParsedModule

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
.shared .b32 slot;
.func (.param .b32 r) twice(.param .b32 x)
{
.reg .b32 %r<3>; ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;
}
"""
_ENTRY = """.visible .entry k{n}(.param .u64 out)
.maxntid 32
{{ // a brace in a comment: }}
.pragma "nounroll";
.reg .b32 %r<4>; .reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
mov.b32 %r1, {n};
{{
.param .b32 in; .param .b32 back;
st.param.b32 [in], %r1;
call (back), twice, (in);
ld.param.b32 %r2, [back];
}}
{padding}
st.global.b32 [%rd1], %r2;
ret;
}}
"""


def text_of(entries: int, broken: int = -1) -> str:
    padding = "add.u32 %r3, %r1, 1;\n" * (LARGE // 20 // entries + 1)
    texts = [_ENTRY.format(n=n, padding="nothing %r0;\n" if n == broken else padding) for n in range(entries)]
    return _HEAD + "".join(texts)


def pending(module: ParsedModule) -> set[str]:
    """Of a module that is large, the entries that nobody has looked at."""
    return {name for name, f in module.functions.items() if isinstance(f, DeferredFunction) and f.pending}


def test_an_entry_is_what_it_is_in_a_module_that_is_parsed_whole() -> None:
    text = text_of(3)
    module = parse(text)
    assert pending(module) == {"k0", "k1", "k2"}
    whole = parse(text.replace("add.u32 %r3, %r1, 1;", ""))  # so short that all is parsed
    assert not pending(whole)
    assert whole.functions["k1"].line == module.functions["k1"].line
    assert pending(module) == {"k0", "k1", "k2"}, "its head says that"
    body = [i for i in module.functions["k1"].body if i.opcode != "add"]
    assert body == list(whole.functions["k1"].body), "lines, operands, names"
    assert module.functions["k1"].directives == whole.functions["k1"].directives
    assert module.functions["k1"].registers.keys() > whole.functions["k1"].registers.keys()
    assert pending(module) == {"k0", "k2"}


def test_a_launch_parses_its_own_kernel() -> None:
    device = Device()
    out = device.alloc(4, "out", zeroed=True)
    module = load_ptx(text_of(20))
    assert module.entries["k7"].max_threads == 32
    assert device.launch(module, "k7", 1, 1, [out.address]).ok
    assert device.read(out.address, 4).view("u4")[0] == 14
    assert pending(module.parsed) == {f"k{n}" for n in range(20)} - {"k7"}


def test_what_is_wrong_in_a_body_is_told_of_its_kernel_alone() -> None:
    text = text_of(20, broken=3)
    module = load_ptx(text)
    device = Device()
    out = device.alloc(4, "out", zeroed=True)
    assert device.launch(module, "k2", 1, 1, [out.address]).ok
    with pytest.raises(PtxError, match="nothing") as refused:
        device.launch(module, "k3", 1, 1, [out.address])
    assert refused.value.line == text[: text.index("nothing")].count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        ".entry a() { ret; }\n.entry a() { ret; }",  # twice
        ".entry a() { ret; ",  # without an end
    ],
)
def test_what_cannot_be_told_apart_is_parsed_whole(text: str) -> None:
    assert entry_bodies(text) == {}


def test_an_entry_that_is_declared_alone_takes_no_other_functions_body() -> None:
    """As nvcc -rdc=true declares a kernel of another module that this one launches."""
    text = text_of(2).replace(_HEAD, _HEAD.replace(".func (", ".extern .entry other(.param .u64 a);\n.func ("))
    text = text.replace(".visible .entry k1", "/* as\n.entry k1(\nhas { */\n.visible .entry k1")
    module = parse(text)
    assert pending(module) == {"k0", "k1"}
    assert len(module.functions["twice"].body) == len(parse(_HEAD).functions["twice"].body) > 0
    assert len(module.functions["k1"].body) > LARGE // 40


def test_what_is_wrong_within_a_body_is_told_at_each_look() -> None:
    module = parse(text_of(2, broken=1).replace("nothing %r0;\n", "add.u32 %r1 %r2;\n" * (LARGE // 16)))
    for _ in range(2):
        with pytest.raises(PtxError):
            len(module.functions["k1"].body)


def test_threads_that_look_at_once_see_the_whole_body() -> None:
    function = parse(text_of(2)).functions["k0"]
    with ThreadPoolExecutor(4) as pool:
        lengths = set(pool.map(lambda _: len(function.body), range(4)))
    assert len(lengths) == 1
    assert lengths != {0}
