// What a kernel asks of the machinery around it: registers for its warpgroups (setmaxnreg), work that has not started
// (clusterlaunchcontrol).
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/async/async.hpp"
#include "machine/grid/grid.hpp"
#include "machine/machine.hpp"
#include "order/conflicts/conflicts.hpp"
#include "ptx/barriers/mbarrier.hpp"
#include "ptx/copies/bulk.hpp"

namespace ptxm {
namespace {

constexpr u32 kRegisterFile = 65536, kWarpgroup = 4;

// Registers a thread has at launch: .maxnreg, else the most that lets one CTA fit, as the compiler's choice is not in
// the PTX. Inst::immediate is .maxnreg or 0, << 16, and the new count.
u32 launch_registers(const Warp& w, const Inst& i) {
    if (i.immediate >> 16) return static_cast<u32>(i.immediate >> 16);
    const u32 threads = static_cast<u32>(w.cta->warps.size()) * kLanes;
    return std::min(256u, kRegisterFile / threads / 8 * 8);
}

// All warps of a warpgroup execute the same sequence of setmaxnregs.
void check_warpgroup(Warp& w) {
    auto& calls = w.cta->register_calls;
    const u32 group = w.index / kWarpgroup;
    if (calls.size() <= group) calls.resize(group + 1);
    if (calls[group].size() <= w.register_calls) calls[group].push_back(w.pc());
    if (calls[group][w.register_calls] != w.pc())
        machine_of(w).report_strict(&w, "setmaxnreg-divergent",
                                    "the warps of a warpgroup execute different setmaxnreg instructions", w.pc(),
                                    calls[group][w.register_calls]);
}

// PTX ISA 9.7.19.5. The pool starts empty; .inc waits until the CTA's other warps have released enough.
Flow setmaxnreg(Warp& w, const Inst& i, u32) {
    const u32 now = w.register_limit ? w.register_limit : launch_registers(w, i);
    const u32 wanted = static_cast<u32>(i.immediate & 0xFFFF);
    u32& pool = w.cta->free_registers;
    if (i.mods & kSetmaxnregDec) {
        if (wanted > now)
            throw Fault("setmaxnreg", format("setmaxnreg.dec to %u registers of a warp that has %u", wanted, now));
        pool += (now - wanted) * kLanes;
        for (Warp& other : w.cta->warps)
            for (Fragment& f : other.fragments)
                if (f.wait == Wait::registers) f.wait = Wait::none;
    } else {
        const u32 needed = wanted > now ? (wanted - now) * kLanes : 0;
        if (pool < needed) {
            w.fragment().wait = Wait::registers;
            w.fragment().wait_parity = wanted;
            return Flow::stay;
        }
        pool -= needed;
    }
    check_warpgroup(w);
    w.register_limit = std::max(wanted, 1u);
    w.register_calls += 1;
    return Flow::next;
}

// The response of clusterlaunchcontrol.try_cancel, opaque to kernels: ctaid x, y, z of the cancelled cluster's first
// CTA, and whether there is one. As silicon has it, to go by cuDNN's attention, which reads the words.
struct Response {
    u32 x = 0;
    u16 y = 0, z = 0;
    u32 cancelled = 0, unused = 0;
};
static_assert(sizeof(Response) == 16);

void respond(Warp& w, Cta& to, u32 offset, u32 signal, const Response& response) {
    const u32 pc = static_cast<u32>(w.pc());
    const TxSource source = begin_tx(w, signal, "clusterlaunchcontrol.try_cancel");
    touch_shared(to, w, offset, sizeof(Response), Accessor{source.agent, source.clock(), pc, true}, true);
    start_async(w, false, 1000, [&to, offset, response, source, pc] {
        std::memcpy(to.shared.data() + offset, &response, sizeof response);
        end_tx(source, sizeof response, static_cast<i32>(pc));
    });
}

// PTX ISA 9.7.13.17. A cluster that is cancelled never starts. Operands: response address, mbarrier.
Flow try_cancel(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    Cluster& cluster = *w.cta->cluster;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const SharedRef to =
            resolve_bulk_shared(w, w.reg<u32>(o[0])[l], sizeof(Response), 16, "clusterlaunchcontrol.try_cancel");
        const SharedRef at = resolve_shared(w, w.reg<u32>(o[1])[l], 8, "clusterlaunchcontrol.try_cancel's mbarrier");
        if (to.cta != w.cta || at.cta != w.cta)
            throw Fault("shared-out-of-bounds", "clusterlaunchcontrol.try_cancel takes addresses of its own CTA");
        if (cluster.cancel_refused)
            machine_of(w).report(&w, "cancel-after-refusal",
                                 "clusterlaunchcontrol.try_cancel after one that has failed is undefined", w.pc());
        // Which clusters are left depends on what the others have taken.
        if (!machine_of(w).cursor) throw Fault("internal", "clusters that run side by side take none of the grid's");
        Response response;
        std::array<u32, 3> first{};
        // Where time is kept none is granted, as the ISA lets it be: each cluster is recorded with its own work.
        response.cancelled = !machine_of(w).recorder && machine_of(w).cursor->take(first);
        if (response.cancelled) {
            response.x = first[0];
            response.y = static_cast<u16>(first[1]);
            response.z = static_cast<u16>(first[2]);
        } else {
            cluster.cancel_refused = true;
        }
        if (!(i.mods & kBulkMulticast)) {
            respond(w, *w.cta, to.offset, w.cta->shared_address(at.offset), response);
            continue;
        }
        for (auto& cta : cluster.ctas) respond(w, *cta, to.offset, cta->shared_address(at.offset), response);
    }
    return Flow::next;
}

Response response_of(Warp& w, i32 unit, u32 lane) {
    Response r;
    std::memcpy(&r, w.reg<u8>(unit) + lane * sizeof r, sizeof r);
    return r;
}

Flow is_canceled(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        u32& p = w.pred(o[0]);
        p = response_of(w, o[1], l).cancelled ? p | 1u << l : p & ~(1u << l);
    }
    return Flow::next;
}

// Destinations: x, y, z, each -1 when it is not wanted. Source: the response.
Flow first_ctaid(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const Response r = response_of(w, o[3], l);
        if (!r.cancelled)
            machine_of(w).report_strict(&w, "cancel-refused",
                                        "get_first_ctaid of a request that was not granted gives no defined value",
                                        w.pc());
        const u32 ctaid[3] = {r.x, r.y, r.z};
        for (u32 d = 0; d < 3; ++d)
            if (o[d] >= 0) w.reg<u32>(o[d])[l] = ctaid[d];
    }
    return Flow::next;
}

// PTX ISA 9.7.13.16. Launches run one after the other; what may race with one before is found by what it has accessed.
// Schedules that draw have two overlap: memory/overlap.hpp.
Flow grid_trigger(Warp& w, const Inst&, u32) { return machine_of(w).trigger(w) ? Flow::stay : Flow::next; }

Flow grid_wait(Warp& w, const Inst&, u32) {
    if (const auto& launches = machine_of(w).wait_for_launches(); !launches.empty()) w.clocks.learn_launches(launches);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_launch_control(X)                                               \
    X(setmaxnreg, control, launch_control)                                       \
    X(clc_try_cancel, control, launch_control)                                   \
    X(clc_canceled, control, launch_control)                                     \
    X(clc_ctaid, control, launch_control)                                        \
    X(grid_trigger, control, launch_control, "griddepcontrol.launch_dependents") \
    X(grid_wait, control, launch_control, "griddepcontrol.wait")
// clang-format on

Handler bind_launch_control(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::setmaxnreg: return setmaxnreg;
        case Op::clc_try_cancel: return try_cancel;
        case Op::clc_canceled: return is_canceled;
        case Op::clc_ctaid: return first_ctaid;
        case Op::grid_trigger: return grid_trigger;
        case Op::grid_wait: return grid_wait;
        default: return nullptr;
    }
}

}  // namespace ptxm
