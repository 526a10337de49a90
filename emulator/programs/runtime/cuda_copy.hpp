// Copies and fills of boxes of bytes, between the program's memory and the device's.
#pragma once

#include "process.hpp"

namespace fmha {

// Rows of a box: `pitch` bytes apart, planes `slice` bytes apart.
struct Side {
    void* base;
    std::size_t pitch, slice;
};

struct Box {
    std::size_t width, height = 1, depth = 1;
};

enum CopyKind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kByAddress };

// In the stream that the call works in.
Status copy(Process& p, const Side& to, const Side& from, const Box& box, int kind);
// `value` of 1, 2 or 4 bytes, over and over; the box's width is in bytes.
Status fill(Process& p, const Side& to, const Box& box, unsigned value, unsigned width = 1);

}  // namespace fmha
