// cuTensorMapEncodeTiled and its kin: arguments go to the emulator, which has its own encoding and refuses what a
// driver does.
#include "process.hpp"

using namespace fmha;

namespace {

constexpr std::size_t kMapBytes = 128;

struct Tensor {
    int type;
    unsigned rank;
    void* address;
    const std::uint64_t *dims, *strides;
    const unsigned* element_strides;
    int interleave, swizzle, promotion, fill;
};

template <class T>
void list(Request& request, const T* values, unsigned n) {
    request.integer(values ? n : 0);
    for (unsigned k = 0; values && k < n; ++k)
        request.integer(static_cast<std::uint64_t>(static_cast<std::int64_t>(values[k])));
}

void describe(Request& request, const Tensor& t) {
    const unsigned rank = t.rank > 5 ? 0 : t.rank;
    request.integer(static_cast<unsigned>(t.type)).integer(t.rank).integer(reinterpret_cast<Address>(t.address));
    list(request, t.dims, rank);
    list(request, t.strides, rank ? rank - 1 : 0);
    list(request, t.element_strides, rank);
    for (const int word : {t.interleave, t.swizzle, t.promotion, t.fill}) request.integer(static_cast<unsigned>(word));
}

Status encode(Process& p, Request request, void* out) {
    Reply reply = p.ask(std::move(request));
    if (reply.status) return reply.status;
    const auto bytes = reply.bytes();
    if (bytes.size() != kMapBytes) return kUnknown;
    std::memcpy(out, bytes.data(), bytes.size());
    return kSuccess;
}

}  // namespace

FMHA_EXPORT Status cuTensorMapEncodeTiled(void* out, int type, unsigned rank, void* address, const std::uint64_t* dims,
                                          const std::uint64_t* strides, const unsigned* box,
                                          const unsigned* element_strides, int interleave, int swizzle, int promotion,
                                          int fill) {
    return with_device([&](Process& p) {
        Request request("tiled");
        describe(request, {type, rank, address, dims, strides, element_strides, interleave, swizzle, promotion, fill});
        list(request, box, rank > 5 ? 0 : rank);
        return encode(p, std::move(request), out);
    });
}

FMHA_EXPORT Status cuTensorMapEncodeIm2col(void* out, int type, unsigned rank, void* address, const std::uint64_t* dims,
                                           const std::uint64_t* strides, const int* lower, const int* upper,
                                           unsigned channels, unsigned pixels, const unsigned* element_strides,
                                           int interleave, int swizzle, int promotion, int fill) {
    return with_device([&](Process& p) {
        Request request("im2col");
        describe(request, {type, rank, address, dims, strides, element_strides, interleave, swizzle, promotion, fill});
        const unsigned corners = rank > 5 || rank < 2 ? 0 : rank - 2;
        list(request, lower, corners);
        list(request, upper, corners);
        request.integer(channels).integer(pixels);
        return encode(p, std::move(request), out);
    });
}
