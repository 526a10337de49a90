// The tensor memory of a CTA.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "order/history/tensor_memory_history.hpp"

namespace ptxm {

// Products that MMAs have completed and that have not been summed: whoever looks at their columns has that done.
struct UnsettledSums {
    virtual ~UnsettledSums() = default;
    // Afterwards the tensor memories that these are of have nothing unsettled.
    virtual void settle() = 0;
};

// The last MMA that touched each column, for the order of MMAs among themselves, in runs of columns: those of the lower
// 16 of every 32 lanes, then, Tmem::kColumns further on, of the upper.
class MmaMarks {
public:
    struct Run {
        u32 from, end, clock, pc, signature, agent;
    };
    void mark(const Run& run);
    // Ascending.
    const std::vector<Run>& runs() const { return runs_; }
    void clear() { runs_.clear(); }

private:
    std::vector<Run> runs_;
};

// One CTA's half of a collective tcgen05 allocation, waiting for its peer.
struct PairCall {
    bool waiting = false, dealloc = false;
    u32 warp = 0, columns = 0, address = 0;  // address: of the result in shared memory, or in tensor memory
    i32 pc = -1;
};

struct Tmem {
    Tmem();
    Tmem(Tmem&&) noexcept;
    Tmem& operator=(Tmem&&) noexcept;
    ~Tmem();

    static constexpr u32 kLanesTotal = 128, kColumns = 512, kGranule = 32;
    // Rows start in different cache sets: a column of 32 lanes fits the cache. No row shares a cache line with another.
    static constexpr u32 kLineWords = 16, kPitch = kColumns + kLineWords;
    struct alignas(4 * kLineWords) Line {
        u32 words[kLineWords];
    };
    std::vector<Line> lines;                          // empty before the first allocation
    std::array<i32, kColumns / kGranule> owner{};     // pc of the alloc + 1, 0 when free
    std::array<u16, kColumns / kGranule> block{};     // first granule of the allocation
    std::array<i32, kColumns / kGranule> freed{};     // pc of the dealloc + 1, 0 if it never was given back since
    std::array<Access, kColumns / kGranule> taken{};  // when and by whom, of those that are allocated
    u32 used = 0;                                     // granules that have been allocated, a bit each
    TmemShadow shadow;
    bool relinquished = false;
    bool gave_back = false;  // some columns, at some time
    u8 cta_group = 0;        // of the CTA's tcgen05 instructions; 0 before the first
    u32 last_columns = 0;    // of the last allocation
    PairCall pair_call;
    MmaMarks mma_writes, mma_reads;
    // The words of a lane. Before columns are read or written, settle them.
    u32* row(u32 lane) { return reinterpret_cast<u32*>(lines.data()) + lane * kPitch; }
    // Columns with such products: ptx/tcgen05/product/chain.cpp. Those of a pair's CTAs have one owner, whose sums they
    // are.
    struct Unsettled {
        Tmem* owner = nullptr;
        u32 column = 0, columns = 0;
    };
    Unsettled unsettled;
    std::shared_ptr<UnsettledSums> sums;
    void settle(u32 column, u32 columns) {
        if (column < unsettled.column + unsettled.columns && unsettled.column < column + columns)
            unsettled.owner->sums->settle();
    }
    void prepare();  // for the first allocation
    void reset();
    bool allocated(u32 column, u32 count) const;
};

}  // namespace ptxm
