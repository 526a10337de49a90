// What a cluster starts with.
#pragma once

#include <array>
#include <memory>

#include "machine/machine.hpp"

namespace ptxm {

// `first`: the place of its first CTA in the grid.
std::unique_ptr<Cluster> make_cluster(Machine& m, const std::array<u32, 3>& first, u16 number);

}  // namespace ptxm
