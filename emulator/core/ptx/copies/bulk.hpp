// What tensor and non-tensor bulk copies share.
#pragma once

#include <memory>

#include "machine/addresses.hpp"
#include "machine/cluster/cluster.hpp"

namespace ptxm {

SharedRef resolve_bulk_shared(Warp& w, u32 address, u32 bytes, u32 alignment, const char* what);
u32 signal_rank(u32 rank, u32 mbarrier_rank, bool pair);
std::vector<u32> multicast_ranks(Warp& w, u32 mask);
void check_signal(u32 destination, u32 mbarrier, bool pair);
// Whether an earlier lane of this store has the same operands, the first of 64 bits and the others of 32: its bytes are
// written twice, with what is there. Reported by the strict profile.
bool repeats_store(Warp& w, const Inst& i, u32 mask, u32 lane);
// Whether the lanes before and after it have these operands too: its writes follow the one's, with what is there, and
// leave nothing that the other's do not replace.
bool is_between_repeats(Warp& w, const Inst& i, u32 mask, u32 lane);
// The same of its reads: of many readers of one place a few are remembered, the first ones and the last.
bool is_among_many_repeats(Warp& w, const Inst& i, u32 mask, u32 lane);
// Whether the active lane before it has these operands.
bool repeats_last_store(Warp& w, const Inst& i, u32 mask, u32 lane);

// A bulk store that lanes next to one another issue alike. Where nothing happens between two of them, the second reads
// and writes what the first has.
class SharedStore {
public:
    using Bytes = std::shared_ptr<const std::vector<u8>>;

    explicit SharedStore(const Cluster& cluster) : cluster_(cluster) {}
    // What collect() returns.
    template <class Collect>
    Bytes read(Collect collect) {
        if (!follows(read_)) bytes_ = std::make_shared<const std::vector<u8>>(collect());
        read_ = now();
        return bytes_;
    }
    // Calls store() unless that would write the bytes that have just been written.
    template <class Store>
    void write(const Bytes& bytes, Store store) {
        if (!follows(written_) || bytes != last_) store();
        written_ = now();
        last_ = bytes;
    }

private:
    struct Moment {
        u64 instructions = ~u64{0}, completed = 0;
    };
    Moment now() const { return {cluster_.instructions - cluster_.stalled, cluster_.pending.taken()}; }
    // Nothing but this store has been performed since.
    bool follows(const Moment& last) const {
        return now().instructions == last.instructions && now().completed - last.completed <= 1;
    }

    const Cluster& cluster_;
    Bytes bytes_, last_;
    Moment read_, written_;
};

}  // namespace ptxm
