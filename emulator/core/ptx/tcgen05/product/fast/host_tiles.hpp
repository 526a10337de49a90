// The matrix instructions of the host (AMX, Intel SDM volume 1, chapter 18), which multiply bf16.
#pragma once

namespace ptxm {

// Whether this process may use them: the processor, the compiler and the operating system know them.
bool host_has_tiles();

// Not used where `allowed` is false. For tests: results do not depend on it.
void allow_host_tiles(bool allowed);
bool use_host_tiles();

}  // namespace ptxm
