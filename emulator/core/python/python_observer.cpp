#include "python/python_observer.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "findings/finding.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "machine/schedule/deadlock.hpp"
#include "machine/schedule/schedule.hpp"
#include "memory/tensor_map/box_rows.hpp"

namespace nb = nanobind;

namespace ptxm {
namespace {

// What the observer asks for; as emulator/debug/observe.py numbers them.
enum Wants : u32 { kBarriers = 1, kAccesses = 2, kOperands = 4, kCompletions = 8, kFindings = 16, kTrace = 32 };
// Bits of Observer.stops.
enum Stops : u8 { kBefore = 1, kAfter = 2 };

// One execution of an instruction, for comparing two runs: what its destinations hold afterwards.
struct Executed {
    u64 event, value;
    u32 cta, warp, pc, mask;
};
static_assert(sizeof(Executed) == 32);

template <class T>
nb::bytes bytes_of(const T* data, std::size_t count) {
    return nb::bytes(reinterpret_cast<const char*>(data), count * sizeof(T));
}

nb::dict operand_of(const OperandSeen& o) {
    nb::dict d;
    d["format"] = o.format;
    d["rows"] = o.rows;
    d["k"] = o.k;
    d["bits"] = o.bits;
    d["tensor_memory"] = o.tensor_memory;
    d["mn_major"] = o.mn_major;
    d["per_chunk"] = o.per_chunk;
    d["descriptor"] = o.descriptor;
    d["chunks"] = bytes_of(o.chunks.data(), o.chunks.size());
    return d;
}

class PythonObserver final : public Observer {
public:
    explicit PythonObserver(nb::callable tell) : tell_(std::move(tell)) {}

    u32 wants = 0;
    std::vector<u8> stops;  // by pc
    u64 until = ~0ull;      // the event to stop before
    u64 events = 0;         // executions of instructions and completions so far
    std::atomic<bool> interrupted = false;
    std::vector<Executed> trace;

    void watch(const Machine& m) { look_at(&m); }
    void leave() {
        look_at(nullptr);
        cluster_ = nullptr;
        tell_ = nb::none();  // it mostly knows this observer
    }

    void enter(Cluster& cluster) override { cluster_ = &cluster; }

    void step(Warp& w, const Inst&, u32 mask) override {
        const u32 pc = static_cast<u32>(w.pc());
        const u64 event = events++;
        if (event < until && !interrupted && !(pc < stops.size() && (stops[pc] & kBefore))) return;
        tell("step", w, static_cast<i32>(pc), mask, [&](nb::dict& d) { d["event"] = event; });
    }

    void stepped(Warp& w, const Inst& i, u32 mask, i32 pc, bool taken) override {
        if (!taken) return;
        if (wants & kTrace) trace.push_back({events - 1, value_of(w, i, mask), w.cta->linear, w.index, u32(pc), mask});
        if (static_cast<u32>(pc) < stops.size() && (stops[static_cast<u32>(pc)] & kAfter))
            tell("done", w, pc, mask, [&](nb::dict& d) { d["event"] = events - 1; });
    }

    void completing(Cluster& cluster, const AsyncOp& op) override {
        cluster_ = &cluster;
        completing_ = &op;
        const u64 event = events++;
        if (!(wants & kCompletions) && event < until && !interrupted) return;
        tell_completion("completing", cluster, op, event);
    }

    void completed(Cluster& cluster, const AsyncOp& op) override {
        completing_ = nullptr;
        if (wants & kCompletions) tell_completion("completed", cluster, op, events - 1);
    }

    void found(const Finding& f) override {
        if (!(wants & kFindings)) return;
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        d["finding"] = f;
        d["pc"] = f.pc;
        d["cta"] = f.cta;
        d["warp"] = f.warp;
        d["event"] = events;
        tell_("finding", d);
    }

    void stuck(Cluster& cluster) override {
        cluster_ = &cluster;
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        d["event"] = events;
        tell_("stuck", d);
    }

    void barrier(const BarrierSeen& s) override {
        if (!(wants & kBarriers)) return;
        static constexpr const char* kNames[] = {"init", "invalidate", "arrive", "expect", "bytes",
                                                 "wait", "pass",       "phase",  "promise"};
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        d["what"] = kNames[static_cast<u32>(s.event)];
        d["cta"] = s.cta->linear;
        d["offset"] = s.offset;
        d["amount"] = s.amount;
        d["phase"] = s.bar->phase;
        d["expected"] = s.bar->expected;
        d["pending"] = s.bar->pending;
        d["tx"] = s.bar->tx;
        d["event"] = events;
        d["by_cta"] = s.warp ? s.warp->cta->linear : s.cta->linear;
        d["warp"] = s.warp ? static_cast<i32>(s.warp->index) : completing_ ? static_cast<i32>(completing_->warp) : -1;
        d["pc"] = s.warp ? s.pc : completing_ ? completing_->pc : s.pc;
        d["async"] = s.warp == nullptr;
        tell_("barrier", d);
    }

    void accesses(Warp& w, bool shared, const u64 (&at)[kLanes], u32 mask, u32 size, bool write) override {
        if (!(wants & kAccesses)) return;
        tell("access", w, w.pc(), mask, [&](nb::dict& d) {
            d["shared"] = shared;
            d["size"] = size;
            d["write"] = write;
            d["at"] = bytes_of(at, kLanes);
        });
    }

    bool wants_operands() const override { return wants & kOperands; }

    void multiplies(const MmaSeen& s) override {
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        place(d, *s.warp, s.pc);
        d["kind"] = s.kind;
        d["instruction"] = s.instruction;
        d["m"] = s.m;
        d["n"] = s.n;
        d["k"] = s.k;
        d["ws"] = s.ws;
        d["pair"] = s.pair;
        d["accumulate"] = s.accumulate;
        d["d_column"] = s.d_column;
        d["banks"] = s.banks;
        d["d_lanes"] = bytes_of(s.d_lanes.data(), s.d_lanes.size());
        d["a"] = operand_of(s.a);
        d["b"] = operand_of(s.b);
        tell_("mma", d);
    }

    void tensor_memory(const TensorAccessSeen& s) override {
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        place(d, *s.warp, s.pc);
        d["write"] = s.write;
        d["cells"] = bytes_of(s.cells.data(), s.cells.size());
        tell_("cells", d);
    }

    void copies(const BoxSeen& s) override {
        const nb::gil_scoped_acquire hold;
        const Box& box = *s.box;
        const TensorMap& m = box.map;
        nb::dict d;
        place(d, *s.warp, s.pc);
        d["to_cta"] = s.cta->linear;
        d["offset"] = s.offset;
        d["write"] = s.write;
        d["bytes"] = box.data_bytes();
        d["row_bytes"] = box.row_bytes();
        d["rows4"] = box.rows4;
        d["address"] = m.address;
        d["element_bytes"] = m.element_bytes();
        d["swizzle"] = static_cast<u32>(m.swizzle);
        nb::list start, counts, dims;
        for (u32 k = 0; k < (box.rows4 ? 5u : m.rank); ++k) start.append(box.start[k]);
        for (u32 k = 0; k < m.rank; ++k) counts.append(m.count(k));
        for (u32 k = 0; k < m.rank; ++k) dims.append(m.global_dim[k]);
        d["start"] = start;
        d["box"] = counts;
        d["tensor"] = dims;
        std::vector<u32> pieces;  // of three: byte of the box, offset in shared memory, bytes
        each_piece(box, s.offset, [&](u32 n, u32 at, u32 bytes) { pieces.insert(pieces.end(), {n, at, bytes}); });
        d["pieces"] = bytes_of(pieces.data(), pieces.size());
        tell_("box", d);
    }

    // Looking at the cluster that runs, from within a call

    nb::list warps() {
        nb::list out;
        for (const auto& cta : cluster().ctas)
            for (const Warp& w : cta->warps) {
                nb::dict d;
                d["cta"] = cta->linear;
                d["rank"] = cta->rank;
                d["warp"] = w.index;
                d["live"] = w.live;
                d["time"] = w.time;
                d["current"] = w.current;
                nb::list fragments;
                for (const Fragment& f : w.fragments) {
                    nb::dict one;
                    one["pc"] = f.pc;
                    one["mask"] = f.mask;
                    one["waits"] = f.wait != Wait::none;
                    one["for"] = f.wait == Wait::none ? std::string() : describe_wait(cluster(), *cta, f);
                    one["mbarrier"] = f.wait == Wait::mbarrier;
                    one["barrier"] = f.wait == Wait::barrier ? static_cast<i32>(f.wait_barrier) : -1;
                    one["rank"] = f.wait_mbar >> kSharedRankShift;
                    one["offset"] = f.wait_mbar & kSharedOffsetMask;
                    one["parity"] = f.wait_parity & 1;
                    fragments.append(one);
                }
                d["fragments"] = fragments;
                out.append(d);
            }
        return out;
    }

    nb::bytes reg(u32 rank, u32 warp, u32 unit) {
        Warp& w = warp_at(rank, warp);
        if (unit >= w.program->units) throw std::out_of_range("no such register unit");
        return bytes_of(w.reg<u32>(static_cast<i32>(unit)), kLanes);
    }

    u32 written(u32 rank, u32 warp, u32 unit) {
        Warp& w = warp_at(rank, warp);
        return unit < w.initialised.size() ? w.initialised[unit] : kFullMask;
    }

    nb::bytes shared(u32 rank) {
        const Cta& c = cta_at(rank);
        return bytes_of(c.shared.data(), c.shared.size());
    }

    nb::bytes tensor(u32 rank) {
        Tmem& t = cta_at(rank).tmem;
        if (!t.used) return nb::bytes("", 0);  // its memory may be that of a CTA that is gone
        t.settle(0, Tmem::kColumns);
        std::vector<u32> words;
        for (u32 lane = 0; lane < Tmem::kLanesTotal; ++lane)
            words.insert(words.end(), t.row(lane), t.row(lane) + Tmem::kColumns);
        return bytes_of(words.data(), words.size());
    }

    nb::list mbarriers(u32 rank) {
        nb::list out;
        for (const auto& [offset, b] : cta_at(rank).mbarriers) {
            nb::dict d;
            d["offset"] = offset;
            d["expected"] = b.expected;
            d["pending"] = b.pending;
            d["tx"] = b.tx;
            d["phase"] = b.phase;
            d["in_flight"] = b.in_flight;
            d["init_pc"] = b.init_pc;
            out.append(d);
        }
        return out;
    }

    nb::list pending() {
        nb::list out;
        cluster().pending.each([&](const AsyncOp& op) {
            nb::dict d;
            d["cta"] = cluster().ctas[op.cta]->linear;
            d["warp"] = op.warp;
            d["pc"] = op.pc;
            d["tensor"] = op.tensor;
            out.append(d);
        });
        return out;
    }

    // For Python's garbage collector: who is told mostly holds the observer.
    PyObject* told() const { return tell_.ptr(); }
    void tell_nobody() { tell_.reset(); }

    void suppose(u32 rank, u32 warp, u64 budget) {
        Warp& w = warp_at(rank, warp);
        const nb::gil_scoped_release release;
        suppose_released(w, budget);
    }

private:
    template <class Fill>
    void tell(const char* what, const Warp& w, i32 pc, u32 mask, Fill fill) {
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        place(d, w, pc);
        d["mask"] = mask;
        fill(d);
        tell_(what, d);
    }

    void tell_completion(const char* what, const Cluster& cluster, const AsyncOp& op, u64 event) {
        const nb::gil_scoped_acquire hold;
        nb::dict d;
        d["cta"] = cluster.ctas[op.cta]->linear;
        d["rank"] = op.cta;
        d["warp"] = op.warp;
        d["pc"] = op.pc;
        d["tensor"] = op.tensor;
        d["event"] = event;
        tell_(what, d);
    }

    static void place(nb::dict& d, const Warp& w, i32 pc) {
        d["cta"] = w.cta->linear;
        d["rank"] = w.cta->rank;
        d["warp"] = w.index;
        d["pc"] = pc;
    }

    // FNV-1a over the words that the lanes of `mask` got.
    static u64 value_of(Warp& w, const Inst& i, u32 mask) {
        u64 hash = 0xCBF29CE484222325ull;
        for (u32 k = 0; k < i.n_dst; ++k) {
            const i32 unit = w.ops(i)[k];
            if (unit < 0) continue;
            const u32 words = i.width_dst > 32 ? i.width_dst / 32u : 1u;
            if (i.width_dst == 1) {  // a predicate: a bit a lane
                hash = (hash ^ (w.pred(unit) & mask)) * 0x100000001B3ull;
                continue;
            }
            for (u32 l = 0; l < kLanes; ++l) {
                if (!(mask >> l & 1)) continue;
                for (u32 x = 0; x < words; ++x) hash = (hash ^ w.reg<u32>(unit)[l * words + x]) * 0x100000001B3ull;
            }
        }
        return hash;
    }

    Cluster& cluster() {
        if (!cluster_) throw std::out_of_range("no cluster runs");
        return *cluster_;
    }
    Cta& cta_at(u32 rank) {
        if (rank >= cluster().ctas.size()) throw std::out_of_range("no such CTA in the cluster");
        return *cluster().ctas[rank];
    }
    Warp& warp_at(u32 rank, u32 warp) {
        Cta& c = cta_at(rank);
        if (warp >= c.warps.size()) throw std::out_of_range("no such warp");
        return c.warps[warp];
    }

    nb::object tell_;
    Cluster* cluster_ = nullptr;
    const AsyncOp* completing_ = nullptr;
};

nb::dict record_of(const Program& p, u32 pc) {
    if (pc >= p.insts.size()) throw std::out_of_range("no such instruction");
    const Inst& i = p.insts[pc];
    nb::dict d;
    d["op"] = i.op;
    d["type"] = i.type;
    d["width_dst"] = i.width_dst;
    d["width_src"] = i.width_src;
    d["mods"] = i.mods;
    d["guard"] = i.guard;
    d["target"] = i.target;
    d["immediate"] = i.immediate;
    d["dst"] = std::vector<i32>(i.first_operand, i.first_operand + i.n_dst);
    d["src"] = std::vector<i32>(i.first_operand + i.n_dst, i.first_operand + i.n_dst + i.n_src);
    return d;
}

int traverse_observer(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PythonObserver>(self)->told());
    return 0;
}

int clear_observer(PyObject* self) {
    nb::inst_ptr<PythonObserver>(self)->tell_nobody();
    return 0;
}

PyType_Slot observer_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_observer)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_observer)},
                                {0, nullptr}};

}  // namespace

void bind_observer(nb::module_& module) {
    nb::class_<PythonObserver>(module, "Observer", nb::type_slots(observer_slots))
        .def(nb::init<nb::callable>())
        .def_rw("wants", &PythonObserver::wants)
        .def_rw("until", &PythonObserver::until)
        .def_ro("events", &PythonObserver::events)
        .def("interrupt", [](PythonObserver& o, bool on) { o.interrupted = on; })
        .def("stop_at", [](PythonObserver& o, const nb::bytes& s) { o.stops.assign(s.c_str(), s.c_str() + s.size()); })
        .def_prop_ro("trace", [](const PythonObserver& o) { return bytes_of(o.trace.data(), o.trace.size()); })
        .def("watch", &PythonObserver::watch)
        .def("leave", &PythonObserver::leave)
        .def("warps", &PythonObserver::warps)
        .def("register", &PythonObserver::reg)
        .def("written", &PythonObserver::written)
        .def("shared", &PythonObserver::shared)
        .def("tensor", &PythonObserver::tensor)
        .def("mbarriers", &PythonObserver::mbarriers)
        .def("pending", &PythonObserver::pending)
        .def("suppose", &PythonObserver::suppose);
    module.def("record_of", &record_of);
}

}  // namespace ptxm
