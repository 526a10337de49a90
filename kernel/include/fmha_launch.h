// How every forward kernel is launched: plain constants, so that kernel, host and tests read one source.
//
//   grid  (ceil(t / kFmhaRowsPerCta), 1, batch)
//   block (kFmhaThreadsPerCta, 1, 1)
//   dynamic shared memory: fmha_dynamic_shared_bytes(head_dim)
#pragma once

#include <stdint.h>

constexpr int32_t kFmhaThreadsPerCta = 192;  // warps 0-3 softmax and epilogue, 4 MMA, 5 TMA
constexpr int32_t kFmhaRowsPerCta = 128;     // query rows of one CTA
constexpr int32_t kFmhaKeysPerTile = 128;    // keys of one step over the KV sequence
constexpr int32_t kFmhaKvStages = 2;         // tiles in flight in each of the K and V rings

constexpr int32_t kFmhaSharedAlignment = 1024;    // the 128-byte swizzle pattern repeats every 1024 bytes
constexpr int32_t kFmhaSharedControlBytes = 128;  // mbarriers and the TMEM address word, after the tiles

// Q, the K ring and the V ring in bf16, the control words, and the room to align the base by hand: a launch does not
// guarantee the alignment that the swizzle needs.
constexpr int32_t fmha_dynamic_shared_bytes(int32_t head_dim) {
    return kFmhaSharedAlignment + (kFmhaRowsPerCta + 2 * kFmhaKvStages * kFmhaKeysPerTile) * head_dim * 2 +
           kFmhaSharedControlBytes;
}
