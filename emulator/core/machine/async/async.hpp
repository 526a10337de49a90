// Work that an instruction starts and that completes beside the warps.
#pragma once

#include <functional>

#include "machine/async/async_queue.hpp"

namespace ptxm {

struct Cluster;
struct Warp;

// `tensor`: behind what the CTA's tensor core has.
void start_async(Warp& w, bool tensor, u64 latency, std::function<void()> complete);
// For operations of several stages: all fields of `op` but the sequence number are set.
void enqueue_async(Cluster& cluster, AsyncOp op);

}  // namespace ptxm
