#include "machine/observer.hpp"

#include "machine/machine.hpp"

namespace ptxm {

void finish_async(Cluster& cluster, const AsyncOp& op) {
    Observer* const observer = Observer::of(*cluster.machine);
    if (!observer) return op.complete();
    observer->completing(cluster, op);
    op.complete();
    observer->completed(cluster, op);
}

void show_barrier(BarrierEvent event, const Cta& cta, u32 offset, const Mbarrier& bar, const Warp* w, i32 pc,
                  i64 amount) {
    if (Interleaving* const order = cta.cluster->machine->interleaving.get(); order) {
        const bool asks = event == BarrierEvent::wait || event == BarrierEvent::pass;
        if (asks || event == BarrierEvent::phase)
            order->access(u64{cta.cluster->number} << 40 | cta.shared_address(offset), w ? name_in_order(*w, pc) : 0,
                          !asks);
    }
    if (Observer* const o = Observer::of(*cta.cluster->machine)) o->barrier({event, &cta, offset, &bar, w, pc, amount});
}

}  // namespace ptxm
