// What goes over an SM's port: copies and plain accesses, from L2 and memory, and what comes from other SMs.
#include "timing/replayer.hpp"

namespace ptxm::timing {
namespace {

constexpr double kPiece = 4096;  // bytes that are asked for together

// Bytes, in whole sectors of a row.
double moved(const Deed& d) { return std::max(d.b, 32 * d.c); }

}  // namespace

// Bytes from memory: when they are there. `ports_` are those of the SMs that get them. They are asked for piece by
// piece, so that a box which is larger than what may still be in flight does not wait for room for all of it. `asked`:
// when the last is asked for. Memory at work has others' bytes before these, the more so the more is on its way.
// `known`: L2 has them, whatever it has of the launch's other reads, and they wait for nothing that memory has to do.
double Replayer::fetch(Sm& sm, double at, double bytes, double latency, double asked, bool known) {
    const double of_memory = known ? 0 : share_.from_hbm * share_.sms / t_.hbm_bytes;
    if (!known) latency += share_.waits * t_.hbm_latency;
    double end = 0;
    do {
        const double piece = std::min(bytes, kPiece);
        while (!sm.in_flight.empty() && (sm.in_flight.front().first <= at || sm.flying + piece > t_.bytes_in_flight)) {
            at = std::max(at, sm.in_flight.front().first);
            sm.flying -= sm.in_flight.front().second;
            sm.in_flight.pop_front();
        }
        double port = 0;
        for (Server* of : ports_) port = std::max(port, of->take(at, piece / t_.port_bytes));
        const double l2 = sm.l2.take(at, piece * share_.from_l2 * share_.sms / t_.l2_bytes);
        const double hbm = known ? at : sm.hbm.take(at, piece * of_memory);
        sm.flying += piece;
        const double queued = at + t_.hbm_queue * sm.flying * of_memory;
        end = std::max({port, l2, hbm, queued, asked}) + latency;
        sm.in_flight.push_back({end, piece});
        bytes -= piece;
    } while (bytes > 0);
    return end;
}

double Replayer::fetch_here(Sm& sm, double at, double bytes, bool known) {
    ports_.assign(1, &sm.port);
    return fetch(sm, at, bytes, t_.l2_latency, 0, known);
}

// L2 takes what is written, and makes room for it.
void Replayer::write_back(Sm& sm, double at, double bytes) {
    sm.l2.take(at, bytes * share_.sms / t_.l2_bytes);
    sm.hbm.take(at, bytes * share_.to_hbm * share_.sms / t_.hbm_bytes);
}

void Replayer::access(Runner& w, Sm& sm, const Step& step, const Cost& c, const i32* o) {
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
            const double end = fetch_here(sm, w.time, d.a, d.b);
            operate(w, step.pc, w.time, end, Cause::memory, d.a);
            results(w, c, o, end, Cause::memory);
        } else {
            sm.port.take(w.time, d.a / t_.port_bytes);
            write_back(sm, w.time, d.a);
        }
    });
}

// Of the copy engine, for a copy.
double Replayer::asking(const Deed& d) const { return std::max(t_.tma_box, d.c * t_.tma_row); }

void Replayer::land(Barrier& b, const Deed& d, double at, i64 by) {
    b.tx -= d.b;
    b.contribute(at, by);
    settle(b, t_.mbarrier_wake);
}

void Replayer::copy(Runner& w, Sm& sm, const Step& step) {
    double end = 0;
    i64 id = kNobody;
    each_deed(w, step, [&](const Deed& d) {
        const double issued = w.time;
        if (d.what == Did::copy_in) {
            const double length = asking(d), asked = sm.tma.take(w.time, length);
            const double begin = asked - length + t_.tma_box;
            ports_.assign(1, &port_of(sm, d));
            for (const Deed* also = &d; also->more && also[1].what == Did::copy_also;)
                ports_.push_back(&port_of(sm, *++also));
            end = fetch(sm, begin, moved(d), t_.tma_latency, asked, false);
            id = operate(w, step.pc, issued, end, Cause::tma, d.b);
            land(mbarrier(w, d), d, end, id);
            w.time += t_.tma_issue;
        } else if (d.what == Did::copy_also) {
            land(mbarrier(w, d), d, end, id);
        } else if (d.what == Did::response) {
            land(mbarrier(w, d), d, issued + t_.l2_latency, kNobody);
        } else if (d.what == Did::copy_out) {
            const double begin = sm.tma.take(w.time, asking(d));
            write_back(sm, begin, moved(d));
            w.store_end = std::max(w.store_end, sm.port.take(begin, moved(d) / t_.port_bytes) + t_.l2_latency);
            operate(w, step.pc, issued, w.store_end, Cause::tma, d.b);
            w.time += t_.tma_issue;
        } else {
            w.copies = std::max(w.copies, fetch_here(sm, w.time, d.b, false));
        }
    });
}

}  // namespace ptxm::timing
