// A replay in progress. replay.cpp has whose turn it is and what warps issue, waits.cpp what they wait for, copies.cpp
// what goes over ports and L2, products.cpp what the tensor core does.
#pragma once

#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "timing/costs.hpp"
#include "timing/rank_order.hpp"
#include "timing/servers.hpp"
#include "timing/turns.hpp"

namespace ptxm::timing {

class Replayer {
public:
    Replayer(const Program& program, const std::vector<const ClusterRecording*>& clusters, const Times& t,
             const Share& share, bool traced, const std::vector<i64>& ranks);
    Result run();

private:
    void place(const ClusterRecording& r, u32 number, u32 units, bool apart);
    void go(Runner& w);
    void pass_on(Runner& w, const Cost& c, const i32* o);
    bool issue(Runner& w, const Step& step, const Cost& c, const i32* o);
    void leave(Runner& w);
    bool force();
    Result finish();

    // ---- What a warp has and tells.
    void result(Runner& w, i32 unit, double at, Cause why) {
        if (unit >= 0) w.values[static_cast<u32>(unit)] = {at, why};
    }
    void results(Runner& w, const Cost& c, const i32* o, double at, Cause why) {
        for (u32 k = 0; k < c.n_dst; ++k) result(w, o[k], at, why);
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
    template <class F>
    void each_deed(Runner& w, const Step& step, F f) {
        if (!step.deed) return;
        for (const Deed* d = &w.recording->deeds[step.deed - 1];; ++d) {
            f(*d);
            if (!d->more) return;
        }
    }

    // ---- waits.cpp. What returns a bool says whether the warp goes on by itself.
    void block(Runner& w, Cause cause, u32 place);
    void wake(Runner& w, double at, i64 by);
    void wake_all(Barrier& b, double latency);
    void settle(Barrier& b, double latency);
    Barrier& mbarrier(Runner& w, const Deed& d);
    bool pass(Runner& w, Barrier& b, u32 phases, Cause cause, double latency, u32 place);
    bool hold(Runner& w, u32 pc, double until, Cause cause, i64 by);
    bool synchronise(Runner& w, const Step& step);
    bool meet(Runner& w, Cta& cta, const Deed& d, i64 self);

    // ---- copies.cpp
    double fetch(Sm& sm, double at, double bytes, double latency, double asked, bool known);
    double fetch_here(Sm& sm, double at, double bytes, bool known);
    void write_back(Sm& sm, double at, double bytes);
    Server& port_of(Sm& sm, const Deed& d) { return (sms_.size() > 1 ? sms_[d.to] : sm).port; }
    double asking(const Deed& d) const;
    void access(Runner& w, Sm& sm, const Step& step, const Cost& c, const i32* o);
    void land(Barrier& b, const Deed& d, double at, i64 by);
    void copy(Runner& w, Sm& sm, const Step& step);

    // ---- products.cpp
    double product(const Deed& d) const;
    double latency(bool registers) const { return registers ? t_.matrix_latency_registers : t_.matrix_latency_shared; }
    void multiply(Runner& w, Sm& sm, const Step& step);
    void commit(Runner& w, Sm& sm, const Step& step);
    void tensor_memory(Runner& w, Sm& sm, const Cost& c, const i32* o, u32 pc);
    void multiply_together(Runner& w, Sm& sm, const Step& step);
    bool await_products(Runner& w, u32 open, u32 pc);

    const Times t_;
    const Share share_;
    const bool traced_;
    const u32 code_line_;
    const std::vector<i32>& operands_;
    std::vector<Cost> costs_;
    std::optional<Order> order_;
    std::deque<WarpRecording> ordered_;
    std::vector<Sm> sms_;
    std::vector<Team> teams_;
    std::vector<Cta> ctas_;
    std::vector<Runner> warps_;
    Turns turns_;
    std::vector<Server*> ports_;
    std::vector<Wait> waits_, operations_;
    std::vector<i64> issuers_;
    u64 forced_ = 0;
    double before_ = std::numeric_limits<double>::infinity();  // the first warp waits for the grid before this one
};

}  // namespace ptxm::timing
