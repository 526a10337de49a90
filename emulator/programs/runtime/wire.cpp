#include "wire.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace fmha {
namespace {

constexpr std::size_t kName = 16, kHeader = kName + 8;

bool send_all(int to, const char* data, std::size_t size) {
    while (size) {
        const ssize_t n = ::send(to, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= static_cast<std::size_t>(n);
    }
    return true;
}

bool receive_all(int from, char* data, std::size_t size) {
    while (size) {
        const ssize_t n = ::recv(from, data, size, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= static_cast<std::size_t>(n);
    }
    return true;
}

}  // namespace

Request::Request(const char* name) : data_(kHeader) { std::strncpy(data_.data(), name, kName); }

Request& Request::integer(std::uint64_t value) {
    const char* raw = reinterpret_cast<const char*>(&value);
    data_.insert(data_.end(), raw, raw + sizeof value);
    return *this;
}

Request& Request::bytes(const void* data, std::size_t size) {
    integer(size);
    const char* raw = static_cast<const char*>(data);
    data_.insert(data_.end(), raw, raw + size);
    return *this;
}

std::uint64_t Reply::integer() {
    std::uint64_t value = 0;
    if (data_.size() - at_ >= sizeof value) std::memcpy(&value, data_.data() + at_, sizeof value);
    at_ = std::min(at_ + sizeof value, data_.size());
    return value;
}

std::span<const char> Reply::bytes() {
    const std::size_t size = std::min<std::size_t>(integer(), data_.size() - at_);
    at_ += size;
    return {data_.data() + at_ - size, size};
}

bool Connection::open() {
    const char* path = std::getenv("FMHA_PROGRAM");
    sockaddr_un address{};
    if (!path || std::strlen(path) >= sizeof address.sun_path) return false;
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return false;
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
    close();
    return false;
}

Reply Connection::ask(Request request) {
    Reply reply;
    reply.status = kUnknown;
    if (socket_ < 0) return reply;
    std::vector<char>& out = request.data_;
    const std::uint64_t size = out.size() - kHeader;
    std::memcpy(out.data() + kName, &size, sizeof size);
    std::int64_t head[2];
    if (!send_all(socket_, out.data(), out.size()) ||
        !receive_all(socket_, reinterpret_cast<char*>(head), sizeof head)) {
        close();
        return reply;
    }
    reply.data_.resize(static_cast<std::size_t>(head[1]));
    if (!receive_all(socket_, reply.data_.data(), reply.data_.size())) {
        close();
        return reply;
    }
    reply.status = static_cast<Status>(head[0]);
    return reply;
}

void Connection::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
}

}  // namespace fmha
