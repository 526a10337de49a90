// The types of CUDA 13's runtime API that cross the border to a program, as its headers lay them out; tests compare
// sizes and offsets with the headers. Handles are pointers to what this library keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#define FMHA_EXPORT extern "C" __attribute__((visibility("default")))
// A second name of a function of the same file, which nvcc's --default-stream per-thread calls.
#define FMHA_ALIAS(name, suffix) FMHA_EXPORT __attribute__((alias(#name))) decltype(name) name##suffix;

namespace fmha {

using Status = int;  // cudaError_t and CUresult, which agree on the numbers that are used here

enum : Status {
    kSuccess = 0,
    kInvalidValue = 1,
    kMemoryAllocation = 2,
    kInitialization = 3,
    kInvalidConfiguration = 9,
    kInvalidSymbol = 13,
    kInvalidCopyDirection = 21,
    kInvalidFilter = 26,
    kInvalidScale = 27,
    kMissingConfiguration = 52,
    kInvalidFunction = 98,
    kInvalidDevice = 101,
    kNoImage = 209,
    kUnsupportedLimit = 215,
    kInvalidPtx = 218,
    kFileNotFound = 301,
    kInvalidHandle = 400,
    kIllegalState = 401,
    kNotFound = 500,
    kNotReady = 600,
    kTooManyResources = 701,
    kHostNotRegistered = 713,
    kNotSupported = 801,
    kCaptureUnsupported = 900,
    kCaptureInvalidated = 901,
    kCaptureMerge = 902,
    kCaptureUnmatched = 903,
    kCaptureUnjoined = 904,
    kCaptureIsolation = 905,
    kCaptureImplicit = 906,
    kCapturedEvent = 907,
    kCaptureWrongThread = 908,
    kGraphUpdate = 910,
    kUnknown = 999,
};

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

struct Pitched {  // cudaPitchedPtr
    void* ptr;
    std::size_t pitch, xsize, ysize;
};

struct Extent {
    std::size_t width, height, depth;
};

struct Copy3D {  // cudaMemcpy3DParms
    void* source_array;
    Extent source_at;  // cudaPos
    Pitched source;
    void* target_array;
    Extent target_at;
    Pitched target;
    Extent extent;
    int kind;
};

struct PointerAttributes {
    int type;  // 0 unknown, 1 host, 2 device, 3 managed
    int device;
    void *device_pointer, *host_pointer;
    long reserved[8];
};

struct FunctionAttributes {
    std::size_t shared_static, constant, local;
    int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared, carveout;
    int cluster_must_be_set, cluster_width, cluster_height, cluster_depth, cluster_policy, non_portable_cluster;
    int reserved[16];
};

struct LaunchAttribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        Dim3 cluster;
        int flag;
    };
};

struct LaunchConfig {
    Dim3 grid, block;
    std::size_t shared_bytes;
    void* stream;
    LaunchAttribute* attributes;
    unsigned count;
};

struct DriverLaunchConfig {  // CUlaunchConfig
    Dim3 grid, block;
    unsigned shared_bytes;
    void* stream;
    LaunchAttribute* attributes;
    unsigned count;
};

struct KernelNode {  // cudaKernelNodeParams
    void* function;
    Dim3 grid, block;
    unsigned shared_bytes;
    void **arguments, **extra;
};

struct FillNode {  // cudaMemsetParams
    void* to;
    std::size_t pitch;
    unsigned value, element;
    std::size_t width, height;  // in elements
};

struct HostNode {  // cudaHostNodeParams
    void (*function)(void*);
    void* data;
};

struct InstantiateParams {  // cudaGraphInstantiateParams
    unsigned long long flags;
    void *stream, *wrong_node;
    int result;
};

struct UpdateResult {  // cudaGraphExecUpdateResultInfo
    int result;
    void *node, *from;
};

struct ChannelFormat {
    int x, y, z, w, kind;
};

struct ResourceDesc {  // cudaResourceDesc
    int type;          // 0 array, 1 mipmapped array, 2 linear, 3 rows of a pitch
    union {
        void* array;
        struct {
            void* pointer;
            ChannelFormat format;
            std::size_t size;
        } linear;
        struct {
            void* pointer;
            ChannelFormat format;
            std::size_t width, height, pitch;
        } pitched;
        int reserved[32];
    };
    unsigned flags;
};

struct TextureDesc {  // cudaTextureDesc
    int addressing[3], filter, read_mode, srgb;
    float border[4];
    int normalized;
    unsigned anisotropy;
    int mipmap_filter;
    float mipmap_bias, mipmap_least, mipmap_most;
    int trilinear_optimization, seamless_cubemap;
};

struct DriverResourceDesc {  // CUDA_RESOURCE_DESC
    int type;
    union {
        void* array;
        struct {
            std::uint64_t pointer;
            int format;
            unsigned channels;
            std::size_t size;
        } linear;
        struct {
            std::uint64_t pointer;
            int format;
            unsigned channels;
            std::size_t width, height, pitch;
        } pitched;
        int reserved[32];
    };
    unsigned flags;
};

struct DriverTextureDesc {  // CUDA_TEXTURE_DESC
    int addressing[3], filter;
    unsigned flags, anisotropy;
    int mipmap_filter;
    float mipmap_bias, mipmap_least, mipmap_most, border[4];
    int reserved[12];
};

struct DriverArrayDesc {  // CUDA_ARRAY_DESCRIPTOR
    std::size_t width, height;
    int format;
    unsigned channels;
};

struct DriverArray3DDesc {  // CUDA_ARRAY3D_DESCRIPTOR
    std::size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

struct DriverSide2D {
    std::size_t x, y;
    int memory;  // 1 host, 2 device, 3 array, 4 by the address
    void* host;
    std::uint64_t device;
    void* array;
    std::size_t pitch;
};

struct DriverCopy2D {  // CUDA_MEMCPY2D
    DriverSide2D from, to;
    std::size_t width, height;
};

struct DriverSide3D {
    std::size_t x, y, z, level;
    int memory;
    void* host;
    std::uint64_t device;
    void *array, *reserved;
    std::size_t pitch, height;
};

struct DriverCopy3D {  // CUDA_MEMCPY3D
    DriverSide3D from, to;
    std::size_t width, height, depth;
};

struct DeviceProperties {  // cudaDeviceProp
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_mask;
    std::size_t total_memory, shared_per_block;
    int registers_per_block, warp_size;
    std::size_t most_pitch;
    int threads_per_block, block_dims[3], grid_dims[3];
    std::size_t constant_memory;
    int major, minor;
    std::size_t texture_alignment, texture_pitch_alignment;
    int multiprocessors, integrated, can_map_host_memory;
    int textures_and_surfaces[39];  // the largest of each kind
    std::size_t surface_alignment;
    int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified_addressing;
    int memory_bus_bits, l2_bytes, persisting_l2_bytes, threads_per_multiprocessor, stream_priorities;
    int global_l1, local_l1;
    std::size_t shared_per_multiprocessor;
    int registers_per_multiprocessor, managed_memory, multi_gpu_board, multi_gpu_group, host_atomics;
    int pageable_access, concurrent_managed_access, compute_preemption, host_pointer_for_registered;
    int cooperative_launch;
    std::size_t shared_per_block_optin;
    int pageable_by_host_tables, direct_managed_access, blocks_per_multiprocessor, access_policy_window;
    std::size_t reserved_shared_per_block;
    int host_register, sparse_arrays, host_register_read_only, timeline_semaphores, memory_pools, rdma;
    unsigned rdma_flush;
    int rdma_order;
    unsigned pool_handle_types;
    int deferred_arrays, ipc_events, cluster_launch, unified_functions, numa_config, numa_id, mps, host_numa_id;
    unsigned pci_device_id, pci_subsystem_id;
    int host_numa_ipc;
    int reserved[56];
};

}  // namespace fmha
