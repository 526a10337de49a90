#include "findings/finding.hpp"

#include <cstdio>

namespace ptxm {

std::string format_list(const char* fmt, va_list args) {
    char buffer[1024];
    std::vsnprintf(buffer, sizeof buffer, fmt, args);
    return buffer;
}

std::string format(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    std::string text = format_list(fmt, args);
    va_end(args);
    return text;
}

void Finding::repeat(Finding again) {
    count += again.count;
    if (rule != "printf") return;
    add_line(std::move(again.message));
    for (auto& line : again.details) add_line(std::move(line.second));
}

void Finding::add_line(std::string text) {
    if (details.size() < kMaxLines) details.emplace_back(-1, std::move(text));
}

void Finding::add_note(Note note) {
    if (!note.text.empty()) details.emplace_back(note.pc, std::move(note.text));
}

void Findings::print(Printed p) {
    if (printed_bytes_ >= kMostPrinted) return;
    printed_bytes_ += p.text.size();
    printed_.push_back(std::move(p));
}

bool Findings::seen(const std::string& rule, i32 pc, i32 other_pc) {
    auto it = index_.find(std::make_tuple(rule, pc, other_pc));
    if (it == index_.end()) return false;
    ++list_[it->second].count;
    ++told_;
    return true;
}

void Findings::add(Finding f) {
    ++told_;
    const auto key = std::make_tuple(f.rule, f.pc, f.other_pc);
    if (list_.size() >= kLimit) return;
    index_.emplace(key, list_.size());
    list_.push_back(std::move(f));
}

Finding* Findings::find(const std::string& rule, i32 pc, i32 other_pc) {
    auto it = index_.find(std::make_tuple(rule, pc, other_pc));
    return it == index_.end() ? nullptr : &list_[it->second];
}

void Findings::absorb(Findings later) {
    for (Finding& f : later.list_) {
        if (Finding* first = find(f.rule, f.pc, f.other_pc))
            first->repeat(std::move(f));
        else
            add(std::move(f));
    }
    for (Printed& p : later.printed_) print(std::move(p));
}

void Findings::clear() {
    list_.clear();
    printed_.clear();
    printed_bytes_ = 0;
    index_.clear();
}

Findings::Findings() = default;
Findings::Findings(Findings&&) noexcept = default;
Findings& Findings::operator=(Findings&&) noexcept = default;
Findings::~Findings() = default;

}  // namespace ptxm
