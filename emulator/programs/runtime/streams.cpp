// Streams and events. Launches and copies are done when they return, so all work is in one order, that of the calls.
// What order a GPU would keep, StreamOrder knows.
#include <atomic>
#include <chrono>

#include "process.hpp"

using namespace fmha;

namespace {

struct Stream {
    unsigned flags;
    int priority;
    unsigned long long id;
};

struct Event {
    std::chrono::steady_clock::time_point at;
    bool timed, recorded;
};

std::atomic<unsigned long long> made{3};               // 1 and 2 are the default streams
std::atomic<unsigned long long> branches{1ull << 32};  // of graphs: no program has made these
std::set<const void*> live;                            // under the process's lock

// 0, 1 and 2 are the default streams' handles.
bool is_default(const void* s) { return reinterpret_cast<std::uintptr_t>(s) <= 2; }
bool is_live(const void* handle) { return is_default(handle) || live.contains(handle); }

Status create(void** out, unsigned flags, int priority, std::atomic<unsigned long long>& numbers = made) {
    return with_device([&](Process& p) {
        if (!out) return Status{kInvalidValue};
        *out = new Stream{flags, priority, numbers++};
        live.insert(*out);
        p.order.expect_several();
        return Status{kSuccess};
    });
}

template <class T>
Status destroy(void* handle) {
    return with_device([&](Process& p) {
        if (!live.erase(handle)) return Status{kInvalidHandle};
        p.captures.forget(handle);
        delete static_cast<T*>(handle);
        return Status{kSuccess};
    });
}

template <class F>
Status of_stream(void* handle, F f) {
    return with_device([&](Process&) {
        if (!is_live(handle)) return Status{kInvalidHandle};
        static Stream standard{0, 0, 1};
        f(is_default(handle) ? standard : *static_cast<Stream*>(handle));
        return Status{kSuccess};
    });
}

// Of a call that waits for an event, or finds that it is complete.
template <class F>
Status on_event(const void* event, F f) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    if (const Status forbidden = p.captures.host_waits_for_event(event)) return noted(forbidden);
    const Status standing = p.settle();
    p.order.host_waits(event);
    return noted(standing ? standing : f(p));
}

Status wait(void* handle) {
    {
        Process& p = Process::the();
        std::lock_guard lock(p.mutex);
        if (const Status forbidden = p.captures.host_waits(handle)) return noted(forbidden);
    }
    return on_stream(handle, [&](Process& p) {
        if (!is_live(handle)) return Status{kInvalidHandle};
        p.order.host_waits(stream_of(handle));
        return Status{kSuccess};
    });
}

}  // namespace

namespace fmha {

StreamOrder::Stream stream_of(const void* handle) {
    constexpr unsigned kNonBlocking = 1;
    if (is_default(handle) || !live.contains(handle)) return {StreamOrder::kLegacy, true};
    const auto& s = *static_cast<const Stream*>(handle);
    return {s.id, !(s.flags & kNonBlocking)};
}

Status create_branch(void** out) {
    constexpr unsigned kNonBlocking = 1;
    return create(out, kNonBlocking, 0, branches);
}

}  // namespace fmha

FMHA_EXPORT Status cudaStreamCreate(void** out) { return create(out, 0, 0); }
FMHA_EXPORT Status cudaStreamCreateWithFlags(void** out, unsigned flags) { return create(out, flags, 0); }
FMHA_EXPORT Status cudaStreamCreateWithPriority(void** out, unsigned flags, int priority) {
    return create(out, flags, priority);
}
FMHA_EXPORT Status cudaStreamDestroy(void* s) { return destroy<Stream>(s); }
FMHA_EXPORT Status cudaStreamSynchronize(void* s) { return wait(s); }
FMHA_EXPORT Status cudaStreamQuery(void* s) { return wait(s); }

FMHA_EXPORT Status cudaStreamWaitEvent(void* s, void* e, unsigned flags) {
    constexpr unsigned kExternal = 1;
    if (flags & kExternal)
        if (const Status refused = uncaptured(s, "cudaEventWaitExternal")) return refused;
    return with_device([&](Process& p) {
        if (!is_live(s) || !live.contains(e)) return Status{kInvalidHandle};
        if (const auto captured = p.captures.wait(s, e)) return *captured;
        p.order.wait(stream_of(s), e);
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaStreamGetFlags(void* s, unsigned* out) {
    return of_stream(s, [&](const Stream& found) { *out = found.flags; });
}
FMHA_EXPORT Status cudaStreamGetPriority(void* s, int* out) {
    return of_stream(s, [&](const Stream& found) { *out = found.priority; });
}
FMHA_EXPORT Status cudaStreamGetId(void* s, unsigned long long* out) {
    return of_stream(s, [&](const Stream& found) { *out = found.id; });
}
FMHA_EXPORT Status cudaStreamGetDevice(void* s, int* out) {
    return of_stream(s, [&](const Stream&) { *out = 0; });
}
// Where data is cached, and which stream goes first.
FMHA_EXPORT Status cudaStreamSetAttribute(void* s, int, const void*) {
    return of_stream(s, [](const Stream&) {});
}
FMHA_EXPORT Status cudaStreamCopyAttributes(void* to, void* from) {
    return with_device([&](Process&) { return Status{is_live(to) && is_live(from) ? kSuccess : kInvalidHandle}; });
}

FMHA_EXPORT Status cudaLaunchHostFunc(void* s, void (*f)(void*), void* data) {
    return in_stream(s, NodeKind::host, [=](void* at) {
        if (!in_graph)
            if (const Status status = wait(at)) return status;
        f(data);
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cudaStreamAddCallback(void* s, void (*f)(void*, Status, void*), void* data, unsigned) {
    if (const Status refused = uncaptured(s, "cudaStreamAddCallback")) return refused;
    const Status status = wait(s);
    if (status != kInvalidHandle) f(s, status, data);
    return status;
}

FMHA_EXPORT Status cudaEventCreateWithFlags(void** out, unsigned flags) {
    return with_device([&](Process&) {
        if (!out) return Status{kInvalidValue};
        *out = new Event{{}, !(flags & 2), false};
        live.insert(*out);
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cudaEventCreate(void** out) { return cudaEventCreateWithFlags(out, 0); }
FMHA_EXPORT Status cudaEventDestroy(void* e) {
    return with_device([&](Process& p) {
        p.order.forget(e);
        return destroy<Event>(e);
    });
}

FMHA_EXPORT Status cudaEventRecord(void* e, void* s) {
    return with_device([&](Process& p) {
        if (!live.contains(e) || !is_live(s)) return Status{kInvalidHandle};
        if (const auto captured = p.captures.record(e, s)) return *captured;
        p.order.record(e, stream_of(s));
        static_cast<Event*>(e)->at = std::chrono::steady_clock::now();
        static_cast<Event*>(e)->recorded = true;
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cudaEventRecordWithFlags(void* e, void* s, unsigned flags) {
    constexpr unsigned kExternal = 1;
    if (flags & kExternal)
        if (const Status refused = uncaptured(s, "cudaEventRecordExternal")) return refused;
    return cudaEventRecord(e, s);
}

FMHA_EXPORT Status cudaEventSynchronize(void* e) {
    return on_event(e, [&](Process&) { return Status{live.contains(e) ? kSuccess : kInvalidHandle}; });
}
FMHA_EXPORT Status cudaEventQuery(void* e) { return cudaEventSynchronize(e); }

// The emulator's own time, which the report says.
FMHA_EXPORT Status cudaEventElapsedTime(float* out, void* from, void* to) {
    return on_event(to, [&](Process& p) {
        if (!out) return Status{kInvalidValue};
        if (!live.contains(from) || !live.contains(to)) return Status{kInvalidHandle};
        const Event &first = *static_cast<Event*>(from), &last = *static_cast<Event*>(to);
        if (!first.recorded || !last.recorded || !first.timed || !last.timed) return Status{kInvalidHandle};
        *out = std::chrono::duration<float, std::milli>(last.at - first.at).count();
        return p.ask(Request("elapsed")).status;
    });
}

FMHA_ALIAS(cudaStreamSynchronize, _ptsz)
FMHA_ALIAS(cudaStreamQuery, _ptsz)
FMHA_ALIAS(cudaStreamWaitEvent, _ptsz)
FMHA_ALIAS(cudaStreamGetFlags, _ptsz)
FMHA_ALIAS(cudaStreamGetPriority, _ptsz)
FMHA_ALIAS(cudaStreamGetId, _ptsz)
FMHA_ALIAS(cudaStreamGetDevice, _ptsz)
FMHA_ALIAS(cudaStreamSetAttribute, _ptsz)
FMHA_ALIAS(cudaStreamCopyAttributes, _ptsz)
FMHA_ALIAS(cudaLaunchHostFunc, _ptsz)
FMHA_ALIAS(cudaStreamAddCallback, _ptsz)
FMHA_ALIAS(cudaEventRecord, _ptsz)
FMHA_ALIAS(cudaEventRecordWithFlags, _ptsz)
