// What the host has done in the order of a stream, held against the launches that may run beside it: a copy, a fill, or
// what frees memory (CUDA C++ programming guide, asynchronous concurrent execution; stream ordered memory allocator).
#include "machine/machine.hpp"
#include "order/history/linear_history.hpp"

namespace ptxm {
namespace {

// Calls f(begin, end) for the parts that somebody has written: a copy leaves what nobody has as it was.
template <class F>
void each_written_part(const Allocation& a, u64 begin, u64 end, F f) {
    u64 done = begin;
    a.written.each_gap(begin, end, [&](u64 from, u64 to) {
        if (from > done) f(done, from);
        done = to;
    });
    if (end > done) f(done, end);
}

}  // namespace

void Machine::hold_against_launches(const HostAccess& access, const Accessor& who) {
    Allocation* const a = global.find_for_host(access.address, access.size);
    if (!a) return;
    LinearShadow& shadow = global.shadow(*a);
    u64 at = 0;
    const auto ordered = [&](const Access& earlier, bool) {
        const u32 n = launch_of(earlier.cluster);
        return n == 0 || !is_beside(in_flight_[n - 1].number);
    };
    const auto report = [&](const Conflict& c) {
        const InFlight& other = in_flight_[launch_of(c.earlier->cluster) - 1];
        Finding f;
        f.rule = "stream-race";
        f.other_pc = static_cast<i32>(c.earlier->pc);
        f.other_launch = other.number;
        const std::string called = launch->stream.empty() ? launch->name : launch->name + " in " + launch->stream;
        f.message =
            format("%s %s '%s' at byte %llu, which %s %s: no event and no synchronisation orders the two",
                   called.c_str(), access.verb, a->name.c_str(), (unsigned long long)at,
                   in_its_stream(launch_of(c.earlier->cluster)).c_str(), c.earlier_was_write ? "writes" : "reads");
        const auto told = [&](const Finding& g) { return g.other_launch == f.other_launch; };
        if (std::ranges::none_of(launch_findings.list(), told)) launch_findings.add(std::move(f));
    };
    const auto touch = [&](u64 begin, u64 end) {
        Touch touch(shadow.pasts(), who, false, ordered, report);
        at = begin;
        shadow.touch(begin, end - begin, touch);
    };
    const u64 begin = access.address - a->base;
    if (access.write)
        each_written_part(*a, begin, begin + access.size, touch);
    else
        touch(begin, begin + access.size);
}

void Machine::work_for_host(const Launch& work, const std::vector<HostAccess>& accesses) {
    host_work_ = work;
    launch = &host_work_;
    launch_findings.clear();
    begin(true);
    if (!checks) return;
    Accessor who{0, 1, 0, false};
    who.cluster = next_number();
    for (const HostAccess& access : accesses) {
        who.write = access.write;
        hold_against_launches(access, who);
    }
}

}  // namespace ptxm
