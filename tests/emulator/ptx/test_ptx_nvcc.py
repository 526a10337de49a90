"""What nvcc makes of a program with most of what our kernels use, parsed and compared with its source."""

import subprocess
from pathlib import Path

import pytest

from fmha.emulator.ptx import (
    Address,
    CallOperands,
    Function,
    Immediate,
    ParsedModule,
    Register,
    Relocation,
    SymbolRef,
    TensorAddress,
    Vector,
    parse,
)
from fmha.emulator.ptx.cfg import reconvergence
from fmha.harness.worker.compilers.nvcc import find_nvcc

# One worker compiles what all tests of this file run.
pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("ptx-nvcc")]

PROGRAM = r"""
#include <cstdint>
#include <cstdio>

struct Params { uint64_t words[16]; int last; };

__device__ int table[4] = {1, 2, 3, 4};
__device__ int *pointer = table + 1;
__constant__ float floats[3] = {1.0f, -2.5f, 3e10f};

__noinline__ __device__ float iterate(float x, int n) {
  for (int i = 0; i < n; i++) x = x * x + 1.0f;
  return x;
}
__noinline__ __device__ void by_value(Params p, float *o) { o[0] = p.words[3] + p.last; }
typedef float (*Callee)(float, int);
__device__ Callee callee = iterate;

__device__ __forceinline__ uint32_t elect() {
  uint32_t chosen;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.b32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen;
}
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n\t.reg .pred p;\nWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@p bra DONE;\n"
               "\tbra WAIT;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

extern "C" __global__ void __launch_bounds__(192, 1) __cluster_dims__(2, 1, 1)
kernel(const __grid_constant__ Params params, float *out, int n) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ uint64_t barrier[2];
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  wait(address, 0);
  wait(address + 8, 1);
  if (elect()) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" :: "r"(address), "l"(&params), "r"(n), "r"(5), "r"(address) : "memory");
    asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, {%4, %4, %4, %4}, 1;"
                 :: "r"(n), "l"(params.words[1]), "l"(params.words[2]), "r"(7), "r"(0));
    out[3] = iterate(out[1], n);
  }
  by_value(params, out);
  switch (n) {
    case 0: out[1] = 1; break;
    case 1: out[5] = floats[n]; break;
    case 2: out[7] = smem[threadIdx.x]; break;
    case 3: out[9] = *pointer; break;
  }
  if (n == 55) printf("n is %d\n", n);
  out[8] = callee(out[9], n);
}
"""


@pytest.fixture(scope="module", params=["-lineinfo", "-G"])
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ParsedModule:
    folder: Path = tmp_path_factory.mktemp("nvcc")
    (folder / "program.cu").write_text(PROGRAM)
    command = [find_nvcc().path, "-ptx", "-arch=sm_100a", request.param, "-o", "program.ptx", "program.cu"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return parse((folder / "program.ptx").read_text(), "program.ptx")


def line_of(text: str) -> int:
    (line,) = (number for number, line in enumerate(PROGRAM.split("\n"), 1) if text in line)
    return line


def kernel(module: ParsedModule) -> Function:
    return module.functions["kernel"]


def test_the_module(module: ParsedModule) -> None:
    assert module.target == "sm_100a"
    assert module.address_size == 64
    assert module.version >= (8, 8)
    assert list(module.entries) == ["kernel"]
    assert any(path.endswith("program.cu") for path in module.files.values())
    printf = module.functions["vprintf"]
    assert printf.extern
    assert not printf.defined


def test_the_header_of_the_kernel(module: ParsedModule) -> None:
    entry = kernel(module)
    assert entry.visible
    assert [(parameter.nbytes, parameter.align) for parameter in entry.params] == [(136, 8), (8, 8), (4, 4)]
    assert entry.directives["maxntid"][0] == 192
    assert entry.directives["reqnctapercluster"] == (2, 1, 1)
    assert entry.directives["explicitcluster"] == ()


def test_variables(module: ParsedModule) -> None:
    assert module.variables["table"].initializer == bytes(b for i in range(1, 5) for b in (i, 0, 0, 0))
    assert module.variables["pointer"].relocations == (Relocation(0, 8, "table", 4, generic=True),)
    assert module.variables["floats"].space == "const"
    assert module.variables["floats"].initializer is not None
    assert module.variables["floats"].initializer[:8] == bytes.fromhex("0000803f000020c0")
    (relocation,) = module.variables["callee"].relocations
    assert module.functions[relocation.symbol].returns
    smem = module.variables["smem"]
    assert (smem.space, smem.extern, smem.nbytes, smem.align) == ("shared", True, 0, 1024)
    everywhere = [*module.variables.values(), *kernel(module).variables.values()]
    (barrier,) = (variable for variable in everywhere if "barrier" in variable.name)
    assert (barrier.space, barrier.nbytes, barrier.align) == ("shared", 16, 8)


def test_both_inline_waits_keep_their_own_labels_and_registers(module: ParsedModule) -> None:
    functions = [
        function for function in module.functions.values() if any("WAIT" in label for label in function.labels)
    ]
    waits = []
    for function in functions:
        where = reconvergence(function)
        for index, instruction in enumerate(function.body):
            if instruction.opcode == "mbarrier":
                predicate = instruction.operands[0]
                leave, again = function.body[index + 1 : index + 3]
                assert leave.guard is not None
                assert leave.guard.register == predicate
                assert str(leave.operands[0]).startswith("DONE")
                assert function.labels[str(leave.operands[0])] == index + 3 == where[index + 1]
                assert function.labels[str(again.operands[0])] == index
                waits.append(predicate)
    assert len(waits) == len(set(waits)) == 2


def test_operands_of_the_families_our_kernels_use(module: ParsedModule) -> None:
    body = [instruction for function in module.functions.values() for instruction in function.body]
    (copy,) = (i for i in body if i.mnemonic.startswith("cp.async.bulk.tensor"))
    assert copy.modifiers[-1] == "mbarrier::complete_tx::bytes"
    assert [type(operand) for operand in copy.operands] == [Address, TensorAddress, Address]
    assert isinstance(copy.operands[1], TensorAddress)
    assert len(copy.operands[1].coordinates) == 2
    (mma,) = (i for i in body if i.mnemonic == "tcgen05.mma.cta_group::1.kind::f16")
    assert [type(operand) for operand in mma.operands] == [Address, Register, Register, Register, Vector, Immediate]
    assert mma.operands[-1] == Immediate(1)
    (vote,) = (i for i in body if i.mnemonic == "elect.sync")
    assert str(vote.operands[0]).startswith("_|p")


def test_calls(module: ParsedModule) -> None:
    calls = [i.operands[0] for i in kernel(module).body if i.opcode == "call"]
    assert all(isinstance(call, CallOperands) for call in calls)
    direct = [
        call.target.name for call in calls if isinstance(call, CallOperands) and isinstance(call.target, SymbolRef)
    ]
    assert "vprintf" in direct
    assert sum("iterate" in name for name in direct) == 1
    assert sum("by_value" in name for name in direct) == 1
    (indirect,) = (call for call in calls if isinstance(call, CallOperands) and isinstance(call.target, Register))
    assert indirect.prototype in kernel(module).prototypes
    params = [variable for variable in kernel(module).variables.values() if variable.space == "param"]
    assert len({variable.name for variable in params}) == len(params) >= 8


def test_locations(module: ParsedModule) -> None:
    (mma,) = (i for f in module.functions.values() for i in f.body if i.mnemonic.startswith("tcgen05.mma"))
    assert mma.location is not None
    assert mma.location.file.endswith("program.cu")
    assert mma.location.line in range(line_of("tcgen05.mma"), line_of("tcgen05.mma") + 2)
    wait = next(i for f in module.functions.values() for i in f.body if i.opcode == "mbarrier")
    assert wait.location is not None
    assert wait.location.line in range(line_of("WAIT:"), line_of("bra WAIT") + 1)
    if wait.location.function is not None:  # inlined, as everywhere but in a debug build
        assert "wait" in wait.location.function
        assert wait.location.inlined_at is not None
        assert wait.location.inlined_at.line == line_of("wait(address, 0)")


def test_every_line_is_an_instruction_as_written(module: ParsedModule) -> None:
    lines = module.source.split("\n")
    for function in module.functions.values():
        for instruction in function.body:
            first = lines[instruction.line - 1]
            assert instruction.opcode in first
            assert instruction.text.split()[0] in first
