"""Public kernels beside their published rates: how they are compiled, found and launched, on a small stand-in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fmha.emulator.tensormap import decode
from fmha.emulator.timing.architecture import architecture
from tools import published
from tools.published import KERNELS, PublishedKernel, compiled, entry_of, modelled, tensor_map

SOURCE = """
#include <torch/library.h>
#include <cuda.h>
template <int N, int K, bool THREE>
__global__ void product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, nv_bfloat16 *c,
                        int m, int n, int k) {
    TORCH_CHECK(true);
    c[blockIdx.x * blockDim.x + threadIdx.x] = __float2bfloat16(N + K + THREE);
}
void launches() {
    product<256, 64, false><<<1, 1>>>({}, {}, nullptr, 0, 0, 0);
    product<256, 64, true><<<1, 1>>>({}, {}, nullptr, 0, 0, 0);
}
"""


@pytest.mark.nvcc
def test_an_instance_is_compiled_found_and_modelled(tmp_path: Path) -> None:
    (tmp_path / published.FOLDER).mkdir()
    (tmp_path / published.FOLDER / "product.cu").write_text(SOURCE)
    module = compiled(tmp_path, "product", tmp_path)
    entry = entry_of(module, (256, 64, True))
    assert entry != entry_of(module, (256, 64, False))
    kernel = PublishedKernel("a", "product", (256, 64, True), 256, 64, 0, "3D 64", {256: 1.0})
    rate, bound = modelled(module, kernel, 256)
    launch = architecture("b200").launch_us.value * 1e-6
    assert 0 < rate < 2 * 256**3 / launch * 1e-12, "no faster than a launch"
    assert bound == "latency"
    (tmp_path / published.FOLDER / "product.cu").write_text("#error\n")
    with pytest.raises(subprocess.CalledProcessError):
        compiled(tmp_path, "product", tmp_path)


def test_maps_are_those_of_the_host_functions() -> None:
    by_name = {kernel.name: tensor_map(kernel, 1 << 20, 4096, 128) for kernel in KERNELS}
    plain, whole = decode(by_name["v1a"]), decode(by_name["v2b"])
    assert (plain.box_dim, plain.swizzle) == ((8, 128), "none")
    assert (whole.global_dim, whole.box_dim, whole.swizzle) == ((64, 4096, 64), (64, 128, 4), "128B")
    assert decode(by_name["v7a"]).box_dim == (64, 128, 1)
