// What a replay's warps take turns at, and what they wait for: pipes and ports as servers with queues, barriers, the
// products of warpgroups.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "timing/replay.hpp"

namespace ptxm::timing {

constexpr u32 kSlots = 4;  // schedulers of an SM

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

    void contribute(double at, i64 whose) {
        if (at < latest) return;
        latest = at;
        by = whose;
    }
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

struct Value {  // a register: when it is there, and what it waits for until then
    double ready = 0;
    Cause why = Cause::issue;
};

struct Runner {  // a warp
    const WarpRecording* recording = nullptr;
    u32 cta = 0, index = 0, slot = 0, next = 0, id = 0;
    u32 expected = 0;  // the pc behind the last instruction
    double time = 0;
    std::vector<Value> values;
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

}  // namespace ptxm::timing
