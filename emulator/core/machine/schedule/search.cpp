#include "machine/schedule/search.hpp"

namespace ptxm {

void Search::begin(std::mt19937_64& random) {
    taken = 0;
    changes_.clear();
    for (u32 n = 1; n < depth; ++n) changes_.push_back(1 + random() % std::max<u64>(steps, 1));
    std::sort(changes_.rbegin(), changes_.rend());
}

bool Search::changes_now() {
    taken += 1;
    bool now = false;
    for (; !changes_.empty() && changes_.back() <= taken; changes_.pop_back()) now = true;
    return now;
}

void Interleaving::access(u64 place, u64 who, bool write) {
    Past& past = places_[place];
    if (write)
        past = {mix(past.writes + past.reads, who), 0};
    else
        past.reads += mix(past.writes, who);
}

u64 Interleaving::digest() const {
    u64 sum = 0;
    for (const auto& [place, past] : places_) sum += mix(past.writes + past.reads, place);
    return sum;
}

}  // namespace ptxm
