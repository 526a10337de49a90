// vprintf and __assertfail: what the CUDA C++ runtime calls of the driver.
#include <algorithm>
#include <bit>

#include "isa/handlers.hpp"
#include "machine/machine.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr i64 kMostColumns = 1000;  // of a conversion: its width, its precision

u8* generic_bytes(Warp& w, u32 lane, u64 address, u32 size) {
    Addresses a{};
    a.at[lane] = address;
    u8* pointers[kLanes] = {};
    resolve_lanes(w, Space::generic, a, 1u << lane, size, false, pointers);
    return pointers[lane];
}

std::string read_text(Warp& w, u32 lane, u64 address) {
    std::string text;
    while (text.size() < kMaxText) {
        const char c = static_cast<char>(*generic_bytes(w, lane, address + text.size(), 1));
        if (c == 0) break;
        text += c;
    }
    return text;
}

// The packed arguments of vprintf: each at its natural alignment, 4 or 8 bytes.
class Arguments {
public:
    Arguments(Warp& w, u32 lane, u64 address) : w_(w), lane_(lane), at_(address) {}
    template <class T>
    T take() {
        at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
        T value;
        std::memcpy(&value, generic_bytes(w_, lane_, at_, sizeof(T)), sizeof(T));
        at_ += sizeof(T);
        return value;
    }
    std::string text() { return read_text(w_, lane_, take<u64>()); }

private:
    Warp& w_;
    u32 lane_;
    u64 at_;
};

// A width or a precision as vsnprintf gets it: what it would print beyond a line is not kept, and takes its time.
std::string columns(i64 n) { return std::to_string(std::clamp(n, -kMostColumns, kMostColumns)); }

// `spec` is one conversion with its length modifiers removed and any `*` filled in: "%-8.3".
std::string convert(Arguments& arguments, const std::string& spec, bool wide, char kind) {
    switch (kind) {
        case 'd':
        case 'i': {
            const long long v = wide ? arguments.take<i64>() : arguments.take<i32>();
            return format((spec + "lld").c_str(), v);
        }
        case 'u':
        case 'o':
        case 'x':
        case 'X': {
            const unsigned long long v = wide ? arguments.take<u64>() : arguments.take<u32>();
            return format((spec + "ll" + kind).c_str(), v);
        }
        case 'c': return format((spec + "c").c_str(), arguments.take<i32>());
        case 'p': return format("0x%llx", static_cast<unsigned long long>(arguments.take<u64>()));
        case 's': return format((spec + "s").c_str(), arguments.text().c_str());
        case '%': return "%";
        default: return format((spec + kind).c_str(), arguments.take<double>());
    }
}

std::string expand(Warp& w, u32 lane, const std::string& text, u64 list) {
    Arguments arguments(w, lane, list);
    std::string out;
    for (std::size_t n = 0; n < text.size(); ++n) {
        if (text[n] != '%') {
            out += text[n];
            continue;
        }
        std::string spec = "%";
        bool wide = false;
        for (++n; n < text.size() && std::strchr("-+ #0123456789.*hlLjzt", text[n]); ++n) {
            if (text[n] == '*')
                spec += columns(arguments.take<i32>());
            else if (std::strchr("123456789", text[n])) {
                i64 value = text[n] - '0';
                for (; n + 1 < text.size() && std::strchr("0123456789", text[n + 1]); ++n)
                    value = std::min(value * 10 + (text[n + 1] - '0'), 10 * kMostColumns);
                spec += columns(value);
            } else if (std::strchr("ljzt", text[n]))
                wide = true;
            else if (!std::strchr("hL", text[n]))
                spec += text[n];
        }
        const char kind = n < text.size() ? text[n] : '\0';
        if (!kind || !std::strchr("diuoxXcpsfFeEgGaA%", kind))
            throw Fault("printf-format", "printf of \"" + text + "\": a conversion is not known");
        out += convert(arguments, spec, wide, kind);
    }
    return out;
}

// One finding a place; what is printed there again is a line of its details.
void report_text(Warp& w, std::string text) {
    Machine& m = machine_of(w);
    m.findings->print({false, text});
    if (Finding* f = m.findings->find("printf", w.pc(), -1)) {
        f->count += 1;
        f->add_line(std::move(text));
        return;
    }
    m.report(&w, "printf", std::move(text), w.pc(), -1, Severity::warning);
}

// Operands: result, format, argument list. vprintf returns the number of arguments; no caller is known to look at it.
Flow print(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        report_text(w, expand(w, l, read_text(w, l, w.reg<u64>(o[1])[l]), w.reg<u64>(o[2])[l]));
        if (o[0] >= 0) w.reg<u32>(o[0])[l] = 0;
    }
    return Flow::next;
}

std::string coordinates(u64 linear, const std::array<u32, 3>& dims) {
    return format("[%llu,%llu,%llu]", static_cast<unsigned long long>(linear % dims[0]),
                  static_cast<unsigned long long>(linear / dims[0] % dims[1]),
                  static_cast<unsigned long long>(linear / dims[0] / dims[1]));
}

// Operands: message, file, line, function.
Flow assert_fail(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 l = static_cast<u32>(std::countr_zero(mask));
    const auto text = [&](u32 k) { return read_text(w, l, w.reg<u64>(o[k])[l]); };
    Machine& m = machine_of(w);
    for (u32 lane = l; lane < kLanes; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const std::string block = coordinates(w.cta->linear, m.launch->grid);
        const std::string thread = coordinates(w.index * kLanes + lane, m.launch->block);
        m.findings->print(
            {true, format("%s:%u: %s: block: %s, thread: %s Assertion `%s` failed.\n", text(1).c_str(),
                          w.reg<u32>(o[2])[lane], text(3).c_str(), block.c_str(), thread.c_str(), text(0).c_str())});
    }
    throw Fault("assert", format("%s:%u: %s: assertion `%s` failed (lane %u)", text(1).c_str(), w.reg<u32>(o[2])[l],
                                 text(3).c_str(), text(0).c_str(), l));
}

}  // namespace

// clang-format off
#define PTXM_OPS_system(X)    \
    X(print, control, system) \
    X(assert_fail, control, system)
// clang-format on

Handler bind_system(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::print: return print;
        case Op::assert_fail: return assert_fail;
        default: return nullptr;
    }
}

}  // namespace ptxm
