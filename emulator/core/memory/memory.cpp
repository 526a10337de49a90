#include "memory/memory.hpp"

#include "memory/access_log.hpp"
#include "order/history/linear_history.hpp"

namespace ptxm {

GlobalMemory::GlobalMemory() = default;
GlobalMemory::~GlobalMemory() = default;

u64 GlobalMemory::allocate(u64 size, std::string name) {
    const u64 base = reserve(size);
    back(base, size, std::move(name));
    return base;
}

u64 GlobalMemory::reserve(u64 size) {
    const u64 base = (next_ + 255) / 256 * 256;
    if (size > kSharedWindow - kAllocationGap - base)
        throw std::invalid_argument(format("there are no %llu more addresses", (unsigned long long)size));
    next_ = base + size + kAllocationGap;
    return base;
}

void GlobalMemory::back(u64 address, u64 size, std::string name) {
    const auto after = allocations_.lower_bound(address);
    const bool below = after != allocations_.begin() && std::prev(after)->second.holds(address, 1);
    if (below || (after != allocations_.end() && after->first < address + size) || address < kGlobalBase ||
        address > next_ || size > next_ - address)
        throw std::invalid_argument(
            format("%llu bytes at 0x%llx are not free", (unsigned long long)size, (unsigned long long)address));
    std::erase_if(released_, [&](const Released& r) { return r.base < address + size && address < r.base + r.size; });
    Allocation a;
    a.base = address;
    a.size = size;
    a.name = std::move(name);
    a.data = std::make_unique_for_overwrite<u8[]>(size);
    std::memset(a.data.get(), kPoison, size);
    a.written = WrittenBytes(size);
    a.index = indices_++;
    allocations_.emplace(address, std::move(a));
}

void GlobalMemory::release(u64 address) {
    const auto it = allocations_.find(address);
    if (it == allocations_.end())
        throw std::invalid_argument(format("no allocation starts at 0x%llx", (unsigned long long)address));
    constexpr std::size_t kReleased = 64;
    if (released_.size() == kReleased) released_.pop_front();
    released_.push_back({address, it->second.size, std::move(it->second.name)});
    allocations_.erase(it);
}

u64 GlobalMemory::allocate_in_heap(u64 size) {
    if (size > heap.limit || heap.used + heap.taken(size) > heap.limit) return 0;
    heap.used += heap.taken(size);
    heap.made += 1;
    // An address that is a multiple of 16 and of no more: what relies on more is to be seen.
    const u64 address = reserve(size + heap.kAlignment) + heap.kAlignment;
    back(address, size, format("malloc %u", heap.made));
    allocations_.at(address).of_heap = true;
    return address;
}

void GlobalMemory::release_in_heap(Allocation& a, u32 line) {
    heap.used -= heap.taken(a.size);
    a.freed_line = line;
    kept_freed_ += a.size + sizeof a;
    freed_in_turn_.push_back(a.base);
    freed_.insert(allocations_.extract(a.base));
    while (kept_freed_ > kKeptFreed && freed_in_turn_.size() > 1) {
        const auto oldest = freed_.find(freed_in_turn_.front());
        kept_freed_ -= oldest->second.size + sizeof oldest->second;
        freed_.erase(oldest);
        freed_in_turn_.pop_front();
    }
}

const Allocation* GlobalMemory::freed(u64 address) const {
    auto it = freed_.upper_bound(address);
    if (it == freed_.begin()) return nullptr;
    --it;
    const Allocation& a = it->second;
    return address - a.base < std::max<u64>(a.size, 1) ? &a : nullptr;
}

Allocation* GlobalMemory::find(u64 address, u64 size) {
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return nullptr;
    --it;
    return it->second.holds(address, size) ? &it->second : nullptr;
}

const Allocation* GlobalMemory::holder(u64 address) const {
    auto it = allocations_.upper_bound(address);
    return it != allocations_.begin() && std::prev(it)->second.holds(address, 1) ? &std::prev(it)->second : nullptr;
}

std::string GlobalMemory::describe(u64 address) const {
    for (auto r = released_.rbegin(); r != released_.rend(); ++r)
        if (address - r->base < r->size)
            return format("%llu bytes into '%s' of %llu bytes, which the host has freed",
                          (unsigned long long)(address - r->base), r->name.c_str(), (unsigned long long)r->size);
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return "below every allocation";
    --it;
    const Allocation& a = it->second;
    if (a.of_heap && address - a.base < a.size)
        return format("in '%s' of the kernels' heap, which the host cannot reach", a.name.c_str());
    if (address - a.base < a.size)
        return format("starts %llu bytes into '%s' of %llu bytes and runs past its end",
                      (unsigned long long)(address - a.base), a.name.c_str(), (unsigned long long)a.size);
    constexpr u64 kFar = u64{1} << 36;  // what an index of 32 bits does not reach
    if (address - a.base - a.size > kFar) return "far from every allocation";
    return format("%llu bytes past the end of '%s' of %llu bytes", (unsigned long long)(address - a.base - a.size),
                  a.name.c_str(), (unsigned long long)a.size);
}

GlobalView::GlobalView() : memory_(std::make_shared<GlobalMemory>()) {}
GlobalView::GlobalView(const GlobalView& other, AccessLog* log) : memory_(other.memory_), log_(log) {}
GlobalView::~GlobalView() = default;

LinearShadow& GlobalView::new_shadow(const Allocation& a) {
    if (a.index >= shadows_.size()) shadows_.resize(memory_->indices());
    return *(shadows_[a.index] = std::make_unique<LinearShadow>(a.size));
}

void GlobalView::forget_shadows() {
    if (!log_) keep_written();  // those that run side by side tell by their logs
    for (std::unique_ptr<LinearShadow>& shadow : shadows_)
        if (shadow) shadow->forget();
}

void GlobalView::release(u64 address) {
    recent_ = nullptr;
    const auto found = memory_->allocations().find(address);
    if (found != memory_->allocations().end() && found->second.index < shadows_.size())
        shadows_[found->second.index].reset();
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
