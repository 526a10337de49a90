// Conflict checks of linear memory: is this access ordered after the earlier ones it overlaps?
#pragma once

#include <span>

#include "findings/finding.hpp"
#include "order/history/access_history.hpp"
#include "order/history/block_chunks.hpp"

namespace ptxm {

class LinearShadow;
struct Allocation;
struct Cta;
struct Machine;
struct Warp;

// `proxy_async` tells which proxy is accessing. The ranges are those of one
// operation, in one CTA's shared memory or in one allocation. Ranges in shared memory, `offset` further on: they lie in
// [low, end).
struct SharedRanges {
    std::span<const Range> ranges;
    u64 offset, low, end;
    std::span<const BlockChunks> blocks = {};  // the same, where they are whole chunks and somebody has sorted them
};
void touch_shared(Cta& target, Warp& w, const SharedRanges& r, const Accessor& who, bool proxy_async);
void touch_shared(Cta& target, Warp& w, std::span<const Range> ranges, const Accessor& who, bool proxy_async);
inline void touch_shared(Cta& target, Warp& w, u32 offset, u32 size, const Accessor& who, bool proxy_async) {
    const Range range{offset, size};
    touch_shared(target, w, SharedRanges{{&range, 1}, 0, offset, u64{offset} + size}, who, proxy_async);
}
void touch_global(Allocation& a, Warp& w, std::span<const Range> ranges, const Accessor& who, bool proxy_async);
// The value of the load in progress is not to be relied on: lenient profile. `why` is told where it is used.
void doubt(Warp& w, Doubt why);
// Whether this warp's load of these bytes, in shared memory by their offset, raced with who wrote them.
bool races(Warp& w, LinearShadow& shadow, u64 offset, u64 bytes, const Accessor& who);
Accessor of_cluster(const Warp& w, Accessor who);
// Whether all of these bytes have been written: by the host, by a launch before this one or in this one.
bool written(Machine& m, const Allocation& a, u64 address, u64 bytes);
inline void touch_global(Allocation& a, Warp& w, u64 address, u32 size, const Accessor& who, bool proxy_async) {
    const Range range{address, size};
    touch_global(a, w, {&range, 1}, who, proxy_async);
}
// The same checks, through the generic proxy, of what mostly lies alike and has nothing to report. False, and nothing
// has happened, otherwise: then ranges tell.
bool touch_shared_lanes(Warp& w, const LanePieces& pieces, const Accessor& who);
bool touch_global_lanes(Allocation& a, Warp& w, const LanePieces& pieces, const Accessor& who);
// False where there is something to report: then nothing has been, and the ranges are to be touched again. Of loads
// through the generic proxy, which may come twice.
bool touch_global_quietly(Allocation& a, Warp& w, std::span<const Range> ranges, const Accessor& who);
// The same of what a bulk copy reads, where accesses are not noted; but where it is false, nothing has happened.
bool touch_global_blocks(Allocation& a, Warp& w, std::span<const BlockChunks> blocks, const Accessor& who);

}  // namespace ptxm
