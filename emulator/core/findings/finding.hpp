// Findings: what the machine has to say about a launch, deduplicated by rule and place.
#pragma once

#include <cstdarg>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "isa/program.hpp"

namespace ptxm {

enum class Severity : u8 { warning, error };

// A line about a further instruction: none where it has no text, which the words for the instruction's place follow.
struct Note {
    i32 pc = -1;
    std::string text;
};

struct Finding {
    std::string rule;
    Severity severity = Severity::error;
    std::string message;
    i32 pc = -1;           // the access or instruction at fault, -1 when there is none
    i32 other_pc = -1;     // the earlier conflicting access
    u32 other_launch = 0;  // the number of the launch that `other_pc` is of; 0: this one
    u32 cta = 0;           // linear index in the grid
    i32 warp = -1;
    u64 count = 1;
    std::vector<std::pair<i32, std::string>> details;  // (pc, text): a line each, e.g. the waiting warps of a deadlock

    // The same at the same place again. What printf prints is kept, up to a limit.
    void repeat(Finding again);
    void add_line(std::string text);
    void add_note(Note note);

private:
    static constexpr std::size_t kMaxLines = 1000;
};

// What a kernel has written as a program's output: by printf, or about a failed assertion.
struct Printed {
    bool error = false;  // to standard error
    std::string text;
};

// What a check of the order of accesses has to say.
struct Verdict {
    const char* rule;
    std::string message;
    Note note{};
};

class Findings {
public:
    Findings();
    Findings(Findings&&) noexcept;
    Findings& operator=(Findings&&) noexcept;
    ~Findings();
    void print(Printed p);
    const std::vector<Printed>& printed() const { return printed_; }
    // True when this rule was already reported at this place; counts the repetition.
    bool seen(const std::string& rule, i32 pc, i32 other_pc);
    void add(Finding f);
    Finding* find(const std::string& rule, i32 pc, i32 other_pc);
    // What a later cluster has found.
    void absorb(Findings later);
    bool empty() const { return list_.empty() && printed_.empty(); }
    void clear();
    const std::vector<Finding>& list() const { return list_; }
    // How often something was found, repetitions included.
    u64 told() const { return told_; }

private:
    static constexpr std::size_t kLimit = 200;
    static constexpr std::size_t kMostPrinted = 64 << 20;
    std::vector<Finding> list_;
    std::vector<Printed> printed_;
    std::size_t printed_bytes_ = 0;
    u64 told_ = 0;
    std::map<std::tuple<std::string, i32, i32>, std::size_t> index_;
};

// A fault ends the launch: nothing that would run after it could be trusted.
struct Fault : std::runtime_error {
    Fault(std::string rule_name, const std::string& message)
        : std::runtime_error(message), rule(std::move(rule_name)) {}
    std::string rule;
};

[[gnu::format(printf, 1, 2)]] std::string format(const char* fmt, ...);
std::string format_list(const char* fmt, va_list args);

// What is to be said of a load if its value is used.
struct Doubt {
    const char* rule = nullptr;
    std::string message;
    i32 pc = -1, other = -1;
};

}  // namespace ptxm
