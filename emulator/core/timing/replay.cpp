// Every warp is a queue of instructions. The warp whose next instruction can be issued first goes next: when its
// operands are there (a time a register), its scheduler's slot and its pipe are free. What works beside the warps -
// copies, the tensor core, arrivals - gets its time of completion when it is issued, from the servers that it passes;
// who waits for it wakes then. So a replay needs no events but the warps themselves.
#include "timing/replay.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "timing/costs.hpp"
#include "timing/order.hpp"

namespace ptxm::timing {
namespace {

constexpr u32 kSlots = 4;
constexpr double kPiece = 4096;  // bytes that are asked for together

struct Server {
    double free = 0, busy = 0;
    double take(double at, double length) {  // returns when it is done
        free = std::max(free, at) + length;
        busy += length;
        return free;
    }
};

struct Sm {
    std::array<Server, kSlots> slot, fma, alu, mufu, convert, tmem;
    Server shuffle, shared, tma, port, l2, hbm, tensor, network;
    double tensor_end = 0;  // when the last result is there
    i64 tensor_last = kNobody;
    std::deque<std::pair<double, double>> in_flight;  // end, bytes
    double flying = 0;
    std::vector<double> code;  // when a line of code is there; negative: never asked for
};

struct Barrier {  // an mbarrier, or a named one
    i64 expected = 0, pending = 0, tx = 0;
    double latest = 0;
    i64 by = kNobody;
    struct Phase {
        double at;
        i64 by;
    };
    std::vector<Phase> phases;
    std::vector<u32> waiting;
};

struct Operation {
    double end;
    i64 id;
};

struct Group {  // a warpgroup's products
    u32 arrived = 0;
    double ready = 0;
    std::vector<Operation> done;
    std::vector<u32> waiting;
};

struct Cta {
    u32 cluster = 0, rank = 0, sm = 0, threads = 0, left = 0;
    std::array<Barrier, 16> named;
    std::vector<Group> groups;
    double end = 0;
};

struct Team {                                    // a cluster
    std::unordered_map<u32, Barrier> mbarriers;  // by rank and offset
    Barrier barrier;
    u32 threads = 0;
};

struct Runner {
    const WarpRecording* recording = nullptr;
    u32 cta = 0, index = 0, slot = 0, next = 0, id = 0;
    u32 expected = 0;  // the pc behind the last instruction
    double time = 0;
    std::vector<double> ready;
    std::vector<Cause> why;
    u32 products = 0;  // issued
    std::vector<u32> commits;
    double tmem = 0;
    double copies = 0;  // end of the last cp.async
    std::vector<double> stores;
    double store_end = 0;
    bool blocked = false;
    double blocked_at = 0;
    Cause blocked_on = Cause::issue;
    u32 blocked_place = 0;
    bool done = false;
    WarpTime told{};
};

class Replay {
public:
    Replay(const Program& program, const std::vector<const ClusterRecording*>& clusters, const Times& t,
           const Share& share, bool traced, const std::vector<i64>& ranks)
        : t_(t), share_(share), traced_(traced), operands_(program.operands) {
        for (const Inst& i : program.insts) costs_.push_back(cost_of(i, t));
        if (!ranks.empty()) order_.emplace(ranks, costs_, operands_);
        const bool apart = !clusters.empty() && clusters[0]->ctas.size() > 1;
        sms_.resize(apart ? clusters[0]->ctas.size() : 1);
        for (Sm& sm : sms_) sm.code.assign(program.insts.size() / static_cast<u32>(t.code_line) + 1, -1);
        for (u32 c = 0; c < clusters.size(); ++c) place(*clusters[c], c, program.units, apart);
    }

    Result run() {
        for (Runner& w : warps_) push(w);
        for (;;) {
            while (!heap_.empty()) {
                const auto [time, id] = heap_.top();
                heap_.pop();
                go(warps_[id]);
            }
            if (!force()) break;
        }
        return finish();
    }

private:
    using Entry = std::pair<double, u32>;

    void place(const ClusterRecording& r, u32 number, u32 units, bool apart) {
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
                w.ready.assign(units, 0);
                w.why.assign(units, Cause::issue);
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

    void push(Runner& w) { heap_.push({w.time, w.id}); }

    // A wait whose end the recording does not hold.
    bool force() {
        Runner* first = nullptr;
        for (Runner& w : warps_)
            if (w.blocked && (!first || w.blocked_at < first->blocked_at)) first = &w;
        if (!first) return false;
        forced_ += 1;
        wake(*first, first->blocked_at, kNobody);
        return true;
    }

    void note(Runner& w, u32 pc, double from, double to, Cause cause, i64 by, u32 place) {
        w.told.waited[static_cast<u32>(cause)] += to - from;
        if (traced_ && to > from) waits_.push_back({w.cta, w.index, pc, from, to, cause, by, place});
    }

    i64 operate(Runner& w, u32 pc, double from, double to, Cause cause, u32 place) {
        if (!traced_) return kNobody;
        operations_.push_back({w.cta, w.index, pc, from, to, cause, kNobody, place});
        issuers_.push_back(w.id);
        return static_cast<i64>(operations_.size()) - 1;
    }

    void block(Runner& w, Cause cause, u32 place) {
        w.blocked = true;
        w.blocked_at = w.time;
        w.blocked_on = cause;
        w.blocked_place = place;
    }

    void wake(Runner& w, double at, i64 by) {
        const double to = std::max(at, w.blocked_at);
        w.blocked = false;
        note(w, w.recording->steps[w.next - 1].pc, w.blocked_at, to, w.blocked_on, by, w.blocked_place);
        w.time = to;
        push(w);
    }

    void wake_all(Barrier& b, double latency) {
        const Barrier::Phase last = b.phases.back();
        for (u32 id : std::exchange(b.waiting, {})) wake(warps_[id], last.at + latency, last.by);
    }

    void contribute(Barrier& b, double at, i64 by) {
        if (at < b.latest) return;
        b.latest = at;
        b.by = by;
    }

    void settle(Barrier& b, double latency) {
        if (b.pending > 0 || b.tx != 0) return;
        b.pending += b.expected;
        b.phases.push_back({b.latest, b.by});
        wake_all(b, latency);
    }

    Barrier& mbarrier(Runner& w, const Deed& d) {
        return teams_[ctas_[w.cta].cluster].mbarriers[u32{d.rank} << 24 | d.a];
    }

    // The warp goes on at the end of a phase, or waits for it.
    bool pass(Runner& w, Barrier& b, u32 phases, Cause cause, double latency, u32 place) {
        if (b.phases.size() < phases) {
            b.waiting.push_back(w.id);
            block(w, cause, place);
            return false;
        }
        const Barrier::Phase none{0, kNobody}, last = phases ? b.phases[phases - 1] : none;
        const double to = std::max(w.time, last.at + latency);
        note(w, w.recording->steps[w.next - 1].pc, w.time, to, cause, last.by, place);
        w.time = to;
        return true;
    }

    // Bytes from memory: when they are there. `ports`: of the SMs that get them. They are asked for piece by piece, so
    // that a box which is larger than what may still be in flight does not wait for room for all of it. `asked`: when
    // the last is asked for. Memory at work has others' bytes before these, the more so the more is on its way.
    double fetch(Sm& sm, double at, double bytes, double latency, const std::vector<Server*>& ports, double asked = 0) {
        const double of_memory = share_.from_hbm * share_.sms / t_.hbm_bytes;
        latency += share_.waits * t_.hbm_latency;
        double end = 0;
        do {
            const double piece = std::min(bytes, kPiece);
            while (!sm.in_flight.empty() &&
                   (sm.in_flight.front().first <= at || sm.flying + piece > t_.bytes_in_flight)) {
                at = std::max(at, sm.in_flight.front().first);
                sm.flying -= sm.in_flight.front().second;
                sm.in_flight.pop_front();
            }
            double port = 0;
            for (Server* of : ports) port = std::max(port, of->take(at, piece / t_.port_bytes));
            const double l2 = sm.l2.take(at, piece * share_.from_l2 * share_.sms / t_.l2_bytes);
            const double hbm = sm.hbm.take(at, piece * of_memory);
            sm.flying += piece;
            const double queued = at + t_.hbm_queue * sm.flying * of_memory;
            end = std::max({port, l2, hbm, queued, asked}) + latency;
            sm.in_flight.push_back({end, piece});
            bytes -= piece;
        } while (bytes > 0);
        return end;
    }

    void go(Runner& w) {
        for (;;) {
            if (w.next == w.recording->steps.size()) return leave(w);
            const Step& step = w.recording->steps[w.next];
            const Cost& c = costs_[step.pc];
            double at = w.time;
            Cause cause = Cause::issue;
            const i32* o = operands_.data() + c.operand;
            const auto need = [&](i32 unit) {
                if (unit >= 0 && w.ready[static_cast<u32>(unit)] > at) {
                    at = w.ready[static_cast<u32>(unit)];
                    cause = w.why[static_cast<u32>(unit)];
                }
            };
            if (c.pipe == Pipe::none) {
                // A copy that ptxas leaves out: its result is there when its source is.
                double ready = 0;
                Cause why = Cause::issue;
                for (u32 k = 0; k < c.n_src; ++k) {
                    const i32 unit = o[c.n_dst + k];
                    if (unit >= 0 && w.ready[static_cast<u32>(unit)] > ready) {
                        ready = w.ready[static_cast<u32>(unit)];
                        why = w.why[static_cast<u32>(unit)];
                    }
                }
                for (u32 k = 0; k < c.n_dst; ++k) result(w, o[k], ready, why);
                w.expected = step.pc + 1;
                w.next += 1;
                continue;
            }
            if (c.guard >= 0) need(c.guard);
            for (u32 k = 0; k < c.n_src; ++k) need(o[c.n_dst + k]);
            if (!heap_.empty() && at > heap_.top().first) {
                // Another warp comes first.
                if (at > w.time) note(w, step.pc, w.time, at, cause, kNobody, 0);
                w.time = at;
                return push(w);
            }
            if (at > w.time) note(w, step.pc, w.time, at, cause, kNobody, 0);
            w.time = at;
            w.next += 1;
            w.told.instructions += 1;
            if (!issue(w, step, c, o)) return;
        }
    }

    // Whether its line of code is fetched ahead. What is ordered lies near the PTX's place.
    bool follows(const Runner& w, const Step& step) const {
        const double gap = static_cast<double>(step.pc) - w.expected;
        return order_ ? std::abs(gap) <= 2 * t_.code_line : gap == 0;
    }

    void result(Runner& w, i32 unit, double at, Cause why) {
        if (unit < 0) return;
        w.ready[static_cast<u32>(unit)] = at;
        w.why[static_cast<u32>(unit)] = why;
    }

    void results(Runner& w, const Cost& c, const i32* o, double at, Cause why) {
        for (u32 k = 0; k < c.n_dst; ++k) result(w, o[k], at, why);
    }

    // The warp has its operands: takes the slot and the pipe. False: it does not go on by itself.
    bool issue(Runner& w, const Step& step, const Cost& c, const i32* o) {
        Sm& sm = sms_[ctas_[w.cta].sm];
        double& line = sm.code[step.pc / static_cast<u32>(t_.code_line)];
        if (line < 0) line = w.time + (follows(w, step) ? t_.code_miss : t_.code_jump);
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

    bool hold(Runner& w, u32 pc, double until, Cause cause, i64 by) {
        if (until > w.time) {
            note(w, pc, w.time, until, cause, by, 0);
            w.time = until;
        }
        w.time += 1;
        return true;
    }

    template <class F>
    void each_deed(Runner& w, const Step& step, F f) {
        if (!step.deed) return;
        for (const Deed* d = &w.recording->deeds[step.deed - 1];; ++d) {
            f(*d);
            if (!d->more) return;
        }
    }

    void access(Runner& w, Sm& sm, const Step& step, const Cost& c, const i32* o) {
        if (!step.deed) return results(w, c, o, w.time + t_.alu_latency, Cause::alu);  // a parameter
        each_deed(w, step, [&](const Deed& d) {
            if (d.what == Did::shared_access) {
                const double end = sm.shared.take(w.time, d.a);
                results(w, c, o, end + t_.shared_latency, Cause::shared);
            } else if (d.what == Did::remote_access) {
                const double end = sm.network.take(w.time, d.a / t_.cluster_bytes) + t_.cluster_latency;
                operate(w, step.pc, w.time, end, Cause::cluster, d.a);
                results(w, c, o, end, Cause::cluster);
            } else if (d.what == Did::global_read) {
                const double end = fetch(sm, w.time, d.a, t_.l2_latency, {&sm.port});
                operate(w, step.pc, w.time, end, Cause::memory, d.a);
                results(w, c, o, end, Cause::memory);
            } else {
                sm.port.take(w.time, d.a / t_.port_bytes);
                sm.l2.take(w.time, d.a * share_.sms / t_.l2_bytes);
            }
        });
    }

    // Of the copy engine, for a copy.
    double asking(const Deed& d) const { return std::max(t_.tma_box, d.c * t_.tma_row); }

    // Bytes, in whole sectors of a row.
    static double moved(const Deed& d) { return std::max(d.b, 32 * d.c); }

    // Through which a copy's bytes come in.
    Server& port_of(Sm& sm, const Deed& d) { return (sms_.size() > 1 ? sms_[d.to] : sm).port; }

    void land(Barrier& b, const Deed& d, double at, i64 by) {
        b.tx -= d.b;
        contribute(b, at, by);
        settle(b, t_.mbarrier_wake);
    }

    void copy(Runner& w, Sm& sm, const Step& step) {
        double end = 0;
        i64 id = kNobody;
        each_deed(w, step, [&](const Deed& d) {
            const double issued = w.time;
            if (d.what == Did::copy_in) {
                const double length = asking(d), asked = sm.tma.take(w.time, length);
                const double begin = asked - length + t_.tma_box;
                std::vector<Server*> ports{&port_of(sm, d)};
                for (const Deed* also = &d; also->more && also[1].what == Did::copy_also;)
                    ports.push_back(&port_of(sm, *++also));
                end = fetch(sm, begin, moved(d), t_.tma_latency, ports, asked);
                id = operate(w, step.pc, issued, end, Cause::tma, d.b);
                land(mbarrier(w, d), d, end, id);
                w.time += t_.tma_issue;
            } else if (d.what == Did::copy_also) {
                land(mbarrier(w, d), d, end, id);
            } else if (d.what == Did::response) {
                land(mbarrier(w, d), d, issued + t_.l2_latency, kNobody);
            } else if (d.what == Did::copy_out) {
                const double begin = sm.tma.take(w.time, asking(d));
                sm.l2.take(begin, moved(d) * share_.sms / t_.l2_bytes);
                w.store_end = std::max(w.store_end, sm.port.take(begin, moved(d) / t_.port_bytes) + t_.l2_latency);
                operate(w, step.pc, issued, w.store_end, Cause::tma, d.b);
                w.time += t_.tma_issue;
            } else {
                w.copies = std::max(w.copies, fetch(sm, w.time, d.b, t_.l2_latency, {&sm.port}));
            }
        });
    }

    // Cycles of the tensor pipe.
    double product(const Deed& d) const {
        const double m = std::max(64u, d.a >> 16), n = d.a & 0xFFFF;
        const double rows = m * (d.rank & 2 ? 0.5 : 1);
        return std::max({rows * n * 16 / t_.matrix_rate, n * t_.matrix_least, d.b / t_.shared_bytes});
    }

    double latency(bool registers) const { return registers ? t_.matrix_latency_registers : t_.matrix_latency_shared; }

    void multiply(Runner& w, Sm& sm, const Step& step) {
        const Deed& d = w.recording->deeds[step.deed - 1];
        const double length = product(d), at = w.time + t_.matrix_issue;
        double done = sm.tensor.take(at, length);
        if (d.rank & 2 && sms_.size() > 1)  // of a pair: the pipes of both go together
            done = std::max(done, sms_[ctas_[w.cta].rank ^ 1].tensor.take(at, length));
        sm.tensor_end = done + latency(d.rank & 1);
        sm.tensor_last = operate(w, step.pc, done - length, sm.tensor_end, Cause::tensor, d.a);
        w.time += t_.matrix_issue;
    }

    void commit(Runner& w, Sm& sm, const Step& step) {
        each_deed(w, step, [&](const Deed& d) {
            Barrier& b = mbarrier(w, d);
            b.pending -= 1;
            contribute(b, std::max(w.time, sm.tensor_end), sm.tensor_last);
            settle(b, t_.mbarrier_wake);
        });
    }

    void tensor_memory(Runner& w, Sm& sm, const Cost& c, const i32* o, u32 pc) {
        const u32 registers = c.pipe == Pipe::tmem_ld ? c.n_dst : c.n_src - 1u;
        const double done = sm.tmem[w.index % kSlots].take(w.time, registers * t_.tmem_interval) + t_.tmem_latency;
        w.tmem = std::max(w.tmem, done);
        results(w, c, o, done, Cause::tmem);
        operate(w, pc, w.time, done, Cause::tmem, registers);
    }

    void multiply_together(Runner& w, Sm& sm, const Step& step) {
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

    bool await_products(Runner& w, u32 open, u32 pc) {
        if (w.commits.size() <= open || !w.commits[w.commits.size() - 1 - open])
            return hold(w, pc, 0, Cause::tensor, 0);
        const u32 target = w.commits[w.commits.size() - 1 - open];
        Group& g = ctas_[w.cta].groups[w.index / 4];
        if (g.done.size() >= target) return hold(w, pc, g.done[target - 1].end, Cause::tensor, g.done[target - 1].id);
        g.waiting.push_back(w.id);
        block(w, Cause::tensor, target);
        return false;
    }

    bool synchronise(Runner& w, const Step& step) {
        w.time += 1;
        if (!step.deed) return true;
        bool goes_on = true;
        const i64 self = ~static_cast<i64>(w.id);
        each_deed(w, step, [&](const Deed& d) {
            Cta& cta = ctas_[w.cta];
            Team& team = teams_[cta.cluster];
            switch (d.what) {
                case Did::mbarrier_init: mbarrier(w, d).expected = mbarrier(w, d).pending = d.b; break;
                case Did::mbarrier_expect: {
                    Barrier& b = mbarrier(w, d);
                    b.tx += static_cast<i32>(d.b);
                    contribute(b, w.time, self);
                    if (!d.more) settle(b, t_.mbarrier_wake);
                    break;
                }
                case Did::copy_arrive:
                case Did::mbarrier_arrive: {
                    Barrier& b = mbarrier(w, d);
                    b.pending -= d.b;
                    const double at = d.what == Did::copy_arrive ? std::max(w.time, w.copies) : w.time;
                    contribute(b, at + (d.rank == cta.rank ? t_.mbarrier_arrive : t_.cluster_latency), self);
                    settle(b, t_.mbarrier_wake);
                    break;
                }
                case Did::mbarrier_wait:
                    goes_on = pass(w, mbarrier(w, d), d.b, Cause::mbarrier, t_.mbarrier_wake, d.a);
                    break;
                case Did::barrier: goes_on = meet(w, cta, d, self); break;
                case Did::cluster_arrive: {
                    Barrier& b = team.barrier;
                    b.tx += d.b;
                    contribute(b, w.time, self);
                    if (b.tx >= team.threads) {
                        b.tx -= team.threads;
                        b.phases.push_back({b.latest, b.by});
                        wake_all(b, t_.cluster_wake);
                    }
                    break;
                }
                case Did::cluster_wait: goes_on = pass(w, team.barrier, d.b, Cause::cluster, t_.cluster_wake, 0); break;
                default: break;
            }
        });
        return goes_on;
    }

    bool meet(Runner& w, Cta& cta, const Deed& d, i64 self) {
        Barrier& b = cta.named[d.a % 16];
        b.tx += 32;
        contribute(b, w.time, self);
        const u32 phase = static_cast<u32>(b.phases.size()) + 1;
        if (b.tx >= (d.b ? d.b : cta.threads)) {
            b.tx = 0;
            b.phases.push_back({b.latest, b.by});
            wake_all(b, t_.barrier_wake);
        }
        return d.rank || pass(w, b, phase, Cause::barrier, t_.barrier_wake, d.a);
    }

    void leave(Runner& w) {
        if (w.done) return;
        w.done = true;
        w.told.end = w.time;
        Cta& cta = ctas_[w.cta];
        cta.end = std::max({cta.end, w.time, w.store_end});
        cta.threads -= w.recording->threads;
        teams_[cta.cluster].threads -= w.recording->threads;
    }

    Result finish() {
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

    const Times t_;
    const Share share_;
    const bool traced_;
    const std::vector<i32>& operands_;
    std::vector<Cost> costs_;
    std::optional<Order> order_;
    std::deque<WarpRecording> ordered_;
    std::vector<Sm> sms_;
    std::vector<Team> teams_;
    std::vector<Cta> ctas_;
    std::vector<Runner> warps_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
    std::vector<Wait> waits_, operations_;
    std::vector<i64> issuers_;
    u64 forced_ = 0;
    double before_ = std::numeric_limits<double>::infinity();  // the first warp waits for the grid before this one
};

}  // namespace

Result replay(const Program& program, const std::vector<const ClusterRecording*>& clusters, const Times& times,
              const Share& share, bool traced, const std::vector<i64>& ranks) {
    return Replay(program, clusters, times, share, traced, ranks).run();
}

}  // namespace ptxm::timing
