// A schedule that searches: probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS
// 2010), and the interleaving that a run was.
//
// Warps, clusters and asynchronous operations draw priorities, and of those that can go on the highest does. At
// `depth - 1` steps, drawn from the first `steps`, whoever runs loses to all others. What goes wrong only where d
// steps come in one order, a run of n warps and k steps shows with a probability of at least 1 / (n k^(d - 1)).
//
// Two things are not as there. Who only polls lets the others go on for a while. And a wait that is suspended may run
// out of time, or wake up to ask again, when its barrier may have moved on.
#pragma once

#include <algorithm>
#include <random>
#include <unordered_map>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

class Search {
public:
    u32 depth = 3;
    u64 steps = 1000;
    u64 taken = 0;     // of these, in this launch
    u64 clusters = 0;  // that take turns

    void begin(std::mt19937_64& random);
    // Whether the step that is to come is one at which priorities change.
    bool changes_now();
    static i64 high(std::mt19937_64& random) { return static_cast<i64>(random() >> 1); }
    static i64 low(std::mt19937_64& random) { return -1 - static_cast<i64>(random() >> 1); }

private:
    std::vector<u64> changes_;  // the next last
};

// The order in which warps have come to the same places, 16 bytes of memory or an mbarrier: two runs of one order are
// one interleaving. Reads between two writes have no order among themselves.
class Interleaving {
public:
    void access(u64 place, u64 who, bool write);
    u64 digest() const;

private:
    struct Past {
        u64 writes = 0, reads = 0;  // digests: up to the last write, and since
    };
    static u64 mix(u64 a, u64 b) {
        u64 x = (a ^ b * 0x9E3779B97F4A7C15) + 0xD6E8FEB86659FD93;
        x = (x ^ x >> 32) * 0xC2B2AE3D27D4EB4F;
        return x ^ x >> 29;
    }
    std::unordered_map<u64, Past> places_;
};

}  // namespace ptxm
