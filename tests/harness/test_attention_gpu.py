"""fmha.attention on GPUs: graphs, threads, several devices, and what it refuses there."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.attention_calls import Call, bf16, int32, loaded, near
from tests.harness.test_attention_head_dims import CALLS as OF_HEAD_DIMS

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import attention, plan

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.nvcc]


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    from tests.harness import test_attention_head_dims as head_dims

    with loaded(build_cache, globals()), loaded(build_cache, vars(head_dims)):
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device here")
        yield


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process whose first call is the one of the test."""
    from fmha.harness.attention import plans, workspace

    monkeypatch.setattr(plans, "_plans", {})
    for name in ("_scratches", "_spare_counts", "_stream_counts"):
        monkeypatch.setattr(workspace, name, {})
    torch._dynamo.reset()


def on(device: str, call: Call) -> Call:
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in call.items()}


def drawn(seed: int, *sizes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [bf16(generator, *size) for size in sizes]


def made(name: str, seed: int = 0) -> Call:
    """A call whose launches are of the kind that it is named for: they differ in what they need beside tensors."""
    if name == "splits":  # partial results and a combine kernel
        q, k, v = drawn(seed, (2, 1, 32, 128), (2, 8192, 128), (2, 8192, 128))
        return {"q": q, "k": k, "v": v}
    if name == "splits, bf16, head_dim between":
        q, k, v = drawn(seed, (2, 1, 32, 96), (2, 8192, 96), (2, 8192, 96))
        return {"q": q, "k": k, "v": v, "output_dtype": torch.bfloat16, "statistics": "lse"}
    if name == "row tiles are drawn":  # a count
        q, k, v = drawn(seed, (4, 1024, 16, 128), (4, 1024, 4, 128), (4, 1024, 4, 128))
        return {"q": q, "k": k, "v": v, "causal": True}
    if name == "balanced splits":
        q, k, v = drawn(seed, (24, 1, 32, 128), (24, 16000, 1, 128), (24, 16000, 1, 128))
        return {"q": q, "k": k, "v": v, "kv_lens": int32(*range(500, 12500, 500))}
    assert name == "packed"
    q, k, v = drawn(seed, (700, 16, 64), (700, 2, 64), (700, 2, 64))
    ends = int32(0, 300, 301, 550, 700)
    return {
        "q": q, "k": k, "v": v, "cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 300, "max_seqlen_k": 300,
        "causal": True,
    }  # fmt: skip


KINDS = ("splits", "splits, bf16, head_dim between", "row tiles are drawn", "balanced splits", "packed")


def parts(call: Call) -> tuple[tuple[Any, ...], Call]:
    """q, k and v, and the rest."""
    return tuple(call[name] for name in "qkv"), {name: x for name, x in call.items() if name not in "qkv"}


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "default"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_call_in_any_mode_gives_the_bits_of_a_call(kind: str, mode: str, fresh: None) -> None:
    """Also where it is the first call of all, within the pool of a graph of torch's."""
    from torch._dynamo.utils import counters

    calls = [on("cuda", made(kind, seed)) for seed in range(3)]
    _, options = parts(calls[0])
    counters.clear()

    def twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Any]:
        result = attention(q, k, v, **options)
        return result.o * 2, result.lse

    compiled = torch.compile(twice, mode=mode, fullgraph=True)
    got = []
    for _ in range(3):  # to warm up, to record, to replay
        for call in calls:
            torch.compiler.cudagraph_mark_step_begin()
            got.append([x.clone() for x in compiled(*parts(call)[0])])
    assert counters["inductor"]["cudagraph_skips"] == 0
    for index, (o, lse) in enumerate(got):
        wanted = attention(**calls[index % 3])
        assert torch.equal(o, wanted.o * 2)
        assert torch.equal(lse, wanted.lse)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_and_a_captured_call_give_the_bits_of_a_call(kind: str, fresh: None) -> None:
    call = on("cuda", made(kind))
    tensors, options = parts(call)

    class Called(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attention(q, k, v, **options).o

    exported = torch.export.export(Called(), tensors).module()(*tensors)
    wanted = attention(**call)
    assert torch.equal(exported, wanted.o)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attention(**call)
    tensors[0].copy_(on("cuda", made(kind, seed=1))["q"])
    for _ in range(3):
        graph.replay()
    anew = attention(**call)
    assert torch.equal(captured.o, anew.o)
    assert not torch.equal(wanted.o, anew.o)


def test_eight_threads_with_streams_of_their_own_give_equal_bits(fresh: None) -> None:
    """Half of them write to outputs that are there."""
    calls = {kind: on("cuda", made(kind)) for kind in KINDS}
    wanted = {kind: attention(**call) for kind, call in calls.items()}
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work(number: int) -> None:
        outs = {kind: attention(**call) for kind, call in calls.items()} if number % 2 else {}
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(20):
                for kind, call in calls.items():
                    got = attention(**call, out=outs.get(kind))
                    if turn % 5 == 4 and not torch.equal(got.o, wanted[kind].o):
                        wrong.append(kind)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_without_a_context_writes_to_outputs_that_are_there() -> None:
    """Nothing that it does before the launch would make the GPU's context its current one."""
    call = on("cuda", made("splits"))
    planned, wanted = plan(**call), attention(**call)
    out = attention(**call)
    out.o.zero_()
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: planned(*parts(call)[0], out=out))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(out.o, wanted.o)


@pytest.mark.parametrize("head_dim", [32, 80, 96, 192])
def test_head_dims_between_agree_with_the_definition(head_dim: int) -> None:
    for build in OF_HEAD_DIMS.values():
        call = build(head_dim)
        wanted = exact.attention(**{name: x for name, x in call.items() if name != "output_dtype"})
        there = {name: moved(x) for name, x in call.items()}
        got = attention(**there)
        for name in ("o", "statistics"):
            setattr(got, name, getattr(got, name).cpu())
        near(got, wanted)


@pytest.mark.parametrize("kind", ["views", "packed", "paged"])
def test_sizes_that_no_call_had_give_the_bits_of_a_plan(kind: str, fresh: None) -> None:
    """The first call of all is planned in Python, the others by compiled code."""
    from fmha.harness.attention import plans
    from fmha.harness.attention.sized import SizedPlan

    generator = torch.Generator().manual_seed(7)
    taken = 0
    for s_k in (300, 301, 437, 1900, 1901, 4096):
        q, k, v = (bf16(generator, 3, n, heads, 128).cuda() for n, heads in ((1, 16), (s_k + 8, 4), (s_k + 8, 4)))
        call: Call = {"q": q, "k": k[:, :s_k], "v": v[:, :s_k]}
        given: Call = {}
        if kind == "packed":
            ends = torch.tensor([0, s_k // 3, s_k // 2, s_k], dtype=torch.int32, device="cuda")
            call = {"q": bf16(generator, s_k, 16, 128).cuda(), "k": k[0, :s_k], "v": v[0, :s_k]}
            given = {"cu_seqlens_q": ends, "cu_seqlens_k": ends}
            call |= {"max_seqlen_q": s_k // 2, "max_seqlen_k": s_k // 2}
        elif kind == "paged":
            call = {"q": q} | {name: bf16(generator, 300, 64, 4, 128).cuda() for name in "kv"}
            table = torch.randint(0, 300, (3, -(-s_k // 64)), generator=generator, dtype=torch.int32).cuda()
            given = {"block_table": table, "kv_lens": int32(s_k, 1, s_k // 2).cuda()}
        got = attention(**call, **given, causal=True)
        taken += isinstance(next(reversed(plans._plans.values())), SizedPlan)
        tensors = {name: call[name] for name in "qkv"}
        wanted = plan(**call, **given, causal=True)(**tensors, **given)
        assert torch.equal(got.o, wanted.o), s_k
        assert torch.equal(got.statistics, wanted.statistics), s_k
    assert taken >= 2  # of six; a kernel that is taken for the first time is loaded in Python


def moved(x: Any) -> Any:
    from dataclasses import fields, replace

    if isinstance(x, torch.Tensor):
        if x.is_contiguous():
            return x.cuda()
        base = x._base if x._base is not None else x  # a view stays one, with what lies behind its rows
        return base.cuda().as_strided(x.shape, x.stride(), x.storage_offset())
    if hasattr(x, "indices"):
        return replace(x, **{field.name: moved(getattr(x, field.name)) for field in fields(x)})
    return x


def test_tensors_without_memory_launch_nothing() -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    call = on("cuda", made("splits"))
    wanted = attention(**call)
    with FakeTensorMode() as mode:
        fake = attention(*(mode.from_tensor(x) for x in parts(call)[0]))
        assert isinstance(fake.o, FakeTensor)
        assert fake.o.device == call["q"].device
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(attention(**call).o, FakeTensor)
    torch.cuda.synchronize()
    assert torch.equal(attention(**call).o, wanted.o)  # the context is alive


def test_a_gradient_is_not_lost_where_a_plan_is_kept() -> None:
    call = on("cuda", made("splits"))
    leaf = call | {"v": call["v"].clone().requires_grad_()}
    with torch.no_grad():
        attention(**leaf)
    with pytest.raises(NotImplementedError, match=r"^v: requires a gradient, which would be lost"):
        attention(**leaf)


def test_lengths_are_looked_at_where_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmha.harness.attention import plans, values

    call = on("cuda", made("balanced splits"))
    most = call["k"].shape[1]
    wrong = call | {"kv_lens": torch.full_like(call["kv_lens"], most + 1)}
    attention(**call)
    monkeypatch.setattr(values, "ON_GPUS", True)
    plans._plans.clear()  # a process has the setting from its start, and no plan of before it
    attention(**call)
    with pytest.raises(ValueError, match=rf"^kv_lens: expected values from 0 to {most}, got {most + 1}"):
        attention(**wrong)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # nobody can look there
        attention(**call)
    packed = on("cuda", made("packed"))
    attention(**packed)
    with pytest.raises(ValueError, match=r"^cu_seqlens_q: expected values that grow from 0 to the 700 rows"):
        attention(**packed | {"cu_seqlens_q": packed["cu_seqlens_q"] - 1})


def test_partial_results_that_do_not_fit_are_refused_and_named() -> None:
    q, k = drawn(0, (5000, 64, 512), (5000, 1, 512))
    ends = torch.linspace(1064, 5000, 40).int()
    ends = torch.cat([int32(0), ends])
    call = on("cuda", {"q": q, "k": k, "cu_seqlens_q": ends, "cu_seqlens_k": ends})
    call |= {"max_seqlen_q": 1064, "max_seqlen_k": 1064}
    with pytest.raises(ValueError, match=r"^splits: 40 splits of 40 entries .* 208.6 GiB of partial results, more"):
        attention(**call, splits=40)
    whole = attention(**call).o  # a number that fits
    assert whole.isfinite().all()
    del whole
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.05)
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            attention(**call, splits=8)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert re.fullmatch(
        r"4\d.\d GiB were for partial results of attention's splits; pass fewer", *caught.value.__notes__
    )


@pytest.fixture
def second() -> str:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device here")
    return "cuda:1"


@pytest.mark.parametrize("kind", KINDS)
def test_calls_run_where_their_tensors_are(kind: str, second: str, fresh: None) -> None:
    """On the default stream of both, which has one number, in turn; the current device stays what it is."""
    calls = [[on(device, made(kind, seed)) for device in ("cuda:0", second)] for seed in range(3)]
    wanted = [attention(**first) for first, _ in calls]
    for current in (0, 1):
        torch.cuda.set_device(current)
        for (_, call), one in zip(calls, wanted, strict=True):
            for _ in range(10):
                got = attention(**call)
            assert (got.o.device, torch.cuda.current_device()) == (torch.device(second), current)
            assert torch.equal(got.o.cpu(), one.o.cpu())
            assert torch.empty(1, device="cuda").get_device() == current
        for (call, _), one in zip(calls, wanted, strict=True):
            assert torch.equal(attention(**call).o, one.o)
    torch.cuda.set_device(0)


def test_a_thread_of_each_device_at_once(second: str) -> None:
    calls = {device: on(device, made("splits")) for device in ("cuda:0", second)}
    wanted = attention(**calls["cuda:0"]).o.cpu()
    outs = {device: attention(**call) for device, call in calls.items()}
    plans = {device: plan(**call) for device, call in calls.items()}
    for out in outs.values():
        out.o.zero_()
    for index in range(2):
        torch.cuda.synchronize(index)

    def work(device: str) -> None:
        for _ in range(50):
            plans[device](*parts(calls[device])[0], out=outs[device])

    threads = [threading.Thread(target=work, args=(device,)) for device in calls for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for device, out in outs.items():
        assert torch.equal(out.o.cpu(), wanted), device


def test_a_compiled_call_on_the_second_device(second: str, fresh: None) -> None:
    call = on(second, made("splits"))
    compiled = torch.compile(lambda q, k, v: attention(q, k, v).o, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        got = compiled(*parts(call)[0]).clone()
    assert torch.equal(got, attention(**call).o)


def test_tensors_of_two_devices_are_refused(second: str) -> None:
    call = on("cuda:0", made("splits"))
    attention(**call)
    with pytest.raises(ValueError, match=r"^k: is on cuda:1, q on cuda:0"):
        attention(**call | {"k": call["k"].to(second)})


def test_a_process_of_the_second_device_makes_nothing_on_the_first(second: str, repository: Path) -> None:
    """As torchrun's, which begins with set_device(local_rank)."""
    code = """
import torch
torch.cuda.set_device(1)
from fmha import attention
q, k = (torch.randn(*size, device="cuda").bfloat16() for size in ((2, 1, 32, 128), (2, 8192, 128)))
result = attention(q, k)
torch.cuda.synchronize()
print(result.o.device, torch._C._cuda_hasPrimaryContext(0))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=repository, check=False, capture_output=True, text=True)
    assert done.stdout.split() == ["cuda:1", "False"], done.stderr
