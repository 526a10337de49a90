// The report of a launch that cannot go on.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "machine/cluster/cluster.hpp"

namespace ptxm {

// What a fragment waits for, in words.
std::string describe_wait(const Cluster& cluster, const Cta& cta, const Fragment& f);

// For each warp of these clusters, where it waits and the state of what it waits for, under `rule`.
void report_deadlock(std::span<const std::unique_ptr<Cluster>> resident, const char* rule);

}  // namespace ptxm
