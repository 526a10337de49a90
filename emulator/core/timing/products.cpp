// What the tensor core does, and tensor memory.
#include "timing/replayer.hpp"

namespace ptxm::timing {

// Cycles of the tensor pipe.
double Replayer::product(const Deed& d) const {
    const double m = std::max(64u, d.a >> 16), n = d.a & 0xFFFF;
    const double each = d.rank & 2 ? 0.5 : 1;  // of a pair: each CTA has half of the rows, on all lanes
    return std::max({m * each * n * 16 / t_.matrix_rate, n * each * t_.matrix_least, d.b / t_.shared_bytes});
}

void Replayer::multiply(Runner& w, Sm& sm, const Step& step) {
    const Deed& d = w.recording->deeds[step.deed - 1];
    const double length = product(d), at = w.time + t_.matrix_issue;
    double done = sm.tensor.take(at, length);
    if (d.rank & 2 && sms_.size() > 1)  // of a pair: the pipes of both go together
        done = std::max(done, sms_[ctas_[w.cta].rank ^ 1].tensor.take(at, length));
    sm.tensor_end = done + latency(d.rank & 1);
    sm.tensor_last = operate(w, step.pc, done - length, sm.tensor_end, Cause::tensor, d.a);
    w.time += t_.matrix_issue;
}

void Replayer::commit(Runner& w, Sm& sm, const Step& step) {
    each_deed(w, step, [&](const Deed& d) {
        Barrier& b = mbarrier(w, d);
        b.pending -= 1;
        b.contribute(std::max(w.time, sm.tensor_end), sm.tensor_last);
        settle(b, t_.mbarrier_wake);
    });
}

void Replayer::tensor_memory(Runner& w, Sm& sm, const Cost& c, const i32* o, u32 pc) {
    const u32 registers = c.pipe == Pipe::tmem_ld ? c.n_dst : c.n_src - 1u;
    const double done = sm.tmem[w.index % kSlots].take(w.time, registers * t_.tmem_interval) + t_.tmem_latency;
    w.tmem = std::max(w.tmem, done);
    results(w, c, o, done, Cause::tmem);
    operate(w, pc, w.time, done, Cause::tmem, registers);
}

void Replayer::multiply_together(Runner& w, Sm& sm, const Step& step) {
    Group& g = ctas_[w.cta].groups[w.index / 4];
    w.products += 1;
    g.ready = std::max(g.ready, w.time);
    w.time += t_.matrix_issue;
    if (++g.arrived % 4) return;
    const Deed& d = w.recording->deeds[step.deed - 1];
    const bool registers = d.b <= (d.a & 0xFFFF) * 32;
    const double length = product(d), done = sm.tensor.take(g.ready, length), end = done + latency(registers);
    g.ready = 0;
    g.done.push_back({end, operate(w, step.pc, done - length, end, Cause::tensor, d.a)});
    for (u32 id : std::exchange(g.waiting, {})) {
        Runner& other = warps_[id];
        const u32 target = other.blocked_place;
        if (target <= g.done.size())
            wake(other, g.done[target - 1].end, g.done[target - 1].id);
        else
            g.waiting.push_back(id);
    }
}

bool Replayer::await_products(Runner& w, u32 open, u32 pc) {
    if (w.commits.size() <= open || !w.commits[w.commits.size() - 1 - open]) return hold(w, pc, 0, Cause::tensor, 0);
    const u32 target = w.commits[w.commits.size() - 1 - open];
    Group& g = ctas_[w.cta].groups[w.index / 4];
    if (g.done.size() >= target) return hold(w, pc, g.done[target - 1].end, Cause::tensor, g.done[target - 1].id);
    g.waiting.push_back(w.id);
    block(w, Cause::tensor, target);
    return false;
}

}  // namespace ptxm::timing
