"""The host's part of a call, compiled and in Python: both do the same, on a driver that writes down what it is told."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fmha.harness.worker.devices import _calls, calls

DRIVER = """
#include <sched.h>

#include <cstdint>
struct Event { uint64_t what, a, b, pointer; } events[1000];
int entered = 0, count = 0, refused_launch = 0, refused_move = 0, refused_enter = 0, inside = 0, overlapped = 0;
thread_local uint64_t context = 0;
extern "C" int launch(const void* config, void* function, void** arguments, void** extra) {
    if (__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) > 1) overlapped = 1;
    for (int i = 0; i < 200; ++i) sched_yield();  // other threads come to where they may not go
    const auto* parameters = static_cast<const uint64_t*>(*arguments);
    if (context != 0xC0) return 201;  // CUDA_ERROR_INVALID_CONTEXT
    events[count++ % 1000] = {1, (uint64_t)config, (uint64_t)function, parameters[0]};
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    return extra ? 1 : refused_launch;
}
extern "C" int move(void* map, void* address) {
    events[count++ % 1000] = {2, (uint64_t)map, (uint64_t)address, 0};
    return refused_move;
}
extern "C" int current(uint64_t* which) {
    *which = context;
    return 0;
}
extern "C" int enter(uint64_t which) {
    if (refused_enter) return refused_enter;
    context = which;
    __atomic_add_fetch(&entered, 1, __ATOMIC_SEQ_CST);
    return 0;
}
"""
WORDS = 6
CONTEXT = 0xC0  # of the launches


@dataclass
class Driver:
    library: ctypes.CDLL

    def address(self, name: str) -> int:
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        assert address is not None
        return address

    def number(self, name: str) -> ctypes.c_int:
        return ctypes.c_int.in_dll(self.library, name)

    def entries(self) -> tuple[int, int, int, int]:
        return tuple(self.address(name) for name in ("launch", "move", "current", "enter"))  # type: ignore[return-value]

    def context(self) -> int:
        """The current one of this thread."""
        which = ctypes.c_uint64()
        self.library.current(ctypes.byref(which))
        return which.value

    def events(self) -> list[tuple[int, ...]]:
        """What it was told since the last time: (1, config, function, first parameter) or (2, map, address)."""
        count, told = self.number("count"), []
        for words in (ctypes.c_uint64 * 4 * count.value).in_dll(self.library, "events"):
            what, a, b, parameter = words
            told.append((what, a, b, parameter) if what == 1 else (what, a, b))
        count.value = 0
        return told


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cpp").write_text(DRIVER)
    subprocess.run(["c++", "-shared", "-fPIC", "driver.cpp", "-o", "driver.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "driver.so"))


@pytest.fixture
def driver(library: ctypes.CDLL) -> Driver:
    made = Driver(library)
    for name in ("entered", "count", "refused_launch", "refused_move", "refused_enter", "overlapped"):
        made.number(name).value = 0
    library.enter(ctypes.c_uint64(CONTEXT))
    made.number("entered").value = 0
    return made


@dataclass
class Kept:
    launches: Any
    parameters: Any

    def words(self) -> list[int]:
        return list(self.parameters)


@pytest.fixture(params=[_calls.Launches, calls.KeptLaunches], ids=["compiled", "python"])
def kept(request: pytest.FixtureRequest, driver: Driver) -> Kept:
    """Parameters of six words, whose first four are address 1, address 0, 8 bytes beyond address 0, and 16 beyond
    address 2; maps 70 and 71 are of addresses 0 and 3."""
    parameters = (ctypes.c_uint64 * WORDS)(*[99] * WORDS)
    argument = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
    at = [ctypes.addressof(parameters) + 8 * word for word in range(WORDS)]
    pointers = [(at[0], 1, 0), (at[1], 0, 0), (at[2], 0, 8), (at[3], 2, 16)]
    made = Kept(
        request.param(driver.entries(), CONTEXT, ctypes.addressof(argument), [(70, 0, 0), (71, 3, 0)], pointers),
        parameters,
    )
    made.argument = argument  # type: ignore[attr-defined]  # lives as long
    return made


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def test_addresses_are_written_and_every_launch_is_made_in_order(kept: Kept, driver: Driver) -> None:
    assert kept.launches(words(11, 12, 21, 22), words(0x1000, 0x2000), 0x3000, 0x4000) == 0
    assert kept.words() == [0x2000, 0x1000, 0x1008, 0x3010, 99, 99]
    moves = [(2, 70, 0x1000), (2, 71, 0x4000)]
    assert driver.events() == [*moves, (1, 12, 11, 0x2000), (1, 22, 21, 0x2000)]


def test_a_map_is_moved_when_its_address_is_another(kept: Kept, driver: Driver) -> None:
    for fourth in (0x4000, 0x4000, 0x5000):
        assert kept.launches(b"", words(0x1000, 0, 0, fourth)) == 0
    assert driver.events() == [(2, 70, 0x1000), (2, 71, 0x4000), (2, 71, 0x5000)]


def test_an_address_of_0_is_none_whatever_lies_beyond_it(kept: Kept, driver: Driver) -> None:
    assert kept.launches(words(11, 12), words(0, 0, 0, 0)) == 0
    assert kept.words() == [0, 0, 0, 0, 99, 99]
    assert driver.events() == [(1, 12, 11, 0)]


def test_what_the_driver_refuses_ends_the_call(kept: Kept, driver: Driver) -> None:
    driver.number("refused_launch").value = 719
    assert kept.launches(words(11, 12, 21, 22), words(0x1000, 0, 0, 0)) == 719
    assert driver.events() == [(2, 70, 0x1000), (1, 12, 11, 0)]


@pytest.mark.parametrize("other", [0, 0xC1], ids=["no context", "another GPU's"])
def test_launches_are_made_in_their_context_and_the_thread_keeps_its_own(
    kept: Kept, driver: Driver, other: int
) -> None:
    call = words(11, 12), words(0x1000, 0, 0, 0)
    assert kept.launches(*call) == 0
    assert driver.number("entered").value == 0  # nothing to do where it is the current one
    driver.library.enter(ctypes.c_uint64(other))
    for refused in (0, 719):
        driver.number("refused_launch").value = refused
        assert kept.launches(*call) == refused
        assert driver.context() == other
    driver.number("refused_enter").value = 4
    assert kept.launches(*call) == 4
    assert [event[0] for event in driver.events()] == [2, 1, 1, 1]


def test_a_map_that_was_refused_is_tried_again(kept: Kept, driver: Driver) -> None:
    driver.number("refused_move").value = 1
    assert kept.launches(words(11, 12), words(0x1000, 0, 0, 0)) == -1
    driver.number("refused_move").value = 0
    assert kept.launches(words(11, 12), words(0x1000, 0, 0, 0)) == 0
    assert driver.events() == [(2, 70, 0x1000), (2, 70, 0x1000), (1, 12, 11, 0)]


def test_no_call_comes_between_the_launches_of_another(kept: Kept, driver: Driver) -> None:
    def work(name: int) -> None:
        for _ in range(50):
            kept.launches(words(name, 1, name, 2), words(0, name, 0, 0))

    threads = [threading.Thread(target=work, args=(name,)) for name in (7, 8, 9, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = driver.events()
    pairs = list(zip(told[::2], told[1::2], strict=True))
    assert len(pairs) == 200
    for first, second in pairs:
        assert first == (1, 1, first[2], first[2])
        assert second == (1, 2, first[2], first[2])
    assert driver.number("overlapped").value == 0


@pytest.mark.parametrize(
    ("given", "error"),
    [((), TypeError), ((b"",), TypeError), (("", b""), TypeError), ((b"", bytes(8 * 65)), ValueError),
     ((b"", b"", -1), OverflowError), ((b"", b"", "a"), TypeError), ((bytes(8 * 17), b""), ValueError)],
)  # fmt: skip
def test_what_is_no_call_is_refused(given: tuple[Any, ...], error: type[Exception], driver: Driver) -> None:
    launches = _calls.Launches(driver.entries(), CONTEXT, 0, [], [])
    with pytest.raises(error):
        launches(*given)


def test_fields_beyond_all_addresses_are_refused(driver: Driver) -> None:
    with pytest.raises(ValueError, match="beyond"):
        _calls.Launches(driver.entries(), CONTEXT, 0, [], [(0, 64, 0)])
    with pytest.raises(TypeError):
        _calls.Launches(driver.entries(), CONTEXT, 0, [(0, 1)], [])


@pytest.fixture(params=[_calls.read, calls.read_tensors], ids=["compiled", "python"])
def read(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("torch")
    return request.param


def test_addresses_are_those_of_the_first_elements(read: Any) -> None:
    import torch

    x = torch.zeros(4, 8, dtype=torch.bfloat16)
    _, addresses = read((x, None, x[2]))
    assert np.frombuffer(addresses, np.uint64).tolist() == [x.data_ptr(), 0, x.data_ptr() + 2 * 8 * 2]


def changed() -> list[tuple[Any, ...]]:
    import torch

    x = torch.zeros(6, 8, dtype=torch.bfloat16)
    flat = torch.zeros(49, dtype=torch.bfloat16)
    return [
        (x, None), (None, x), (x, x), (x.half(), None), (x.int(), None), (x[:4], None), (x.view(8, 6), None),
        (x.view(2, 3, 8), None), (x.t(), None), (torch.zeros(6, 16, dtype=torch.bfloat16)[:, :8], None),
        (flat[1:].view(6, 8), None),
    ]  # fmt: skip


def test_forms_differ_in_all_that_a_plan_depends_on(read: Any) -> None:
    forms = [read(tensors)[0] for tensors in changed()]
    assert len(set(forms)) == len(forms)


def test_equal_tensors_have_one_form(read: Any) -> None:
    import torch

    x, y = torch.zeros(2, 1, 8), torch.ones(2, 1, 8)
    odd = y.as_strided((2, 1, 8), (8, 3, 1))  # a stride along which nothing is stepped
    parameter = torch.nn.Parameter(y)
    assert len({read((tensor, None))[0] for tensor in (x, y, odd, parameter)}) == 1


def test_no_rows_have_one_form_however_they_were_cut(read: Any) -> None:
    import torch

    cut, made = torch.zeros(2, 100, 9)[:, 1:1], torch.zeros(2, 0, 9)
    assert cut.stride() != made.stride()
    assert read((cut, None)) == read((made, None))


@pytest.mark.parametrize("other", [3, "k", np.zeros(4)], ids=["int", "str", "numpy"])
def test_what_is_no_tensor_has_none(read: Any, other: object) -> None:
    import torch

    assert read((torch.zeros(2), other)) is None


def without_memory() -> dict[str, Any]:
    """Functions that hand a tensor that has none to `look`."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    def fake(look: Any) -> None:
        with FakeTensorMode():
            x = torch.zeros(2)
            look(x)
        look(x)  # stays one without its mode

    def of_transform(transform: Any) -> Any:
        return lambda look: transform(lambda x: look(x) or x.sum())(torch.zeros(2, 3))

    return {
        "fake": fake,
        "vmap": of_transform(torch.vmap),
        "grad": of_transform(torch.func.grad),
        "functionalize": of_transform(torch.func.functionalize),
    }


@pytest.mark.parametrize("kind", ["fake", "vmap", "grad", "functionalize"])
def test_a_tensor_without_memory_has_none(read: Any, kind: str) -> None:
    told: list[Any] = []
    without_memory()[kind](lambda x: told.append(read((x, None))))
    assert told
    assert not any(told)
