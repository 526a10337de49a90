// What the conflict checks have to say.
#pragma once

#include <cstdarg>
#include <functional>
#include <string>

#include "findings/finding.hpp"
#include "order/clocks.hpp"

namespace ptxm {

struct Cluster;

using Place = std::function<std::string()>;

// The words of a message, or nothing while only the rule is asked for: a kernel that breaks a rule does so in every
// iteration, and is told once.
class Wording {
public:
    explicit Wording(bool wanted) : wanted_(wanted) {}
    [[gnu::format(printf, 2, 3)]] std::string operator()(const char* fmt, ...) const {
        if (!wanted_) return {};
        va_list args;
        va_start(args, fmt);
        std::string text = format_list(fmt, args);
        va_end(args);
        return text;
    }
    std::string agent(const Cluster& cluster, AgentId id) const;
    bool wanted() const { return wanted_; }
    std::string place(const Place& where) const { return wanted_ ? where() : std::string(); }

private:
    const bool wanted_;
};

}  // namespace ptxm
