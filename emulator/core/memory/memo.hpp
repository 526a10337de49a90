// What has been worked out for arguments that come back over and over.
#pragma once

#include <array>

#include "isa/program.hpp"

namespace ptxm {

template <class T>
class Kept {
public:
    struct Found {
        T& entry;
        bool known;  // otherwise it is another's, to be overwritten
    };
    // The entry that is_it() knows, of those with this hash.
    template <class IsIt>
    Found find(u32 hash, IsIt is_it) {
        const u32 set = hash >> (32 - kSetBits);
        for (T& entry : entries_[set])
            if (is_it(entry)) return {entry, true};
        return {entries_[set][next_[set]++ % kWays], false};
    }

private:
    static constexpr u32 kSetBits = 6, kWays = 4;
    std::array<std::array<T, kWays>, 1u << kSetBits> entries_;
    std::array<u8, 1u << kSetBits> next_{};
};

}  // namespace ptxm
