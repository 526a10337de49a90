// What findings call a CTA, a place in its shared memory and an agent.
#pragma once

#include <string>

#include "order/clocks.hpp"

namespace ptxm {

struct Cluster;
struct Cta;

std::string name_of(const Cta& cta);                   // in the grid, and in its cluster
std::string shared_place(const Cta& cta, u32 offset);  // "shared 0x400 of CTA 2"
std::string shared_extent(const Cta& cta);             // what shared memory it has, and of what kind
std::string describe_agent(const Cluster& cluster, AgentId agent);

}  // namespace ptxm
