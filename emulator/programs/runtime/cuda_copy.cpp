#include "cuda_copy.hpp"

namespace fmha {
namespace {

// Whether a kernel alone sees these bytes: not those of managed or pinned memory, which the program has at hand.
bool is_device_only(Process& p, const void* pointer) {
    if (!is_device_address(pointer)) return false;
    const auto* found = p.holder(pointer);
    return !found || !found->second.host;
}

Status wrong_kind(Process& p, const void* to, const void* from, int kind) {
    const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice;
    const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
    if (kind < kHostToHost || kind > kByAddress) return kInvalidCopyDirection;
    if (kind == kByAddress) return kSuccess;
    if (to_device ? !is_device_address(to) && !p.holder(to) : is_device_only(p, to)) return kInvalidValue;
    if (from_device ? !is_device_address(from) && !p.holder(from) : is_device_only(p, from)) return kInvalidValue;
    return kSuccess;
}

// What a device would call a registered address by.
void* by_device(Process& p, void* pointer) {
    auto* found = p.holder(pointer);
    if (!found || !found->second.host || found->second.kind != Kind::registered) return pointer;
    const Address at = reinterpret_cast<Address>(pointer);
    return at >> 40 == 1 ? found->second.host + (at - found->first) : pointer;
}

template <class F>
void each_row(const Box& box, F f) {
    for (std::size_t z = 0; z < box.depth; ++z)
        for (std::size_t y = 0; y < box.height; ++y) f(y, z);
}

char* row(const Side& side, std::size_t y, std::size_t z) {
    return static_cast<char*>(side.base) + y * side.pitch + z * side.slice;
}

void lay(Request& request, const Side& side, const Box& box) {
    request.integer(reinterpret_cast<Address>(side.base)).integer(side.pitch).integer(side.slice);
    request.integer(box.width).integer(box.height).integer(box.depth);
}

}  // namespace

Reply ask_in_order(Process& p, Request request) {
    const std::vector<std::uint64_t> beside = p.order.begin(p.working);
    request.integer(p.working.id).integer(p.order.several()).integer(beside.size());
    for (const std::uint64_t name : beside) request.integer(name);
    Reply reply = p.ask(std::move(request));
    if (reply.status) return reply;
    if (const std::uint64_t name = reply.integer()) p.order.launched(p.working, name);
    return reply;
}

Status copy(Process& p, const Side& to_given, const Side& from_given, const Box& box, int kind) {
    if (box.width == 0 || box.height == 0 || box.depth == 0) return kSuccess;
    if (const Status wrong = wrong_kind(p, to_given.base, from_given.base, kind)) return wrong;
    Side to = to_given, from = from_given;
    to.base = by_device(p, to.base);
    from.base = by_device(p, from.base);
    const bool to_device = is_device_only(p, to.base), from_device = is_device_only(p, from.base);
    if (to_device && from_device) {
        Request request("copy");
        lay(request, to, box);
        request.integer(reinterpret_cast<Address>(from.base)).integer(from.pitch).integer(from.slice);
        return ask_in_order(p, std::move(request)).status;
    }
    if (to_device) {
        Request request("write");
        lay(request, to, box);
        std::vector<char> packed;
        packed.reserve(box.width * box.height * box.depth);
        each_row(box, [&](std::size_t y, std::size_t z) {
            const char* r = row(from, y, z);
            packed.insert(packed.end(), r, r + box.width);
        });
        return ask_in_order(p, std::move(request.bytes(packed.data(), packed.size()))).status;
    }
    if (from_device) {
        Request request("read");
        lay(request, from, box);
        Reply reply = ask_in_order(p, std::move(request));
        if (reply.status) return reply.status;
        const auto bytes = reply.bytes();
        const char* next = bytes.data();
        each_row(box, [&](std::size_t y, std::size_t z) {
            std::memcpy(row(to, y, z), next, box.width);
            next += box.width;
        });
        return kSuccess;
    }
    each_row(box, [&](std::size_t y, std::size_t z) { std::memmove(row(to, y, z), row(from, y, z), box.width); });
    return kSuccess;
}

Status fill(Process& p, const Side& to_given, const Box& box, unsigned value, unsigned width) {
    if (box.width == 0 || box.height == 0 || box.depth == 0) return kSuccess;
    if (!is_device_address(to_given.base) && !p.holder(to_given.base)) return kInvalidValue;
    Side to = to_given;
    to.base = by_device(p, to.base);
    if (is_device_only(p, to.base)) {
        Request request("fill");
        lay(request, to, box);
        return ask_in_order(p, std::move(request.bytes(&value, width))).status;
    }
    each_row(box, [&](std::size_t y, std::size_t z) {
        for (std::size_t at = 0; at < box.width; at += width) std::memcpy(row(to, y, z) + at, &value, width);
    });
    return kSuccess;
}

}  // namespace fmha
