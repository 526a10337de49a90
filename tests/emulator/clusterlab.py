"""Small kernels over named arrays and tensor maps, launched with clusters.

A body finds, declared: %p0-15, %h0-7, %r0-63, %d0-31, %f0-15, %q0-3 (b128); %tid, %cta (%ctaid.x), %rank
(%cluster_ctarank), %leader (thread 0); and for each array or tensor map NAME its generic address in %NAME. Shared
memory: `bar`, 8 mbarriers; `word`, 16 bytes; `tile`, 16 KiB aligned to 1024.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fmha.emulator import Device, Report, load_ptx

MapMaker = Callable[[Mapping[str, int]], bytes]  # from the addresses of the arrays

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 8 .b64 bar[8];
.shared .align 16 .b8 word[16];
.shared .align 1024 .b8 tile[16384];
"""
_REGISTERS = """
.reg .pred %p<16>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .b64 %d<32>; .reg .f32 %f<16>; .reg .b128 %q<4>;
.reg .b32 %tid, %cta, %rank; .reg .pred %leader;
mov.u32 %tid, %tid.x;
mov.u32 %cta, %ctaid.x;
mov.u32 %rank, %cluster_ctarank;
setp.eq.u32 %leader, %tid, 0;
"""
WAIT = """
{{
WAIT_LOOP:
mbarrier.try_wait.parity.shared::cta.b64 %p15, [{bar}], {parity};
@!%p15 bra WAIT_LOOP;
}}
"""
CLUSTER_SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"


def wait(bar: str = "bar", parity: int | str = 0) -> str:
    return WAIT.format(bar=bar, parity=parity)


def init_barriers(count: int = 1, bars: int = 1) -> str:
    inits = "".join(f"@%leader mbarrier.init.shared::cta.b64 [bar+{8 * k}], {count};\n" for k in range(bars))
    return inits + "fence.mbarrier_init.release.cluster;\n" + CLUSTER_SYNC


@dataclass(frozen=True)
class Run:
    report: Report
    arrays: dict[str, NDArray[Any]]

    @property
    def rules(self) -> set[str]:
        return {f.rule for f in self.report.findings}

    def clean(self) -> Run:
        assert not self.report.findings, "\n".join(map(str, self.report.findings))
        return self


def source(body: str, arrays: Mapping[str, Any], maps: Mapping[str, Any], directives: str = "") -> str:
    params = [f".param .u64 {name}" for name in arrays] + [f".param .align 64 .b8 {name}[128]" for name in maps]
    loads = "".join(f".reg .b64 %{n};\nld.param.b64 %{n}, [{n}];\n" for n in arrays)
    loads += "".join(f".reg .b64 %{n};\nmov.b64 %{n}, {n};\ncvta.param.u64 %{n}, %{n};\n" for n in maps)
    return f"{_HEAD}.visible .entry kernel({', '.join(params)})\n{directives}\n{{{_REGISTERS}{loads}{body}\nret;\n}}\n"


def run(
    body: str,
    arrays: Mapping[str, NDArray[Any]],
    maps: Mapping[str, MapMaker] | None = None,
    *,
    grid: int = 1,
    block: int = 32,
    cluster: int | None = None,
    directives: str = "",
    **device_options: Any,
) -> Run:
    """Launches a body over copies of the arrays; returns the report and the arrays as they are afterwards."""
    device = Device(**device_options)
    buffers = {name: device.alloc(max(a.nbytes, 1), name) for name, a in arrays.items()}
    for name, a in arrays.items():
        device.write(buffers[name].address, a)
    addresses = {name: b.address for name, b in buffers.items()}
    encoded = {name: make(addresses) for name, make in (maps or {}).items()}
    module = load_ptx(source(body, arrays, encoded, directives))
    report = device.launch(
        module,
        "kernel",
        (grid, 1, 1),
        (block, 1, 1),
        [*addresses.values(), *encoded.values()],
        cluster=None if cluster is None else (cluster, 1, 1),
    )
    after = {
        name: device.read(buffers[name].address, a.nbytes).view(a.dtype).reshape(a.shape) for name, a in arrays.items()
    }
    return Run(report, after)
