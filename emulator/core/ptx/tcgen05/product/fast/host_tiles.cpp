#include "ptx/tcgen05/product/fast/host_tiles.hpp"

#include <atomic>

#if defined(__x86_64__) && defined(__linux__) && __has_include(<amxbf16intrin.h>)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PTXM_ASK_FOR_TILES
#endif

namespace ptxm {
namespace {

// The operating system gives a process the state of the tiles when it asks for it (arch/x86/xstate.rst of Linux).
bool ask() {
#ifdef PTXM_ASK_FOR_TILES
    constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

std::atomic<bool> allowed = true;

}  // namespace

bool host_has_tiles() {
    static const bool has = ask();
    return has;
}

void allow_host_tiles(bool yes) { allowed.store(yes, std::memory_order_relaxed); }
bool use_host_tiles() { return allowed.load(std::memory_order_relaxed) && host_has_tiles(); }

}  // namespace ptxm
