#include "process.hpp"

#include <cxxabi.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "arrays.hpp"

namespace fmha {

thread_local Status last_error = kSuccess;

namespace {

constexpr Address kPage = 4096;

std::string readable(const std::string& name) {
    int status = 0;
    char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    std::string out = status == 0 && text ? text : name;
    std::free(text);
    return out;
}

__attribute__((destructor)) void at_end() { Process::the().end(); }

}  // namespace

// Never destroyed: programs call CUDA from destructors of their own.
Process& Process::the() {
    static Process* const process = [] {
        pthread_atfork([] { the().mutex.lock(); }, [] { the().after_fork(false); }, [] { the().after_fork(true); });
        return new Process;
    }();
    return *process;
}

// A child has no device of its own once its parent has one, as with CUDA.
void Process::after_fork(bool child) {
    if (child && connection_.is_open()) {
        connection_.close();
        lost_in_fork_ = true;
        output_.clear();
    }
    if (child)
        new (&mutex) std::recursive_mutex;  // its owner, the parent's thread, is not here
    else
        mutex.unlock();
}

Status Process::ready() {
    if (lost_in_fork_) return kInitialization;
    if (!tried_) {
        tried_ = true;
        if (!connection_.open())
            std::fputs("fmha: no emulator answers this program; run it by: fmha emulate -- PROGRAM\n", stderr);
        Reply hello = ask(Request("hello").integer(static_cast<std::uint64_t>(getpid())));
        device.name = hello.text();
        device.major = static_cast<int>(hello.integer());
        device.minor = static_cast<int>(hello.integer());
        device.multiprocessors = static_cast<int>(hello.integer());
        device.memory = hello.integer();
        device.l2_bytes = static_cast<int>(hello.integer());
        device.bus_bits = static_cast<int>(hello.integer());
        device.clock_khz = static_cast<int>(hello.integer());
        device.memory_clock_khz = static_cast<int>(hello.integer());
    }
    return connection_.is_open() ? sticky_ : kInitialization;
}

Status Process::settle() {
    const Status standing = ready();
    chained_ = false;
    for (const auto& [error, text] : output_) std::fwrite(text.data(), 1, text.size(), error ? stderr : stdout);
    output_.clear();
    sticky_ = sticky_ ? sticky_ : pending_;
    return standing ? standing : sticky_;
}

Status Process::refuse(const std::string& what) {
    std::lock_guard lock(mutex);
    if (ready() != kInitialization) ask(Request("refused").text(what));
    return noted(kNotSupported);
}

void Process::end() {
    std::lock_guard lock(mutex);
    if (!connection_.is_open()) return;
    std::size_t bytes = 0;
    for (const auto& [error, text] : output_) bytes += error ? 0 : text.size();
    ask(Request("end").integer(bytes));
}

// Modules, kernels and variables

Function* Process::function(const void* handle) {
    if (auto it = stubs.find(handle); it != stubs.end()) return it->second;
    if (!functions.contains(handle)) return nullptr;
    return const_cast<Function*>(static_cast<const Function*>(handle));
}

Status Process::load(Module& module) {
    if (module.id) return kSuccess;
    Reply reply = ask(Request("module").bytes(module.image, module.size));
    if (!reply.status) module.id = reply.integer();
    return reply.status;
}

Status Process::resolve(Function& f) {
    if (f.id) return kSuccess;
    if (const Status status = load(*f.module)) return status;
    Reply reply = ask(Request("function").integer(f.module->id).text(f.name).text(readable(f.name)));
    if (reply.status) return reply.status;
    f.id = reply.integer();
    f.parameter_bytes = reply.integer();
    f.parameters.resize(reply.integer());
    for (Parameter& p : f.parameters) {
        p.offset = reply.integer();
        p.size = reply.integer();
    }
    return kSuccess;
}

Status Process::resolve(Variable& v) {
    if (v.address) return kSuccess;
    if (const Status status = load(*v.module)) return status;
    Reply reply = ask(Request("variable").integer(v.module->id).text(v.name));
    if (reply.status) return reply.status;
    v.address = reply.integer();
    v.size = reply.integer();
    if (!v.pointer) return kSuccess;
    if (!map_pages(v.address, v.size)) return kMemoryAllocation;
    char* const host = reinterpret_cast<char*>(v.address);
    Reply initial = ask(Request("read")
                            .integer(v.address)
                            .integer(v.size)
                            .integer(0)
                            .integer(v.size)
                            .integer(1)
                            .integer(1)
                            .integer(0)
                            .integer(0)
                            .integer(0));
    initial.integer();  // of work that other streams may be beside: there is none
    const auto bytes = initial.bytes();
    std::copy(bytes.begin(), bytes.end(), host);
    ask(Request("share").integer(v.address).integer(v.size));
    allocations[v.address] = {v.size, Kind::managed, host, {bytes.begin(), bytes.end()}};
    *v.pointer = host;
    return kSuccess;
}

// Memory

std::pair<const Address, Allocation>* Process::holder(const void* pointer) {
    const Address at = reinterpret_cast<Address>(pointer);
    if (auto it = allocations.upper_bound(at); it != allocations.begin()) {
        --it;
        if (at < it->first + it->second.size) return &*it;
    }
    for (auto& entry : allocations) {
        const Allocation& a = entry.second;
        const char* p = static_cast<const char*>(pointer);
        if (a.host && p >= a.host && p < a.host + a.size) return &entry;
    }
    return nullptr;
}

bool Process::find(const void* pointer, Place& out) {
    const Address at = reinterpret_cast<Address>(pointer);
    if (const auto* found = holder(pointer)) {
        const Allocation& a = found->second;
        const bool by_host = a.host && !is_device_address(pointer);
        const Address offset =
            by_host ? static_cast<Address>(static_cast<const char*>(pointer) - a.host) : at - found->first;
        out = {a.kind, found->first, found->first + offset, a.size, a.host ? a.host + offset : nullptr};
        return true;
    }
    if (!is_device_address(pointer)) return false;
    for (auto& [handle, v] : variables) {
        // A kernel may have given away the address of one that the program has not named yet.
        if (resolve(v) || v.pointer || at < v.address || at - v.address >= v.size) continue;
        out = {Kind::device, v.address, at, v.size, nullptr};
        return true;
    }
    return false;
}

// Kernels' addresses are the program's own: the pages are mapped where the emulator has the allocation.
bool Process::map_pages(Address address, std::size_t size) {
    for (Address page = address / kPage * kPage; page < address + size; page += kPage) {
        if (!pages_.insert(page).second) continue;
        void* const at = reinterpret_cast<void*>(page);
        void* const got = mmap(at, kPage, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
        if (got != at) return false;
    }
    return true;
}

Status Process::allocate(std::size_t size, Kind kind, Address& address, char* host) {
    address = 0;
    if (size == 0) return kSuccess;
    const bool shared = kind != Kind::device && kind != Kind::array;
    Reply reply = ask(Request("alloc").integer(size).integer(static_cast<std::uint64_t>(kind)));
    if (reply.status) return reply.status;
    address = reply.integer();
    Allocation made{size, kind, nullptr};
    if (shared) {
        if (!host && !map_pages(address, size)) return kMemoryAllocation;
        made.host = host ? host : reinterpret_cast<char*>(address);
        if (!host) std::memset(made.host, 0, size);
        made.known.assign(size, 0);
    }
    allocations.emplace(address, std::move(made));
    return kSuccess;
}

Status Process::release(Address address, bool in_stream) {
    auto it = allocations.find(address);
    if (it == allocations.end()) return kInvalidValue;
    allocations.erase(it);
    Request request("free");
    request.integer(address);
    if (!in_stream) return ask(std::move(request.integer(0).integer(0).integer(0))).status;
    return ask_in_order(*this, std::move(request)).status;
}

void Process::forget_all() {
    ask(Request("reset"));
    allocations.clear();
    forget_arrays();
    for (Module* m : modules) m->id = 0;
    for (const void* f : functions) const_cast<Function*>(static_cast<const Function*>(f))->id = 0;
    for (auto& [host, v] : variables) v.address = 0;
    sticky_ = pending_ = kSuccess;
}

void Process::send_shared(Request& request) {
    constexpr std::size_t kStep = 4096;
    std::vector<std::pair<Address, std::span<const char>>> changed;
    for (auto& [address, a] : allocations) {
        if (!a.host) continue;
        for (std::size_t at = 0; at < a.size; at += kStep) {
            const std::size_t size = std::min(kStep, a.size - at);
            if (std::memcmp(a.host + at, a.known.data() + at, size) == 0) continue;
            std::memcpy(a.known.data() + at, a.host + at, size);
            auto* last = changed.empty() ? nullptr : &changed.back();
            if (last && last->first + last->second.size() == address + at && at)
                last->second = {last->second.data(), last->second.size() + size};
            else
                changed.push_back({address + at, {a.known.data() + at, size}});
        }
    }
    request.integer(changed.size());
    for (const auto& [address, bytes] : changed) request.integer(address).bytes(bytes.data(), bytes.size());
}

void Process::receive_shared(Reply& reply) {
    for (std::uint64_t n = reply.integer(); n; --n) {
        const Address address = reply.integer();
        const auto bytes = reply.bytes();
        auto* found = holder(reinterpret_cast<const void*>(address));
        if (!found || !found->second.host) continue;
        const std::size_t at = address - found->first;
        std::copy(bytes.begin(), bytes.end(), found->second.host + at);
        std::copy(bytes.begin(), bytes.end(), found->second.known.begin() + static_cast<std::ptrdiff_t>(at));
    }
}

}  // namespace fmha
