#include "memory/memory.hpp"

#include "memory/access_log.hpp"

namespace ptxm {

u64 GlobalMemory::allocate(u64 size, std::string name) {
    const u64 base = (next_ + 255) / 256 * 256;
    next_ = base + size + kAllocationGap;
    Allocation a;
    a.base = base;
    a.size = size;
    a.name = std::move(name);
    a.data = std::make_unique_for_overwrite<u8[]>(size);
    std::memset(a.data.get(), kPoison, size);
    a.written = WrittenBytes(size);
    a.index = indices_++;
    allocations_.emplace(base, std::move(a));
    return base;
}

void GlobalMemory::release(u64 address) {
    if (allocations_.erase(address) == 0)
        throw std::invalid_argument(format("no allocation starts at 0x%llx", (unsigned long long)address));
}

Allocation* GlobalMemory::find(u64 address, u64 size) {
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return nullptr;
    --it;
    return it->second.holds(address, size) ? &it->second : nullptr;
}

std::string GlobalMemory::describe(u64 address) const {
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return "below every allocation";
    --it;
    const Allocation& a = it->second;
    if (address - a.base < a.size)
        return format("starts %llu bytes into '%s' of %llu bytes and runs past its end",
                      (unsigned long long)(address - a.base), a.name.c_str(), (unsigned long long)a.size);
    return format("%llu bytes past the end of '%s' of %llu bytes", (unsigned long long)(address - a.base - a.size),
                  a.name.c_str(), (unsigned long long)a.size);
}

void GlobalView::release(u64 address) {
    recent_ = nullptr;
    shadows_.clear();
    memory_->release(address);
}

void GlobalView::keep_written() {
    for (auto& [base, a] : memory_->allocations()) {
        LinearShadow* const shadow = a.written.complete() ? nullptr : existing_shadow(a);
        if (!shadow) continue;
        shadow->each_written(0, a.size, [&](u64 begin, u64 end) { a.written.add(begin, end); });
    }
}

void GlobalView::add_written(u64 begin, u64 end) {
    if (Allocation* const a = find(begin, end - begin)) a->written.add(begin - a->base, end - a->base);
}

void GlobalView::remember(u64 begin, u64 end, u16 cluster, bool write) {
    Allocation* const a = find(begin, end - begin);
    if (!a) return;
    LinearShadow& all = shadow(*a);
    Accessor who{0, 1, 0, write};
    who.cluster = cluster;
    Touch touch(all.pasts(), who, false, [](const Access&, bool) { return true; }, [](const Conflict&) {});
    all.touch(begin - a->base, end - begin, touch);
}

void GlobalView::record(const Allocation& a, u64 address, u32 size, bool write) {
    if (write)
        log_->write(a, address, size);
    else
        log_->read(address, size);
}

}  // namespace ptxm
