// Which launches and copies may run beside one another: those of one stream come in their order, those of several as
// far as events, the default stream and the host's waits order them (CUDA C++ programming guide, asynchronous
// concurrent execution). What is not known to order anything is taken to order everything, so that no right program is
// accused.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace fmha {

class StreamOrder {
public:
    struct Stream {
        std::uint64_t id;
        bool blocking;  // orders itself with the legacy default stream
    };
    static constexpr std::uint64_t kLegacy = 1;

    // Work is put into a stream: the names of the work that may still be going on then, and nothing orders before it.
    std::vector<std::uint64_t> begin(Stream s);
    void launched(Stream s, std::uint64_t name);
    // Whether there has ever been another stream than the default one.
    bool several() const { return several_; }
    void expect_several() { several_ = true; }

    void record(const void* event, Stream s);
    void forget(const void* event) { events_.erase(event); }
    void wait(Stream s, const void* event);

    void host_waits(Stream s);
    void host_waits(const void* event);
    void host_waits();

private:
    using Position = std::map<std::uint64_t, std::uint64_t>;  // the latest work that is known to be over, by stream
    struct Row {
        Position known;
        bool blocking = true;
    };
    static void join(Position& into, const Position& other);
    Row& row(Stream s);
    Position before(Stream s);
    void drop_what_the_host_knows();

    std::map<std::uint64_t, Row> streams_;
    std::map<const void*, Position> events_;
    Position host_;
    struct Launch {
        std::uint64_t stream, number, name;
    };
    std::vector<Launch> running_;  // that the host does not know to be over
    std::uint64_t number_ = 0;     // of the latest
    bool several_ = false;
};

}  // namespace fmha
