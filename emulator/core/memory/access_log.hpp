// Which bytes of global memory each cluster reads and writes, and what was there before the launch. Machines that run
// clusters side by side find out with it whether the order of the clusters could matter, and go back if so.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "memory/memory.hpp"

namespace ptxm {

// The bytes of the allocations that a launch writes to, as they were. Shared by the machines of the launch.
class Undo {
public:
    explicit Undo(u32 indices) : saved_(std::make_unique<std::atomic<bool>[]>(indices)) {}
    // Before the first write to `a`; later calls do nothing.
    void save(const Allocation& a);
    void restore();

private:
    struct Copy {
        u8* to;
        std::unique_ptr<u8[]> bytes;
        u64 size;
    };
    std::unique_ptr<std::atomic<bool>[]> saved_;  // by Allocation::index
    std::mutex mutex_;
    std::vector<Copy> copies_;
};

// Disjoint byte ranges, kept small by joining those that touch.
class Ranges {
public:
    struct Range {
        u64 begin, end;
    };
    void add(u64 begin, u64 end) {
        if (!list_.empty() && begin <= list_.back().end && end >= list_.back().begin) {
            list_.back() = {std::min(begin, list_.back().begin), std::max(end, list_.back().end)};
            return;
        }
        list_.push_back({begin, end});
        if (list_.size() >= limit_) join();
    }
    // In ascending order.
    const std::vector<Range>& joined() {
        join();
        return list_;
    }
    void clear() { list_.clear(); }

private:
    static constexpr std::size_t kFirstLimit = 4096;
    void join();

    std::vector<Range> list_;
    std::size_t limit_ = kFirstLimit;
};

class AccessLog {
public:
    struct Touched {
        u64 begin, end;
        u64 cluster;
    };
    explicit AccessLog(Undo& undo) : undo_(undo) {}

    void read(u64 address, u32 size) { read_.add(address, address + size); }
    void write(const Allocation& a, u64 address, u32 size) {
        undo_.save(a);
        written_.add(address, address + size);
    }
    // What was noted since the last call is the work of this cluster.
    void assign(u64 cluster);

    const std::vector<Touched>& reads() const { return reads_; }
    const std::vector<Touched>& writes() const { return writes_; }

private:
    Undo& undo_;
    Ranges read_, written_;
    std::vector<Touched> reads_, writes_;
};

// No cluster has written what another has read or written: any order of the clusters does the same.
bool independent(const std::vector<const AccessLog*>& logs);

}  // namespace ptxm
