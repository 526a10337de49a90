// tcgen05.commit and the tcgen05 fences (PTX ISA 9.7.16.11, 9.7.16.12).
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "machine/observer.hpp"
#include "order/conflicts/cta_exit.hpp"
#include "ptx/barriers/mbarrier.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm {
namespace {

// What a commit's arrival tells: the tensor-core operations that its thread has issued are complete, and with them
// those that the warp issued before. It implies fence::before_thread_sync (PTX ISA 9.7.16.6.4).
Message commit_message(Warp& w, u32 lane) {
    Message message = w.clocks.release();
    message.tc = w.clocks.tc;
    for (VectorClock* clock : {&message.generic, &message.async, &message.tc})
        clock->raise(w.clocks.tensor, w.clocks.mma_issued_by[lane]);
    message.tc_unfenced.join(message.tc);
    return message;
}

// The tensor core works in the order of issue, so an arrival knows which phases this warp's earlier commits completed.
// The ISA pipelines a commit behind what it tracks (9.7.16.6.2.1) and says nothing of other commits; FlashAttention-4's
// decode kernels wait for the last of several phases on the strength of it. An arrival that
// no wait has shown, for it or for a later commit's, may come after the CTA has gone.
void arrive(const SharedRef& at, Message& message, VectorClock& completed, u32 pc) {
    auto it = at.cta->mbarriers.find(at.offset);
    if (it == at.cta->mbarriers.end())
        throw Fault("mbarrier-uninitialised",
                    format("tcgen05.commit arrives on %s, where the mbarrier has been invalidated",
                           shared_place(*at.cta, at.offset).c_str()));
    Mbarrier& bar = it->second;
    const u32 before = bar.phase;
    message.generic.join(completed);
    mbarrier_arrive(nullptr, *at.cta, at.offset, bar, 1, &message);
    if (bar.phase != before) completed.raise(bar.phases, bar.phase);
    if (at.cta->cluster->machine->checks) note_outside_access(*at.cta, bar.phases, before + 1, pc);
}

// The mbarriers that one lane's commit arrives on: its operand's, or the same offset in every CTA of the mask.
std::vector<SharedRef> targets(Warp& w, const Inst& i, u32 lane) {
    const i32* o = w.ops(i);
    u64 address = i.width_src == 64 ? w.reg<u64>(o[0])[lane] : w.reg<u32>(o[0])[lane];
    if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
    if (address >> 32)
        throw Fault("shared-out-of-bounds",
                    format("tcgen05.commit on 0x%llx, which is not in shared memory", (unsigned long long)address));
    const u32 to = static_cast<u32>(address);
    if (!(i.mods & kTcMulticast)) return {resolve_shared(w, to, 8, "tcgen05.commit")};
    std::vector<SharedRef> found;
    const u32 mask = w.reg<u16>(o[1])[lane];
    for (u32 rank = 0; rank < 16; ++rank)
        if (mask >> rank & 1)
            found.push_back(resolve_shared(w, rank << kSharedRankShift | (to & kSharedOffsetMask), 8,
                                           "tcgen05.commit.multicast::cluster"));
    if (found.empty()) throw Fault("commit-mask", "tcgen05.commit.multicast::cluster with an empty CTA mask");
    return found;
}

// For what a finding says of an MMA that no commit covers.
void note_commit(Warp& w, u32 lane) {
    const u32 covered = w.clocks.mma_issued_by[lane];
    w.commits.covered = std::max(w.commits.covered, covered);
    if (!covered) w.commits = {w.commits.covered, w.pc(), lane};
}

Flow commit(Warp& w, const Inst& i, u32 mask) {
    tc::ctas_of(w, i.mods & kTcPair, "tcgen05.commit");
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const std::vector<SharedRef> at = targets(w, i, l);
        for (const SharedRef& t : at) {
            Mbarrier& bar = mbarrier_at(w, t.cta->shared_address(t.offset), "tcgen05.commit");
            check_mbarrier_visible(w, bar, true);
            show_barrier(BarrierEvent::promise, *t.cta, t.offset, bar, &w, w.pc(), 1);
        }
        note_commit(w, l);
        start_async(w, true, 0,
                    [at, message = commit_message(w, l), &completed = w.commit_phases,
                     pc = static_cast<u32>(w.pc())]() mutable {
                        for (const SharedRef& t : at) arrive(t, message, completed, pc);
                    });
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_tensor_sync(X)                                                   \
    X(tc_commit, barrier, tensor_sync)                                            \
    X(tc_fence_before, barrier, tensor_sync, "tcgen05.fence::before_thread_sync") \
    X(tc_fence_after, barrier, tensor_sync, "tcgen05.fence::after_thread_sync")
// clang-format on

Handler bind_tensor_sync(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tc_commit: return commit;
        case Op::tc_fence_before:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.fence_before();
                return Flow::next;
            };
        case Op::tc_fence_after:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.fence_after();
                return Flow::next;
            };
        default: return nullptr;
    }
}

}  // namespace ptxm
