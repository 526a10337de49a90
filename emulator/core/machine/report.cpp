// How a finding comes to the launch's list.
#include <algorithm>

#include "machine/machine.hpp"
#include "machine/observer.hpp"

namespace ptxm {

void Machine::report(const Warp* warp, std::string rule, std::string message, i32 pc, i32 other_pc, Severity severity) {
    Finding f;
    f.rule = std::move(rule);
    f.severity = severity;
    f.message = std::move(message);
    f.pc = pc;
    f.other_pc = other_pc;
    if (warp) {
        f.cta = warp->cta->linear;
        f.warp = static_cast<i32>(warp->index);
    }
    tell(std::move(f));
}

void Machine::report(const Warp& w, Verdict told, i32 pc, i32 other_pc, Severity severity) {
    Finding f;
    f.rule = told.rule;
    f.severity = severity;
    f.message = std::move(told.message);
    f.pc = pc;
    f.other_pc = other_pc;
    f.cta = w.cta->linear;
    f.warp = static_cast<i32>(w.index);
    f.add_note(std::move(told.note));
    tell(std::move(f));
}

void Machine::report(const Cta& cta, std::string rule, std::string message, i32 pc, i32 other_pc, Note note) {
    Finding f;
    f.rule = std::move(rule);
    f.message = std::move(message);
    f.pc = pc;
    f.other_pc = other_pc;
    f.cta = cta.linear;
    f.add_note(std::move(note));
    tell(std::move(f));
}

void Machine::report_beside(const Warp& w, std::string rule, std::string message, const Beside& where,
                            Severity severity) {
    Finding f;
    f.rule = std::move(rule);
    f.severity = severity;
    f.message = std::move(message);
    f.pc = where.pc;
    f.other_pc = where.other_pc;
    f.other_launch = in_flight_[where.launch - 1].number;
    f.cta = w.cta->linear;
    f.warp = static_cast<i32>(w.index);
    tell(std::move(f));
}

void Machine::tell(Finding f) {
    if (Observer* const o = Observer::of(*this)) o->found(f);
    Findings& told = findings ? *findings : launch_findings;
    if (!told.seen(f.rule, f.pc, f.other_pc)) told.add(std::move(f));
}

// In the order of the clusters, whichever ran first.
void Machine::collect_findings() {
    std::stable_sort(told_.begin(), told_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [ordinal, found] : told_) launch_findings.absorb(std::move(found));
    told_.clear();
}

}  // namespace ptxm
