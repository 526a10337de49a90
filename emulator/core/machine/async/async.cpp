#include "machine/async/async.hpp"

#include <algorithm>

#include "machine/machine.hpp"
#include "machine/observer.hpp"

namespace ptxm {

void start_async(Warp& w, bool tensor, u64 latency, std::function<void()> complete_fn) {
    Cta& cta = *w.cta;
    Cluster& cluster = *cta.cluster;
    Machine& m = *cluster.machine;
    AsyncOp op;
    op.time = w.time + latency;
    if (tensor) {
        op.time = std::max(cta.tensor_free, w.time) + latency;
        cta.tensor_free = op.time;
    }
    op.tensor = tensor;
    op.cta = cta.rank;
    op.pc = w.pc();
    op.warp = w.index;
    op.complete = std::move(complete_fn);
    m.stats.async_ops += 1;
    if (m.schedule == Schedule::early) cluster.now = std::max(cluster.now, w.time);
    enqueue_async(cluster, std::move(op));
}

void enqueue_async(Cluster& cluster, AsyncOp op) {
    op.sequence = cluster.sequence++;
    if (cluster.machine->schedule == Schedule::early) {
        finish_async(cluster, op);
        return;
    }
    if (cluster.machine->schedule == Schedule::pct) op.priority = Search::high(cluster.random);
    cluster.woken = true;
    cluster.pending.push(std::move(op), !draws(cluster.machine->schedule));
}

}  // namespace ptxm
