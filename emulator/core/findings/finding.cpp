#include "findings/finding.hpp"

#include <cstdio>

namespace ptxm {

std::string format_list(const char* fmt, va_list args) {
    char buffer[1024];
    std::vsnprintf(buffer, sizeof buffer, fmt, args);
    return buffer;
}

std::string format(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    std::string text = format_list(fmt, args);
    va_end(args);
    return text;
}

}  // namespace ptxm
