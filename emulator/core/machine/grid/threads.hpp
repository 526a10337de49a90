// Clusters side by side on the threads of the host, where their order cannot matter.
//
// Each thread has a machine of its own: all that it shares with the others are the bytes of global memory and the list
// of clusters that have not started. If afterwards one cluster turns out to have touched bytes that another wrote, or
// one could not go on by itself, nothing of this has happened: memory is as before and the grid runs on one thread.
#pragma once

#include "machine/machine.hpp"

namespace ptxm {

// Runs the grid's clusters on several threads of the host. False when there is nothing to gain, or when it has turned
// out that their order matters: then nothing has happened.
bool run_side_by_side(Machine& m);

}  // namespace ptxm
