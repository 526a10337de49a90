#include "memory/tensor_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ptxm {

bool Tmem::allocated(u32 column, u32 count) const {
    if (column >= kColumns || count > kColumns - column) return false;
    for (u32 c = column / kGranule; c <= (column + count - 1) / kGranule; ++c)
        if (!owner[c]) return false;
    return true;
}

void MmaMarks::mark(const Run& run) {
    for (Run& earlier : runs_) {
        if (earlier.from != run.from || earlier.end != run.end) continue;
        earlier = run;  // mostly the same columns as the MMA before
        return;
    }
    std::vector<Run> kept;
    const auto keep = [&](Run earlier, u32 from, u32 end) {
        earlier.from = from;
        earlier.end = end;
        if (from < end) kept.push_back(earlier);
    };
    for (const Run& earlier : runs_) keep(earlier, earlier.from, std::min(earlier.end, run.from));
    kept.push_back(run);
    for (const Run& earlier : runs_) keep(earlier, std::max(earlier.from, run.end), earlier.end);
    runs_ = std::move(kept);
}

Tmem::Tmem() = default;
Tmem::Tmem(Tmem&&) noexcept = default;
Tmem& Tmem::operator=(Tmem&&) noexcept = default;
Tmem::~Tmem() = default;

void Tmem::prepare() { lines.resize(kLanesTotal * kPitch / kLineWords); }

// As a new CTA finds it.
void Tmem::reset() {
    if (last_columns) {  // otherwise nothing has been allocated, and nothing written
        const u32 first = static_cast<u32>(std::countr_zero(used)), end = static_cast<u32>(std::bit_width(used));
        for (u32 lane = 0; lane < kLanesTotal; ++lane)
            std::memset(row(lane) + first * kGranule, 0, (end - first) * kGranule * sizeof(u32));
        used = 0;
        shadow.reset();
        mma_writes.clear();
        mma_reads.clear();
    }
    owner = {};
    block = {};
    freed = {};
    relinquished = false;
    gave_back = false;
    cta_group = 0;
    last_columns = 0;
    pair_call = {};
}

}  // namespace ptxm
