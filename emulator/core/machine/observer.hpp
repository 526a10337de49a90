// Who looks on while a launch runs: `fmha diag`, `fmha debug`, the explanation of a hang. A run that nobody looks at
// executes another copy of the loop over instructions (schedule.cpp); elsewhere it costs one look at a pointer where
// something rare happens.
//
// What an observer is shown is what the machine itself computes for the operation at hand: the chunks that an MMA
// gathers, the bytes that a copy fills. No layout is written down a second time.
#pragma once

#include <atomic>
#include <vector>

#include "machine/async/async_queue.hpp"
#include "machine/warp/warp.hpp"

namespace ptxm {

struct Box;
struct Cluster;
struct Finding;
struct Machine;
struct Mbarrier;

// expect: of bytes. bytes: of a copy that is complete. wait: that found its phase in progress. pass: one that did not.
// promise: a commit or a copy was issued that will arrive.
enum class BarrierEvent : u8 { init, invalidate, arrive, expect, bytes, wait, pass, phase, promise };

struct BarrierSeen {
    BarrierEvent event;
    const Cta* cta;  // the mbarrier's
    u32 offset;
    const Mbarrier* bar;
    const Warp* warp;  // null: of an asynchronous operation
    i32 pc;
    i64 amount;  // arrivals, or bytes; of a wait the parity
};

// An operand of an MMA, as the machine gathers it.
struct OperandSeen {
    const char* format;
    u32 rows, k;  // elements
    u32 bits;     // of an element as it is stored
    bool tensor_memory, mn_major;
    std::vector<u32> chunks;  // offsets of 16 bytes in shared memory, or lane << 16 | column: see `per_chunk`
    u32 per_chunk;            // elements of a chunk: k ascending of a row, or rows ascending of a k where MN-major
    u64 descriptor;           // or the address in tensor memory
};

struct MmaSeen {
    const Warp* warp;
    i32 pc;
    const char* kind;
    u32 instruction;  // the instruction descriptor
    u32 m, n, k;
    bool ws, pair, accumulate;
    u32 d_column, banks;
    std::vector<u32> d_lanes;  // by bank and row: bank b holds columns [b n / banks, (b + 1) n / banks)
    OperandSeen a, b;
};

// A tcgen05.ld or tcgen05.st: the cell of tensor memory of register r of lane l, as lane << 16 | column, by r * 32 + l.
struct TensorAccessSeen {
    const Warp* warp;
    i32 pc;
    bool write;
    std::vector<u32> cells;
};

// A bulk tensor copy into or out of shared memory.
struct BoxSeen {
    const Warp* warp;
    i32 pc;
    const Cta* cta;
    u32 offset;
    bool write;  // of shared memory
    const Box* box;
};

class Observer {
public:
    virtual ~Observer() {
        Observer* self = this;
        looking_.compare_exchange_strong(self, nullptr);
    }
    virtual void enter(Cluster& cluster) = 0;
    virtual void step(Warp& w, const Inst& i, u32 mask) = 0;
    // `pc`: of the instruction. `taken` false: it waits, and will be tried again.
    virtual void stepped(Warp& w, const Inst& i, u32 mask, i32 pc, bool taken) = 0;
    virtual void completing(Cluster& cluster, const AsyncOp& op) = 0;
    virtual void completed(Cluster& cluster, const AsyncOp& op) = 0;
    virtual void found(const Finding& finding) = 0;
    virtual void stuck(Cluster& cluster) = 0;  // a deadlock or a livelock: the state is as it was when it was found
    virtual void barrier(const BarrierSeen& seen) = 0;
    virtual void accesses(Warp& w, bool shared, const u64 (&at)[kLanes], u32 mask, u32 size, bool write) = 0;
    virtual bool wants_operands() const = 0;  // whether multiplies, tensor_memory and copies are worth making
    virtual void multiplies(const MmaSeen& seen) = 0;
    virtual void tensor_memory(const TensorAccessSeen& seen) = 0;
    virtual void copies(const BoxSeen& seen) = 0;

    // Of a machine's launches, or null. One machine of a process is looked at at a time: the pointer is the process's,
    // so that the machine that nobody looks at, which is nearly every one, is as it would be without observers.
    static Observer* of(const Machine& m) {
        Observer* const looking = looking_.load(std::memory_order_relaxed);
        return looking && looking->machine_ == &m ? looking : nullptr;
    }

protected:
    void look_at(const Machine* m) {
        machine_ = m;
        looking_ = m ? this : nullptr;
    }

private:
    const Machine* machine_ = nullptr;
    static inline std::atomic<Observer*> looking_ = nullptr;
};

// Lets an asynchronous operation take effect.
void finish_async(Cluster& cluster, const AsyncOp& op);
// Shows an observer, if there is one, what happens to an mbarrier.
void show_barrier(BarrierEvent event, const Cta& cta, u32 offset, const Mbarrier& bar, const Warp* w, i32 pc,
                  i64 amount);

}  // namespace ptxm
