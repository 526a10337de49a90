#include "order/sync_table.hpp"

namespace ptxm {

SyncTable::Slot* SyncTable::find(u64 key) {
    if (slots_.empty()) return nullptr;
    auto it = slots_.find(key);
    return it == slots_.end() ? nullptr : &it->second;
}

SyncTable::Slot& SyncTable::at(u64 key) { return slots_[key]; }
void SyncTable::forget(u64 key) { slots_.erase(key); }
void SyncTable::clear() { slots_.clear(); }

SyncTable::SyncTable() = default;
SyncTable::~SyncTable() = default;

}  // namespace ptxm
