// What memory pools know of allocations.
#pragma once

#include "process.hpp"

namespace fmha {

bool is_pool(const void* pool);
// Null is the device's current pool.
void allocated_in_pool(Address address, std::size_t size, void* pool);
void freed_from_pools(Address address);
void forget_pools();  // cudaDeviceReset

}  // namespace fmha
