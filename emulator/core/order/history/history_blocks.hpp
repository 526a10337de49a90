// Blocks of 64 chunks whose chunks have few pasts between them: which chunks have which, kept once for all blocks that
// look alike. The tiles that bulk copies write and the tensor core reads are made of such.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "order/history/access_history.hpp"

namespace ptxm {

struct BlockState {
    static constexpr u32 kMost = 8;
    u32 n = 0;
    std::array<u32, kMost> numbers{};  // of pasts, all different
    std::array<u64, kMost> chunks{};   // that have them, a bit each; ascending by the first
    bool operator==(const BlockState&) const = default;
};

// A state in the making: more pasts than one may have.
class BlockParts {
public:
    void add(u32 number, u64 chunks) {
        u32 k = 0;
        while (k < n_ && parts_[k].number != number) ++k;
        if (k == n_) parts_[n_++] = {0, number};
        parts_[k].chunks |= chunks;
    }
    u32 size() const { return n_; }
    u32 first() const { return parts_[0].number; }
    BlockState sorted() {
        for (u32 k = 1; k < n_; ++k)
            for (u32 j = k; j && std::countr_zero(parts_[j].chunks) < std::countr_zero(parts_[j - 1].chunks); --j)
                std::swap(parts_[j], parts_[j - 1]);
        BlockState s;
        s.n = n_;
        for (u32 k = 0; k < n_; ++k) {
            s.numbers[k] = parts_[k].number;
            s.chunks[k] = parts_[k].chunks;
        }
        return s;
    }

private:
    struct Part {
        u64 chunks;
        u32 number;
    };
    u32 n_ = 0;
    Part parts_[2 * BlockState::kMost];
};

class BlockStates {
public:
    BlockStates() { reset(); }

    void reset() {
        states_.clear();
        used_.clear();
        free_.clear();
        limit_ = kFirstLimit;
        make_table();
    }
    const BlockState& operator[](u32 index) const { return states_[index]; }
    u32 index_of(const BlockState& state) {
        for (u64 slot = hash(state);; ++slot) {
            u32& entry = table_[slot & (table_.size() - 1)];
            if (entry != kNone && !(states_[entry] == state)) continue;
            return entry != kNone ? entry : add(state, entry);
        }
    }

    bool crowded() const { return in_use() >= limit_; }
    // `each_index` calls its argument with the state of every block that has one.
    template <class EachIndex>
    void forget_unused(EachIndex each_index) {
        std::fill(used_.begin(), used_.end(), 0);
        each_index([&](u32 index) { used_[index] = 1; });
        free_.clear();
        for (u32 n = static_cast<u32>(states_.size()); n-- > 0;)
            if (!used_[n]) free_.push_back(n);
        limit_ = std::max(kFirstLimit, 2 * in_use());
        make_table();
    }
    template <class Visit>
    void each_number(Visit visit) const {
        for (u32 n = 0; n < states_.size(); ++n)
            if (used_[n]) std::for_each_n(states_[n].numbers.begin(), states_[n].n, visit);
    }

private:
    static constexpr u32 kNone = ~0u;
    static constexpr std::size_t kFirstLimit = 256;

    std::size_t in_use() const { return states_.size() - free_.size(); }

    static u64 hash(const BlockState& s) {
        constexpr u64 kOdd = 0x9E3779B97F4A7C15;
        u64 sum = s.n;
        for (u32 k = 0; k < s.n; ++k) sum = (sum ^ s.numbers[k] ^ std::rotl(s.chunks[k], 17)) * kOdd;
        return sum ^ sum >> 32;
    }

    u32 add(const BlockState& state, u32& entry) {
        u32 index = static_cast<u32>(states_.size());
        if (free_.empty()) {
            states_.push_back(state);
            used_.push_back(1);
        } else {
            index = free_.back();
            free_.pop_back();
            states_[index] = state;
            used_[index] = 1;
        }
        entry = index;
        // What one operation adds may pass the limit.
        if (2 * in_use() > table_.size()) make_table();
        return index;
    }
    // At most half full.
    void make_table() {
        table_.assign(std::bit_ceil(4 * std::max(limit_, in_use())), kNone);
        for (u32 n = 0; n < states_.size(); ++n) {
            if (!used_[n]) continue;
            u64 slot = hash(states_[n]);
            while (table_[slot & (table_.size() - 1)] != kNone) ++slot;
            table_[slot & (table_.size() - 1)] = n;
        }
    }

    std::vector<BlockState> states_;
    std::vector<u8> used_;    // by index
    std::vector<u32> free_;   // indices
    std::vector<u32> table_;  // indices by hash
    std::size_t limit_ = 0;
};

}  // namespace ptxm
