// Address spaces. Generic addresses are split into windows; global allocations have guard gaps between them so that an
// access past an end never lands in a neighbour.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "findings/finding.hpp"
#include "memory/images.hpp"
#include "memory/written_bytes.hpp"

namespace ptxm {

constexpr u64 kGlobalBase = 0x0000'0100'0000'0000ull;
constexpr u64 kSharedWindow = 0x0000'0200'0000'0000ull;
constexpr u64 kLocalWindow = 0x0000'0300'0000'0000ull;
constexpr u64 kParamWindow = 0x0000'0400'0000'0000ull;
constexpr u64 kWindowMask = 0xFFFF'FF00'0000'0000ull;
constexpr u64 kAllocationGap = 4096;
// What every byte holds that nobody has written: a NaN of every floating-point format, and an index that is out of
// bounds everywhere.
constexpr u8 kPoison = 0xFF;

// A shared::cluster address is rank << 24 | offset, which is how the peer bit of a CTA pair is flipped by public
// kernels. Offsets start at 1024: the first kilobyte of a CTA's shared memory belongs to the system on sm_90 and later.
constexpr u32 kSharedRankShift = 24, kSharedOffsetMask = (1u << kSharedRankShift) - 1, kSharedStart = 1024;
// Of that kilobyte a kernel may use what %reserved_smem_offset_begin to _end name: so many bytes on sm_90 and later.
constexpr u32 kReservedShared = 288;

struct Allocation {
    bool holds(u64 address, u64 bytes) const {
        return address >= base && bytes <= size && address - base <= size - bytes;
    }

    u64 base = 0, size = 0;
    std::string name;
    std::unique_ptr<u8[]> data;
    u32 index = 0;  // its own for the life of the memory
    WrittenBytes written;
    bool of_heap = false;  // a kernel's malloc has made it: the host cannot reach it
    u32 freed_line = 0;    // of PTX, once a kernel has freed it
};

// What the kernels' malloc gives and free takes back (CUDA C++ programming guide, dynamic global memory allocation).
struct DeviceHeap {
    static constexpr u64 kAlignment = 16;
    // Of the limit. How much more a GPU's allocator takes for itself, nobody says.
    static u64 taken(u64 size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

    u64 limit = 8 << 20;  // cudaLimitMallocHeapSize
    u64 used = 0;
    u32 made = 0;
};

class GlobalMemory {
public:
    GlobalMemory();
    ~GlobalMemory();
    u64 allocate(u64 size, std::string name);
    // Addresses that nothing else gets, a gap behind them. There is memory where `back` puts some.
    u64 reserve(u64 size);
    void back(u64 address, u64 size, std::string name);
    void release(u64 address);
    // malloc of a kernel: 0 where the heap has no room.
    u64 allocate_in_heap(u64 size);
    // free of a kernel. No access finds the allocation, but it stays for what is in flight, and to be named where it is
    // used, until many others have been freed.
    void release_in_heap(Allocation& a, u32 line);
    // What held this address until a kernel freed it, or null.
    const Allocation* freed(u64 address) const;
    DeviceHeap heap;
    Images images;
    // The allocation that holds all of [address, address + size), or null.
    Allocation* find(u64 address, u64 size);
    // What lies nearest to an address that no allocation holds, for a message.
    std::string describe(u64 address) const;
    // The allocation that holds a byte, or null.
    const Allocation* holder(u64 address) const;
    u32 indices() const { return indices_; }
    std::map<u64, Allocation>& allocations() { return allocations_; }

private:
    static constexpr u64 kKeptFreed = 64 << 20;  // bytes

    std::map<u64, Allocation> allocations_, freed_;
    std::deque<u64> freed_in_turn_;
    struct Released {
        u64 base, size;
        std::string name;
    };
    std::deque<Released> released_;  // by the host, the last few
    u64 kept_freed_ = 0;
    u64 next_ = kGlobalBase + kAllocationGap;
    u32 indices_ = 0;
};

class AccessLog;
class LinearShadow;

// Global memory as one machine sees it: the bytes, which machines that run side by side share, and its own shadow.
class GlobalView {
public:
    GlobalView();
    GlobalView(const GlobalView& other, AccessLog* log);
    ~GlobalView();

    u64 allocate(u64 size, std::string name) { return memory_->allocate(size, std::move(name)); }
    u64 reserve(u64 size) { return memory_->reserve(size); }
    void back(u64 address, u64 size, std::string name) { memory_->back(address, size, std::move(name)); }
    void release(u64 address);
    u64 allocate_in_heap(u64 size) { return memory_->allocate_in_heap(size); }
    void release_in_heap(Allocation& a, u32 line) {
        recent_ = nullptr;
        memory_->release_in_heap(a, line);
    }
    DeviceHeap& heap() { return memory_->heap; }
    Images& images() { return memory_->images; }
    // For the host: what kernels have allocated is not its own.
    Allocation* find_for_host(u64 address, u64 size) {
        Allocation* a = find(address, size);
        return a && !a->of_heap ? a : nullptr;
    }
    Allocation* find(u64 address, u64 size) {
        if (recent_ && recent_->holds(address, size)) return recent_;
        Allocation* a = memory_->find(address, size);
        return a ? recent_ = a : nullptr;
    }
    std::string describe(u64 address) const { return memory_->describe(address); }
    const GlobalMemory& memory() const { return *memory_; }
    GlobalMemory& memory() { return *memory_; }

    // Of the launch in progress; made on first use.
    LinearShadow* existing_shadow(const Allocation& a) {
        return a.index < shadows_.size() ? shadows_[a.index].get() : nullptr;
    }
    LinearShadow& shadow(const Allocation& a) {
        LinearShadow* const known = existing_shadow(a);
        return known ? *known : new_shadow(a);
    }
    void forget_shadows();
    // What the launch has written counts as written from here on.
    void keep_written();
    void add_written(u64 begin, u64 end);
    // Somebody of this cluster has read or written these bytes.
    void remember(u64 begin, u64 end, u16 cluster, bool write);

    // Whether accesses are noted.
    bool logs() const { return log_ != nullptr; }
    // Before every access.
    void note(const Allocation& a, u64 address, u32 size, bool write) {
        if (log_) record(a, address, size, write);
    }

private:
    LinearShadow& new_shadow(const Allocation& a);
    void record(const Allocation& a, u64 address, u32 size, bool write);

    std::shared_ptr<GlobalMemory> memory_;
    AccessLog* log_ = nullptr;
    Allocation* recent_ = nullptr;
    std::vector<std::unique_ptr<LinearShadow>> shadows_;  // by Allocation::index
};

}  // namespace ptxm
