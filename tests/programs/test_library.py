"""The library that programs are given: its layouts are those of CUDA's headers, its names those of CUDA's library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fmha.emulator.programs.program_run import library

# Of each of our structs, CUDA's, and pairs of fields that lie at the same place.
STRUCTS = {
    ("DeviceProperties", "cudaDeviceProp"): (
        "total_memory totalGlobalMem, grid_dims maxGridSize, major major, multiprocessors multiProcessorCount, "
        "textures_and_surfaces maxTexture1D, "
        "surface_alignment surfaceAlignment, unified_addressing unifiedAddressing, l2_bytes l2CacheSize, "
        "threads_per_multiprocessor maxThreadsPerMultiProcessor, "
        "shared_per_multiprocessor sharedMemPerMultiprocessor, managed_memory managedMemory, "
        "cooperative_launch cooperativeLaunch, shared_per_block_optin sharedMemPerBlockOptin, "
        "blocks_per_multiprocessor maxBlocksPerMultiProcessor, reserved_shared_per_block reservedSharedMemPerBlock, "
        "memory_pools memoryPoolsSupported, cluster_launch clusterLaunch, reserved reserved"
    ),
    ("FunctionAttributes", "cudaFuncAttributes"): (
        "max_threads maxThreadsPerBlock, ptx_version ptxVersion, max_dynamic_shared maxDynamicSharedSizeBytes, "
        "cluster_must_be_set clusterDimMustBeSet, non_portable_cluster nonPortableClusterSizeAllowed"
    ),
    ("LaunchConfig", "cudaLaunchConfig_t"): (
        "block blockDim, shared_bytes dynamicSmemBytes, attributes attrs, count numAttrs"
    ),
    ("DriverLaunchConfig", "CUlaunchConfig"): (
        "block blockDimX, shared_bytes sharedMemBytes, attributes attrs, count numAttrs"
    ),
    ("LaunchAttribute", "cudaLaunchAttribute"): "id id, cluster val.clusterDim",
    ("PointerAttributes", "cudaPointerAttributes"): "device_pointer devicePointer, host_pointer hostPointer",
    ("Copy3D", "cudaMemcpy3DParms"): "source srcPtr, target_array dstArray, target_at dstPos, extent extent, kind kind",
    ("Pitched", "cudaPitchedPtr"): "pitch pitch, xsize xsize, ysize ysize",
    ("ChannelFormat", "cudaChannelFormatDesc"): "w w, kind f",
    ("ResourceDesc", "cudaResourceDesc"): (
        "array res.array.array, linear res.linear, pitched res.pitch2D, flags flags"
    ),
    ("TextureDesc", "cudaTextureDesc"): (
        "filter filterMode, read_mode readMode, border borderColor, normalized normalizedCoords, "
        "seamless_cubemap seamlessCubemap"
    ),
    (
        "DriverResourceDesc",
        "CUDA_RESOURCE_DESC",
    ): "array res.array, linear res.linear, pitched res.pitch2D, flags flags",
    ("DriverTextureDesc", "CUDA_TEXTURE_DESC"): "filter filterMode, flags flags, border borderColor, reserved reserved",
    ("DriverArrayDesc", "CUDA_ARRAY_DESCRIPTOR"): "format Format, channels NumChannels",
    ("DriverArray3DDesc", "CUDA_ARRAY3D_DESCRIPTOR"): "format Format, channels NumChannels, flags Flags",
    ("DriverCopy2D", "CUDA_MEMCPY2D"): "from srcXInBytes, to dstXInBytes, width WidthInBytes",
    ("DriverCopy3D", "CUDA_MEMCPY3D"): "from srcXInBytes, to dstXInBytes, width WidthInBytes, depth Depth",
    ("KernelNode", "cudaKernelNodeParams"): "grid gridDim, shared_bytes sharedMemBytes, arguments kernelParams",
    ("FillNode", "cudaMemsetParams"): "pitch pitch, value value, element elementSize, height height",
    ("HostNode", "cudaHostNodeParams"): "data userData",
    ("InstantiateParams", "cudaGraphInstantiateParams"): "stream uploadStream, result result_out",
    ("UpdateResult", "cudaGraphExecUpdateResultInfo"): "result result, node errorNode",
    ("Dim3", "dim3"): "z z",
}


@pytest.mark.nvcc
def test_structs_are_laid_out_as_cudas(repository: Path, tmp_path: Path) -> None:
    lines = ["#include <cuda.h>", "#include <cuda_runtime_api.h>", '#include "abi.hpp"']
    for (ours, theirs), fields in STRUCTS.items():
        lines.append(f"static_assert(sizeof(fmha::{ours}) == sizeof({theirs}));")
        for our, their in (pair.split() for pair in fields.split(", ")):
            lines.append(f"static_assert(offsetof(fmha::{ours}, {our}) == offsetof({theirs}, {their}));")
    (tmp_path / "layout.cpp").write_text("\n".join(lines) + "\n")
    runtime = repository / "emulator/programs/runtime"
    command = ["nvcc", "-std=c++20", "-I", runtime, "-c", "-o", tmp_path / "layout.o", tmp_path / "layout.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _names(path: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines() if " T " in line}


def test_every_function_of_cudas_library_is_there() -> None:
    found = subprocess.run(["which", "nvcc"], capture_output=True, text=True, check=False).stdout.strip()
    places = (root / "lib64/libcudart.so.13" for root in (Path("/usr/local/cuda"), Path(found).resolve().parent.parent))
    theirs = next((path for path in places if path.exists()), None)
    if theirs is None:
        pytest.skip("no libcudart.so.13 to compare with")
    assert _names(theirs) - _names(library()) == set()


def test_nothing_else_is_exported() -> None:
    others = {name for name in _names(library()) if not name.startswith(("cuda", "__cuda", "cu"))}
    assert not others
