"""Tries the fmha that is installed here as its user would, in an empty folder: `python scripts/try_wheel.py`.

Every core that the wheel has for this CPU runs the same kernel, and all have to leave the same bytes. Where there is an
nvcc, a part of the matrix is run as well, and with torch attention over tensors.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PTX = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry waves(.param .u64 to)
{
    .reg .b32 %r<6>;
    .reg .f32 %f<6>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [to];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.s32 %r3, %r0, %r1, %r2;
    cvt.rn.f32.u32 %f0, %r3;
    sin.approx.f32 %f1, %f0;
    ex2.approx.ftz.f32 %f2, %f1;
    fma.rn.f32 %f3, %f2, %f0, %f1;
    rsqrt.approx.f32 %f4, %f3;
    mul.wide.u32 %d1, %r3, 4;
    add.s64 %d2, %d0, %d1;
    st.global.f32 [%d2], %f4;
    ret;
}
"""
LAUNCH = """grid: [8]
block: [128]
buffers: {y: {dtype: f32, shape: [1024], fill: poison}}
args: [{buffer: y}]
outputs: {y: {file: FILE}}
"""
ATTENTION = """
import fmha, torch
torch.manual_seed(0)
q, k, v = (torch.randn(shape).bfloat16() for shape in ((1, 1, 8, 64), (1, 128, 64), (1, 128, 64)))
result = fmha.attention(q, k, v)
weights = (torch.einsum("bthd,bsd->bths", q.double(), k.double()) / 8).softmax(-1)
error = (result.o - torch.einsum("bths,bsd->bthd", weights, v.double())).abs().max().item()
print(f"attention: largest error {error:.1e}, {len(result.findings)} hazards")
assert error < 5e-3 and not result.findings
"""
LEVEL = "from fmha import emulator; print(emulator.CORE_LEVEL)"
HAS = "import fmha.emulator.levels as l; print(*l.available())"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(ran(folder, "-m", "fmha", "--version").strip())
        (folder / "waves.ptx").write_text(PTX)
        outputs = {level: waves(folder, level) for level in ran(folder, "-c", HAS).split()}
        print(f"chosen here: {ran(folder, '-c', LEVEL).strip()}; tried: {', '.join(outputs)}")
        if len(set(outputs.values())) != 1:
            print("the cores leave different bytes", file=sys.stderr)
            return 1
        find = "from fmha.harness.worker.compilers.nvcc import find_nvcc; find_nvcc()"
        if subprocess.run([sys.executable, "-c", find], cwd=folder, capture_output=True, check=False).returncode:
            print("no nvcc here: the matrix was not run")
            return 0
        hashes = {level: matrix(folder, level) for level in outputs}
        if len(set(hashes.values())) != 1:
            print("the cores run the matrix with different bits", file=sys.stderr)
            return 1
        has_torch = importlib.util.find_spec("torch") is not None
        print(ran(folder, "-c", ATTENTION).strip() if has_torch else "no torch here: attention was not called")
    return 0


def waves(folder: Path, level: str) -> bytes:
    (folder / "waves.yaml").write_text(LAUNCH.replace("FILE", f"{level}.npy"))
    said = ran(folder, "-m", "fmha", "emulate", "waves.ptx", "--launch", "waves.yaml", FMHA_CPU_LEVEL=level)
    print(f"{level}: {said.splitlines()[-1]}")
    return (folder / f"{level}.npy").read_bytes()


def matrix(folder: Path, level: str) -> tuple[str, ...]:
    """The hashes of the outputs of the smallest configurations, one a head_dim."""
    asked = ("run-matrix", "--suite", "seed", "--filter", "t=1,sk=128,mask=none", "--json")
    said = ran(folder, "-m", "fmha", *asked, FMHA_CPU_LEVEL=level)
    record = json.loads(said)
    assert record["commit"]["installed"], "the run knows that it judged no commit"
    print(f"{level}: {record['verdict']['word']} {record['verdict']['passed']} of {record['verdict']['total']}")
    return tuple(item["metrics"]["output_hash"] for item in record["configurations"])


def ran(folder: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
