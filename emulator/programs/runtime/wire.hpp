// What is asked of the emulator, which is another process: a name and fields there, a status and fields back, over the
// Unix socket that FMHA_PROGRAM names. A field is an integer of 8 bytes, or a length and bytes.
// emulator/programs/wire.py is the other end.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi.hpp"

namespace fmha {

class Request {
public:
    explicit Request(const char* name);
    Request& integer(std::uint64_t value);
    Request& dims(const Dim3& d) { return integer(d.x).integer(d.y).integer(d.z); }
    Request& bytes(const void* data, std::size_t size);
    Request& text(std::string_view s) { return bytes(s.data(), s.size()); }

private:
    friend class Connection;
    std::vector<char> data_;
};

class Reply {
public:
    Status status = kSuccess;
    std::uint64_t integer();
    std::span<const char> bytes();
    std::string text() {
        const auto b = bytes();
        return {b.data(), b.size()};
    }

private:
    friend class Connection;
    std::vector<char> data_;
    std::size_t at_ = 0;
};

class Connection {
public:
    // False where no emulator listens, or it has gone.
    bool open();
    bool is_open() const { return socket_ >= 0; }
    Reply ask(Request request);
    void close();

private:
    int socket_ = -1;
};

}  // namespace fmha
