// Every warp is a queue of instructions. The warp whose next instruction can be issued first goes next: when its
// operands are there (a time a register), its scheduler's slot and its pipe are free. What works beside the warps -
// copies, the tensor core, arrivals - gets its time of completion when it is issued, from the servers that it passes;
// who waits for it wakes then. So a replay needs no events but the warps themselves.
#include "timing/replay.hpp"

#include <cmath>

#include "timing/replayer.hpp"

namespace ptxm::timing {

Replayer::Replayer(const Program& program, const std::vector<const ClusterRecording*>& clusters, const Times& t,
                   const Share& share, bool traced, const std::vector<i64>& ranks)
    : t_(t), share_(share), traced_(traced), code_line_(static_cast<u32>(t.code_line)), operands_(program.operands) {
    for (const Inst& i : program.insts) {
        costs_.push_back(cost_of(i, t));
        costs_.back().line = static_cast<u32>(costs_.size() - 1) / code_line_;
    }
    if (!ranks.empty()) order_.emplace(ranks, costs_, operands_);
    const bool apart = !clusters.empty() && clusters[0]->ctas.size() > 1;
    sms_.resize(apart ? clusters[0]->ctas.size() : 1);
    for (Sm& sm : sms_) sm.code.assign(program.insts.size() / code_line_ + 1, -1);
    for (u32 c = 0; c < clusters.size(); ++c) place(*clusters[c], c, program.units, apart);
}

Result Replayer::run() {
    for (Runner& w : warps_) turns_.push({w.time, w.id});
    do
        while (!turns_.empty()) go(warps_[turns_.pop().second]);
    while (force());
    return finish();
}

void Replayer::place(const ClusterRecording& r, u32 number, u32 units, bool apart) {
    teams_.emplace_back();
    for (u32 rank = 0; rank < r.ctas.size(); ++rank) {
        Cta cta;
        cta.cluster = number;
        cta.rank = rank;
        cta.sm = apart ? rank : 0;
        cta.left = static_cast<u32>(r.ctas[rank].size());
        cta.groups.resize((r.ctas[rank].size() + 3) / 4);
        for (u32 k = 0; k < r.ctas[rank].size(); ++k) {
            Runner w;
            w.recording = &r.ctas[rank][k];
            if (order_) w.recording = &ordered_.emplace_back(order_->of(*w.recording));
            w.cta = static_cast<u32>(ctas_.size());
            w.index = k;
            w.slot = (k + number) % kSlots;
            w.id = static_cast<u32>(warps_.size());
            w.time = t_.cta_start;
            w.values.resize(units);
            w.told.cta = w.cta;
            w.told.warp = k;
            w.told.start = w.time;
            cta.threads += w.recording->threads;
            warps_.push_back(std::move(w));
        }
        teams_.back().threads += cta.threads;
        ctas_.push_back(std::move(cta));
    }
}

// A wait whose end the recording does not hold.
bool Replayer::force() {
    Runner* first = nullptr;
    for (Runner& w : warps_)
        if (w.blocked && (!first || w.blocked_at < first->blocked_at)) first = &w;
    if (!first) return false;
    forced_ += 1;
    wake(*first, first->blocked_at, kNobody);
    return true;
}

// A copy that ptxas leaves out: its result is there when its source is.
void Replayer::pass_on(Runner& w, const Cost& c, const i32* o) {
    Value last;
    for (u32 k = 0; k < c.n_src; ++k) {
        const i32 unit = o[c.n_dst + k];
        if (unit >= 0 && w.values[static_cast<u32>(unit)].ready > last.ready) last = w.values[static_cast<u32>(unit)];
    }
    for (u32 k = 0; k < c.n_dst; ++k) result(w, o[k], last.ready, last.why);
}

// Executes what the warp does until another comes first, and then what that one does, until one has to wait.
void Replayer::go(Runner& first) {
    for (Runner* turn = &first;;) {
        Runner& w = *turn;
        if (w.next == w.recording->steps.size()) return leave(w);
        const Step& step = w.recording->steps[w.next];
        const Cost& c = costs_[step.pc];
        const i32* o = operands_.data() + c.operand;
        if (c.pipe == Pipe::none) {
            pass_on(w, c, o);
            w.expected = step.pc + 1;
            w.next += 1;
            continue;
        }
        double at = w.time;
        Cause cause = Cause::issue;
        const auto need = [&](i32 unit) {
            if (unit < 0) return;
            const Value& value = w.values[static_cast<u32>(unit)];
            if (value.ready > at) {
                at = value.ready;
                cause = value.why;
            }
        };
        need(c.guard);
        for (u32 k = 0; k < c.n_src; ++k) need(o[c.n_dst + k]);
        if (at > w.time) note(w, step.pc, w.time, at, cause, kNobody, 0);
        w.time = at;
        if (!turns_.empty() && at > turns_.top().first) {
            turn = &warps_[turns_.exchange({at, w.id}).second];
            continue;
        }
        w.next += 1;
        w.told.instructions += 1;
        if (!issue(w, step, c, o)) return;
    }
}

// The warp has its operands: takes the slot and the pipe. False: it does not go on by itself.
bool Replayer::issue(Runner& w, const Step& step, const Cost& c, const i32* o) {
    Sm& sm = sms_[ctas_[w.cta].sm];
    double& line = sm.code[c.line];
    if (line < 0) {
        // Fetched ahead is what is straight on. What is ordered lies near the PTX's place.
        const double gap = static_cast<double>(step.pc) - w.expected;
        const bool follows = order_ ? std::abs(gap) <= 2 * t_.code_line : gap == 0;
        line = w.time + (follows ? t_.code_miss : t_.code_jump);
    }
    w.expected = step.pc + 1;
    if (line > w.time) {
        note(w, step.pc, w.time, line, Cause::code, kNobody, 0);
        w.time = line;
    }
    const double began = w.time;
    const auto pipe = [&](Server& server, Cause cause) {
        const double start = std::max({w.time, server.free, sm.slot[w.slot].free});
        sm.slot[w.slot].take(start, c.slots);
        server.take(start, c.interval);
        if (start > began)
            note(w, step.pc, began, start, server.free > sm.slot[w.slot].free ? cause : Cause::issue, kNobody, 0);
        w.time = start + c.slots;
        results(w, c, o, start + c.latency, cause);
    };
    const auto slot = [&] {
        const double start = std::max(w.time, sm.slot[w.slot].free);
        sm.slot[w.slot].take(start, 1);
        if (start > began) note(w, step.pc, began, start, Cause::issue, kNobody, 0);
        w.time = start;
    };
    switch (c.pipe) {
        case Pipe::fma: pipe(sm.fma[w.slot], Cause::fma); return true;
        case Pipe::mufu: pipe(sm.mufu[w.slot], Cause::mufu); return true;
        case Pipe::convert: pipe(sm.convert[w.slot], Cause::convert); return true;
        case Pipe::shuffle: pipe(sm.shuffle, Cause::shuffle); return true;
        case Pipe::branch: {
            pipe(sm.alu[w.slot], Cause::alu);
            const auto& steps = w.recording->steps;
            if (w.next < steps.size() && steps[w.next].pc != step.pc + 1) {
                note(w, step.pc, w.time, w.time + t_.branch_gap, Cause::branch, kNobody, 0);
                w.time += t_.branch_gap;
            }
            return true;
        }
        case Pipe::none:
        case Pipe::alu: pipe(sm.alu[w.slot], Cause::alu); return true;
        case Pipe::dependency: before_ = std::min(before_, w.time); return true;
        case Pipe::access:
            slot();
            access(w, sm, step, c, o);
            break;
        case Pipe::copy:
            slot();
            copy(w, sm, step);
            break;
        case Pipe::mma:
            slot();
            multiply(w, sm, step);
            break;
        case Pipe::commit:
            slot();
            commit(w, sm, step);
            break;
        case Pipe::tmem_ld:
        case Pipe::tmem_st:
            slot();
            tensor_memory(w, sm, c, o, step.pc);
            break;
        case Pipe::tmem_wait: return slot(), hold(w, step.pc, w.tmem, Cause::tmem, kNobody);
        case Pipe::async_commit:
            slot();
            w.stores.push_back(std::max(w.store_end, w.copies));
            break;
        case Pipe::async_wait: {
            slot();
            const u32 open = c.immediate;
            if (w.stores.size() <= open) break;
            return hold(w, step.pc, w.stores[w.stores.size() - 1 - open], Cause::memory, kNobody);
        }
        case Pipe::wgmma:
            slot();
            multiply_together(w, sm, step);
            break;
        case Pipe::wgmma_commit:
            slot();
            w.commits.push_back(w.products);
            break;
        case Pipe::wgmma_wait: slot(); return await_products(w, c.immediate, step.pc);
        case Pipe::sync:
            slot();
            results(w, c, o, w.time + c.latency, Cause::mbarrier);
            return synchronise(w, step);
    }
    w.time += 1;
    return true;
}

void Replayer::leave(Runner& w) {
    if (w.done) return;
    w.done = true;
    w.told.end = w.time;
    Cta& cta = ctas_[w.cta];
    cta.end = std::max({cta.end, w.time, w.store_end});
    cta.threads -= w.recording->threads;
    teams_[cta.cluster].threads -= w.recording->threads;
}

Result Replayer::finish() {
    Result r;
    r.forced = forced_;
    r.before = std::isinf(before_) ? 0 : before_;
    r.sms = static_cast<u32>(sms_.size());
    for (Runner& w : warps_) r.warps.push_back(w.told);
    for (const Cta& cta : ctas_) {
        r.cta_ends.push_back(cta.end);
        r.cycles = std::max(r.cycles, cta.end);
    }
    const auto busy = [&](Cause cause, const Server& s, double of = 1) {
        r.busy[static_cast<u32>(cause)] += s.busy / of;
    };
    for (const Sm& sm : sms_) {
        for (u32 k = 0; k < kSlots; ++k) {
            busy(Cause::issue, sm.slot[k], kSlots);
            busy(Cause::fma, sm.fma[k], kSlots);
            busy(Cause::alu, sm.alu[k], kSlots);
            busy(Cause::mufu, sm.mufu[k], kSlots);
            busy(Cause::convert, sm.convert[k], kSlots);
            busy(Cause::tmem, sm.tmem[k], kSlots);
        }
        busy(Cause::shuffle, sm.shuffle);
        busy(Cause::shared, sm.shared);
        busy(Cause::tma, sm.tma);
        busy(Cause::tensor, sm.tensor);
        r.busy[static_cast<u32>(Cause::memory)] += std::max({sm.port.busy, sm.l2.busy, sm.hbm.busy});
    }
    r.waits = std::move(waits_);
    r.operations = std::move(operations_);
    r.issuers = std::move(issuers_);
    return r;
}

Result replay(const Program& program, const std::vector<const ClusterRecording*>& clusters, const Times& times,
              const Share& share, bool traced, const std::vector<i64>& ranks) {
    return Replayer(program, clusters, times, share, traced, ranks).run();
}

}  // namespace ptxm::timing
