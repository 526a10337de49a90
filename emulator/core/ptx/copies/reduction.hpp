// The element operations of cp.reduce.async.bulk and cp.reduce.async.bulk.tensor.
#pragma once

#include "machine/machine.hpp"

namespace ptxm {

// Combines `bytes` of source elements into the destination. Throws Fault for a type that the operation does not take.
void reduce_bytes(Reduction operation, Ty type, u8* destination, const u8* source, u32 bytes);
bool reduces(Reduction operation, Ty type);

}  // namespace ptxm
