// The one device: which it is, what it has, and what a program may set of it.
#include <algorithm>

#include "pools.hpp"

namespace fmha {
namespace {

constexpr int kVersion = 13000;
constexpr int kSharedOptin = 227 << 10, kSharedOfMultiprocessor = 228 << 10, kRegisters = 65536;

// The largest textures and surfaces, in cudaDeviceProp's order, and the number of each as an attribute: for compute
// capabilities 9.0 and 10.0 (CUDA C++ programming guide, technical specifications).
struct Largest {
    int value, attribute;
};
constexpr Largest kLargest[] = {
    {131072, 21}, {32768, 77},  {131072, 22},  {65536, 23}, {32768, 73}, {32768, 74},  // 1D, mipmapped; 2D, mipmapped
    {131072, 70}, {65000, 71},  {2097120, 72}, {32768, 45}, {32768, 46},               // 2D of linear memory; gathered
    {16384, 24},  {16384, 25},  {16384, 26},   {8192, 47},  {8192, 48},  {32768, 49},  // 3D, two shapes
    {32768, 52},  {32768, 42},  {2048, 43},    {32768, 27}, {32768, 28}, {2048, 29},   // cube map; layered 1D and 2D
    {32768, 53},  {2046, 54},                                                          // layered cube maps
    {32768, 55},  {131072, 56}, {65536, 57},   {16384, 58}, {16384, 59}, {16384, 60},  // surfaces: 1D, 2D, 3D
    {32768, 61},  {2048, 62},   {32768, 63},   {32768, 64}, {2048, 65},                // layered 1D and 2D
    {32768, 66},  {32768, 67},  {2046, 68},                                            // cube maps
};
constexpr int kLargestLine = 1 << 28, kLargestLineAttribute = 69;  // 1D of linear memory

DeviceProperties properties(const DeviceFacts& d) {
    DeviceProperties o{};
    d.name.copy(o.name, sizeof o.name - 1);
    std::copy_n("fmha emulator   ", sizeof o.uuid, o.uuid);
    o.total_memory = d.memory;
    o.shared_per_block = 48 << 10;
    o.registers_per_block = o.registers_per_multiprocessor = kRegisters;
    o.warp_size = 32;
    o.most_pitch = 2147483647;
    o.threads_per_block = 1024;
    std::copy_n(std::begin({1024, 1024, 64}), 3, o.block_dims);
    std::copy_n(std::begin({2147483647, 65535, 65535}), 3, o.grid_dims);
    o.constant_memory = 65536;
    o.major = d.major;
    o.minor = d.minor;
    o.texture_alignment = o.surface_alignment = 512;
    static_assert(std::size(kLargest) == std::size(DeviceProperties{}.textures_and_surfaces));
    for (std::size_t k = 0; k < std::size(kLargest); ++k) o.textures_and_surfaces[k] = kLargest[k].value;
    o.texture_pitch_alignment = 32;
    o.multiprocessors = d.multiprocessors;
    o.can_map_host_memory = o.concurrent_kernels = o.unified_addressing = o.stream_priorities = 1;
    o.async_engines = 3;
    o.memory_bus_bits = d.bus_bits;
    o.l2_bytes = d.l2_bytes;
    o.persisting_l2_bytes = d.l2_bytes / 8 * 5;  // as an H200 has it
    o.access_policy_window = 128 << 20;
    o.threads_per_multiprocessor = 2048;
    o.global_l1 = o.local_l1 = 1;
    o.shared_per_multiprocessor = kSharedOfMultiprocessor;
    o.managed_memory = o.concurrent_managed_access = o.compute_preemption = o.cooperative_launch = 1;
    o.shared_per_block_optin = kSharedOptin;
    o.blocks_per_multiprocessor = 32;
    o.reserved_shared_per_block = 1024;
    o.host_register = o.cluster_launch = o.memory_pools = 1;
    return o;
}

// cudaDeviceAttr, and CUdevice_attribute, by number. False for what is not known.
bool attribute(const DeviceFacts& d, int number, int& out) {
    const DeviceProperties p = properties(d);
    switch (number) {
        case 1: out = p.threads_per_block; return true;
        case 2:
        case 3:
        case 4: out = p.block_dims[number - 2]; return true;
        case 5:
        case 6:
        case 7: out = p.grid_dims[number - 5]; return true;
        case 8: out = static_cast<int>(p.shared_per_block); return true;
        case 9: out = static_cast<int>(p.constant_memory); return true;
        case 10: out = p.warp_size; return true;
        case 11: out = static_cast<int>(p.most_pitch); return true;
        case 12: out = p.registers_per_block; return true;
        case 13: out = d.clock_khz; return true;
        case 14: out = static_cast<int>(p.texture_alignment); return true;
        case 15: out = 1; return true;  // copies and kernels overlap
        case 16: out = p.multiprocessors; return true;
        case 19: out = p.can_map_host_memory; return true;
        case 30: out = static_cast<int>(p.surface_alignment); return true;
        case 31: out = p.concurrent_kernels; return true;
        case 36: out = d.memory_clock_khz; return true;
        case 37: out = p.memory_bus_bits; return true;
        case 38: out = p.l2_bytes; return true;
        case 39: out = p.threads_per_multiprocessor; return true;
        case 40: out = p.async_engines; return true;
        case 41: out = p.unified_addressing; return true;
        case 51: out = static_cast<int>(p.texture_pitch_alignment); return true;
        case 75: out = p.major; return true;
        case 76: out = p.minor; return true;
        case 78: out = p.stream_priorities; return true;
        case 79: out = p.global_l1; return true;
        case 80: out = p.local_l1; return true;
        case 81: out = static_cast<int>(p.shared_per_multiprocessor); return true;
        case 82: out = p.registers_per_multiprocessor; return true;
        case 83: out = p.managed_memory; return true;
        case 87: out = 2; return true;  // single to double precision
        case 89: out = p.concurrent_managed_access; return true;
        case 90: out = p.compute_preemption; return true;
        case 95: out = p.cooperative_launch; return true;
        case 97: out = static_cast<int>(p.shared_per_block_optin); return true;
        case 99: out = p.host_register; return true;
        case 108: out = p.persisting_l2_bytes; return true;
        case 109: out = p.access_policy_window; return true;
        case 106: out = p.blocks_per_multiprocessor; return true;
        case 111: out = static_cast<int>(p.reserved_shared_per_block); return true;
        case 115: out = p.memory_pools; return true;
        case 120: out = p.cluster_launch; return true;
        case 126:
            out = 4;
            return true;  // memory synchronisation domains
        // What this device does not have, or what is 0 of any: modes, places on the bus, arrays, peers.
        case 17:
        case 18:
        case 20:
        case 32:
        case 33:
        case 34:
        case 35:
        case 50:
        case 84:
        case 85:
        case 86:
        case 88:
        case 91:
        case 98:
        case 100:
        case 101:
        case 112:
        case 113:
        case 114:
        case 116:
        case 117:
        case 118:
        case 119:
        case 121:
        case 125:
        case 130:
        case 131:
        case 133:
        case 134: out = 0; return true;
        case kLargestLineAttribute: out = kLargestLine; return true;
        default: {
            const auto* found = std::ranges::find(kLargest, number, &Largest::attribute);
            out = found == std::end(kLargest) ? 0 : found->value;
            return out || number == 44;  // whether 2D gathers, which is asked by their sizes today
        }
    }
}

Status one(int device) { return device == 0 ? kSuccess : kInvalidDevice; }

constexpr int kHeapSize = 2, kPendingLaunches = 4;
const std::map<int, std::size_t> kLimits{{0, 1024}, {1, 8650752}, {kHeapSize, 8 << 20}, {kPendingLaunches, 2048},
                                         {5, 64},   {6, 0}};

std::map<int, std::size_t>& limits() {
    static auto* all = new std::map<int, std::size_t>(kLimits);
    return *all;
}

}  // namespace

Status device_attribute(int* out, int number, int device) {
    return with_device([&](Process& p) {
        if (!out) return Status{kInvalidValue};
        if (const Status status = one(device)) return status;
        return Status{attribute(p.device, number, *out) ? kSuccess : kInvalidValue};
    });
}

}  // namespace fmha

using namespace fmha;

FMHA_EXPORT Status cudaGetDeviceCount(int* out) {
    return with_device([&](Process&) {
        *out = 1;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGetDevice(int* out) {
    return with_device([&](Process&) {
        *out = 0;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaSetDevice(int device) {
    return with_device([&](Process&) { return one(device); });
}
FMHA_EXPORT Status cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
FMHA_EXPORT Status cudaSetValidDevices(int*, int) { return kSuccess; }
FMHA_EXPORT Status cudaSetDeviceFlags(unsigned) { return kSuccess; }
FMHA_EXPORT Status cudaGetDeviceFlags(unsigned* out) {
    *out = 8;  // host memory is mapped
    return kSuccess;
}

FMHA_EXPORT Status cudaChooseDevice(int* out, const DeviceProperties*) { return cudaGetDevice(out); }

FMHA_EXPORT Status cudaGetDeviceProperties(DeviceProperties* out, int device) {
    return with_device([&](Process& p) {
        if (!out) return Status{kInvalidValue};
        if (const Status status = one(device)) return status;
        *out = properties(p.device);
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaDeviceGetAttribute(int* out, int number, int device) {
    return device_attribute(out, number, device);
}

FMHA_EXPORT Status cudaDeviceGetPCIBusId(char* out, int size, int device) {
    if (const Status status = one(device)) return noted(status);
    const std::string id = "0000:00:00.0";
    if (size <= static_cast<int>(id.size())) return noted(kInvalidValue);
    std::copy_n(id.c_str(), id.size() + 1, out);
    return kSuccess;
}

FMHA_EXPORT Status cudaDeviceSynchronize() {
    return on_device([](Process&) { return Status{kSuccess}; });
}

FMHA_EXPORT Status cudaDeviceReset() {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    p.settle();
    p.forget_all();
    forget_pools();
    limits() = kLimits;
    last_error = kSuccess;
    return p.ready();
}

FMHA_EXPORT Status cudaDeviceGetLimit(std::size_t* out, int limit) {
    auto it = limits().find(limit);
    if (it == limits().end()) return noted(kUnsupportedLimit);
    *out = it->second;
    return kSuccess;
}

FMHA_EXPORT Status cudaDeviceSetLimit(int limit, std::size_t value) {
    auto it = limits().find(limit);
    if (it == limits().end()) return noted(kUnsupportedLimit);
    const char* const asked = limit == kHeapSize ? "heap" : limit == kPendingLaunches ? "pending" : nullptr;
    const Status status =
        asked ? on_device([&](Process& p) { return p.ask(Request(asked).integer(value)).status; }) : kSuccess;
    if (!status) it->second = value;
    return status;
}

FMHA_EXPORT Status cudaDeviceGetCacheConfig(int* out) {
    *out = 0;
    return kSuccess;
}
FMHA_EXPORT Status cudaDeviceSetCacheConfig(int) { return kSuccess; }
FMHA_EXPORT Status cudaDeviceGetSharedMemConfig(int* out) {
    *out = 1;  // banks of four bytes
    return kSuccess;
}
FMHA_EXPORT Status cudaDeviceSetSharedMemConfig(int) { return kSuccess; }
FMHA_EXPORT Status cudaCtxResetPersistingL2Cache() { return kSuccess; }

FMHA_EXPORT Status cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return kSuccess;
}

FMHA_EXPORT Status cudaDeviceCanAccessPeer(int* out, int, int) {
    *out = 0;
    return kSuccess;
}

FMHA_EXPORT Status cudaRuntimeGetVersion(int* out) {
    *out = kVersion;
    return kSuccess;
}
FMHA_EXPORT Status cudaDriverGetVersion(int* out) { return cudaRuntimeGetVersion(out); }

FMHA_EXPORT Status cudaProfilerStart() { return kSuccess; }
FMHA_EXPORT Status cudaProfilerStop() { return kSuccess; }

FMHA_EXPORT Status cudaDeviceGetTexture1DLinearMaxWidth(std::size_t* out, const ChannelFormat*, int device) {
    if (const Status wrong = one(device)) return noted(wrong);
    if (!out) return noted(kInvalidValue);
    *out = kLargestLine;
    return kSuccess;
}

FMHA_EXPORT ChannelFormat cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }
