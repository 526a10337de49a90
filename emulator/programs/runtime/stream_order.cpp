#include "stream_order.hpp"

#include <algorithm>

namespace fmha {

void StreamOrder::join(Position& into, const Position& other) {
    for (const auto& [stream, number] : other) into[stream] = std::max(into[stream], number);
}

StreamOrder::Row& StreamOrder::row(Stream s) {
    several_ |= s.id != kLegacy;
    Row& r = streams_[s.id];
    r.blocking = s.blocking;
    return r;
}

StreamOrder::Position StreamOrder::before(Stream s) {
    Position known = host_;
    join(known, row(s).known);
    for (const auto& [id, other] : streams_)
        if (other.blocking && s.blocking && (s.id == kLegacy || id == kLegacy)) join(known, other.known);
    return known;
}

std::vector<std::uint64_t> StreamOrder::begin(Stream s) {
    Position known = before(s);
    std::vector<std::uint64_t> beside;
    for (const Launch& l : running_)
        if (l.number > known[l.stream]) beside.push_back(l.name);
    row(s).known = std::move(known);
    return beside;
}

void StreamOrder::launched(Stream s, std::uint64_t name) {
    row(s).known[s.id] = ++number_;
    running_.push_back({s.id, number_, name});
}

void StreamOrder::record(const void* event, Stream s) { events_[event] = before(s); }

void StreamOrder::wait(Stream s, const void* event) {
    if (auto it = events_.find(event); it != events_.end()) join(row(s).known, it->second);
}

void StreamOrder::host_waits(Stream s) {
    join(host_, before(s));
    drop_what_the_host_knows();
}

void StreamOrder::host_waits(const void* event) {
    if (auto it = events_.find(event); it != events_.end()) join(host_, it->second);
    drop_what_the_host_knows();
}

void StreamOrder::host_waits() {
    for (const auto& [id, r] : streams_) join(host_, r.known);
    running_.clear();
}

void StreamOrder::drop_what_the_host_knows() {
    std::erase_if(running_, [&](const Launch& l) { return l.number <= host_[l.stream]; });
}

}  // namespace fmha
