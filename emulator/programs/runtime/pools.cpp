// Memory pools: allocations in a stream's order. Here they are done at once, as cudaMalloc's are; a pool knows what is
// used of it, and gives back nothing that it could keep.
#include <algorithm>
#include <cstring>

#include "pools.hpp"

using namespace fmha;

namespace {

struct Properties {  // cudaMemPoolProps
    int allocation, handles, location, device;
    void* security;
    std::size_t most;
    unsigned short usage;
    unsigned char reserved[54];
};

struct Location {  // cudaMemLocation
    int type, device;
};

struct Access {  // cudaMemAccessDesc
    Location location;
    int flags;
};

enum { kPinned = 1, kOnDevice = 1, kReadWrite = 3 };

struct Pool {
    int reuse[3] = {1, 1, 1};
    std::uint64_t threshold = 0, used = 0, most_used = 0;
    std::map<Address, std::size_t> allocations{};
};

Pool standard, *current = &standard;  // under the process's lock
std::set<const void*> pools{&standard};

Status give(void** out, int device, Pool* pool) {
    return with_device([&](Process&) {
        if (!out) return Status{kInvalidValue};
        if (device) return Status{kInvalidDevice};
        *out = pool;
        return Status{kSuccess};
    });
}

template <class F>
Status of_pool(void* pool, F f) {
    return with_device(
        [&](Process& p) { return pools.contains(pool) ? f(p, *static_cast<Pool*>(pool)) : Status{kInvalidValue}; });
}

Status is_plain(Process& p, const Location* location, int allocation) {
    if (!location) return kInvalidValue;
    if (location->type != kOnDevice || allocation != kPinned) return p.refuse("a memory pool of memory of the host's");
    return location->device ? kInvalidDevice : kSuccess;
}

}  // namespace

namespace fmha {

void allocated_in_pool(Address address, std::size_t size, void* pool) {
    Pool& p = pool ? *static_cast<Pool*>(pool) : *current;
    p.allocations[address] = size;
    p.used += size;
    p.most_used = std::max(p.most_used, p.used);
}

void freed_from_pools(Address address) {
    for (const void* handle : pools) {
        Pool& p = *static_cast<Pool*>(const_cast<void*>(handle));
        if (const auto it = p.allocations.find(address); it != p.allocations.end()) {
            p.used -= it->second;
            p.allocations.erase(it);
        }
    }
}

void forget_pools() {
    pools.erase(&standard);
    for (const void* made : pools) delete static_cast<const Pool*>(made);
    pools = {&standard};
    standard = {};
    current = &standard;
}

bool is_pool(const void* pool) { return pools.contains(pool); }

}  // namespace fmha

FMHA_EXPORT Status cudaDeviceGetDefaultMemPool(void** out, int device) { return give(out, device, &standard); }
FMHA_EXPORT Status cudaDeviceGetMemPool(void** out, int device) { return give(out, device, current); }
FMHA_EXPORT Status cudaDeviceSetMemPool(int device, void* pool) {
    return of_pool(pool, [&](Process&, Pool& found) {
        if (device) return Status{kInvalidDevice};
        current = &found;
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cudaMemGetDefaultMemPool(void** out, const Location* location, int allocation) {
    const Status status = with_device([&](Process& p) { return is_plain(p, location, allocation); });
    return status ? status : give(out, 0, &standard);
}

FMHA_EXPORT Status cudaMemPoolCreate(void** out, const Properties* properties) {
    return with_device([&](Process& p) {
        if (!out || !properties) return Status{kInvalidValue};
        const Location location{properties->location, properties->device};
        if (const Status status = is_plain(p, &location, properties->allocation)) return status;
        if (properties->handles) return p.refuse("a memory pool that processes share");
        *out = new Pool;
        pools.insert(*out);
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaMemPoolDestroy(void* pool) {
    return of_pool(pool, [&](Process&, Pool& found) {
        if (&found == &standard) return Status{kInvalidValue};
        if (current == &found) current = &standard;
        pools.erase(pool);
        delete &found;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaMemPoolTrimTo(void* pool, std::size_t) {
    return of_pool(pool, [](Process&, Pool&) { return Status{kSuccess}; });
}

FMHA_EXPORT Status cudaMemPoolSetAttribute(void* pool, int attribute, const void* value) {
    return of_pool(pool, [&](Process& p, Pool& found) {
        if (!value) return Status{kInvalidValue};
        std::uint64_t given = 0;
        switch (attribute) {
            case 1:
            case 2:
            case 3: std::memcpy(&found.reuse[attribute - 1], value, sizeof(int)); return Status{kSuccess};
            case 4: std::memcpy(&found.threshold, value, sizeof found.threshold); return Status{kSuccess};
            case 8:
                std::memcpy(&given, value, sizeof given);
                if (given) return Status{kInvalidValue};
                found.most_used = found.used;
                return Status{kSuccess};
            default: return p.refuse("cudaMemPoolSetAttribute of attribute " + std::to_string(attribute));
        }
    });
}

FMHA_EXPORT Status cudaMemPoolGetAttribute(void* pool, int attribute, void* out) {
    return of_pool(pool, [&](Process& p, Pool& found) {
        if (!out) return Status{kInvalidValue};
        switch (attribute) {
            case 1:
            case 2:
            case 3: std::memcpy(out, &found.reuse[attribute - 1], sizeof(int)); return Status{kSuccess};
            case 4: std::memcpy(out, &found.threshold, sizeof found.threshold); return Status{kSuccess};
            case 7: std::memcpy(out, &found.used, sizeof found.used); return Status{kSuccess};
            case 8: std::memcpy(out, &found.most_used, sizeof found.most_used); return Status{kSuccess};
            default: return p.refuse("cudaMemPoolGetAttribute of attribute " + std::to_string(attribute));
        }
    });
}

FMHA_EXPORT Status cudaMemPoolSetAccess(void* pool, const Access* given, std::size_t n) {
    return of_pool(pool, [&](Process&, Pool&) {
        for (std::size_t i = 0; i < n; ++i)
            if (given[i].location.type != kOnDevice || given[i].location.device || given[i].flags != kReadWrite)
                return Status{kInvalidValue};
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaMemPoolGetAccess(int* out, void* pool, const Location* location) {
    return of_pool(pool, [&](Process&, Pool&) {
        if (!out || !location || location->type != kOnDevice || location->device) return Status{kInvalidValue};
        *out = kReadWrite;
        return Status{kSuccess};
    });
}

// The driver's, which mean the same.
FMHA_EXPORT Status cuDeviceGetDefaultMemPool(void** out, int device) {
    return cudaDeviceGetDefaultMemPool(out, device);
}
FMHA_EXPORT Status cuDeviceGetMemPool(void** out, int device) { return cudaDeviceGetMemPool(out, device); }
FMHA_EXPORT Status cuDeviceSetMemPool(int device, void* pool) { return cudaDeviceSetMemPool(device, pool); }
FMHA_EXPORT Status cuMemGetDefaultMemPool(void** out, const Location* location, int allocation) {
    return cudaMemGetDefaultMemPool(out, location, allocation);
}
FMHA_EXPORT Status cuMemPoolCreate(void** out, const Properties* given) { return cudaMemPoolCreate(out, given); }
FMHA_EXPORT Status cuMemPoolDestroy(void* pool) { return cudaMemPoolDestroy(pool); }
FMHA_EXPORT Status cuMemPoolTrimTo(void* pool, std::size_t kept) { return cudaMemPoolTrimTo(pool, kept); }
FMHA_EXPORT Status cuMemPoolSetAttribute(void* pool, int attribute, const void* value) {
    return cudaMemPoolSetAttribute(pool, attribute, value);
}
FMHA_EXPORT Status cuMemPoolGetAttribute(void* pool, int attribute, void* out) {
    return cudaMemPoolGetAttribute(pool, attribute, out);
}
FMHA_EXPORT Status cuMemPoolSetAccess(void* pool, const Access* given, std::size_t n) {
    return cudaMemPoolSetAccess(pool, given, n);
}
FMHA_EXPORT Status cuMemPoolGetAccess(int* out, void* pool, const Location* location) {
    return cudaMemPoolGetAccess(out, pool, location);
}
