// What a head_dim decides of the pair kernel: tile shapes, the TMEM column map, the shared-memory map, the barriers.
// The names are FmhaTraits', which SharedMap and the softmax know.
//
// Plain C++17: a host compiler reads it too.
#pragma once

#include <stdint.h>

#include "fmha_launch.h"
#include "sm100/descriptors.cuh"
#include "sm100/operands.cuh"

namespace fmha {

// `Rows` of a CTA: 64 or 128, at head_dim 512 64.
template <int HeadDim, int Rows>
struct PairTraits : Operands {
    static_assert((HeadDim == 256 && (Rows == 64 || Rows == 128)) || (HeadDim == 512 && Rows == 64));

    static constexpr FmhaLaunchShape kShape = fmha_sm100_pair_shape(HeadDim, Rows);
    static constexpr int kHeadDim = HeadDim;
    static constexpr bool kProven = false;
    static constexpr int kCtas = kShape.ctas;       // of a cluster, which works on one row tile
    static constexpr int kRows = kShape.rows;       // of a CTA
    static constexpr int kRowTile = kCtas * kRows;  // M of both products
    static constexpr int kCtaKeys = kShape.keys;    // of a tile of K, that a CTA loads: the box of the maps
    static constexpr int kKeys = kCtas * kCtaKeys;  // of a tile
    static constexpr int kSlots = kShape.stages;
    static constexpr int kBuffers = 2;  // of S, and of the exchange
    static constexpr bool kPInShared = true;

    static constexpr int kHeadChunks = kHeadDim / kChunkElements;

    // ---- Lanes. M = 256: a CTA has 128 of the rows, lane = row. M = 128: it has 64, row r in lanes r and r + 64,
    // which hold the first and the second half of an accumulator's columns, both from the same column of TMEM on. ----
    static constexpr int kSoftmaxThreads = 128;
    static constexpr int kThreadsPerRow = kSoftmaxThreads / kRows;
    static constexpr int kThreadKeys = kKeys / kThreadsPerRow;
    static constexpr int kThreadElements = kHeadDim / kThreadsPerRow;  // of O

    // O is one accumulator, or two where N would exceed the 256 of one instruction.
    static constexpr int kOutputN = 256;
    static constexpr int kOutputs = kHeadDim / kOutputN;
    static constexpr int kPartColumns = kOutputN / kThreadsPerRow;

    // ---- Parts, a slot of the ring each: of K, of the CTA's keys 128 columns of head_dim; of V, of one half of the
    // keys the CTA's 128 of the columns that an accumulator has. ----
    static constexpr int kCtaColumns = kOutputN / kCtas;
    static constexpr int kPartChunks = kCtaColumns / kChunkElements;
    static constexpr int kPartBytes = kCtaKeys * kCtaColumns * kElementBytes;
    static constexpr int kParts = kHeadDim / kCtaColumns;  // of a tile of K, and of one of V

    // The element of O in column `column` of O's columns, for share `share` of the lanes.
    FMHA_HOST_DEVICE static constexpr int output_element(int column, int share) {
        return column / kPartColumns * kOutputN + share * kPartColumns + column % kPartColumns;
    }

    // ---- TMEM, in columns of 32 bits, the same in both CTAs. ----
    static constexpr int kTmemColumns = 512;
    static constexpr int kScoreColumns = kThreadKeys;
    static constexpr int kOutputColumns = kThreadElements;
    static constexpr int kOutputChunk = 64;  // columns of O that are rescaled or stored at a time
    static constexpr int kTmemScore = 0;
    static constexpr int kTmemOutput = kTmemScore + kBuffers * kScoreColumns;
    static_assert(kTmemOutput + kOutputColumns <= kTmemColumns, "TMEM map exceeds the allocation");

    // ---- Shared memory, in bytes from the aligned base. ----
    static constexpr int kQueryBytes = kRows * kHeadDim * kElementBytes;
    static constexpr int kQueryPartBytes = kQueryBytes / kParts;  // the columns of a part of K
    static constexpr int kProbabilityBytes = kRows * kKeys * kElementBytes;
    static constexpr int kExchangeBytes = fmha_sm100_exchange_bytes(kRows, kPInShared);

    static constexpr int kSmemQuery = 0;
    static constexpr int kSmemKv = kSmemQuery + kQueryBytes;
    static constexpr int kSmemProbability = kSmemKv + kSlots * kPartBytes;
    static constexpr int kSmemExchange = kSmemProbability + kProbabilityBytes;
    static constexpr int kSmemBarriers = kSmemExchange + kExchangeBytes;

    // ---- mbarriers, 8 bytes each; an array is consecutive barriers. ----
    static constexpr int kQueryFull = 0;
    static constexpr int kQueryEmpty = kQueryFull + kParts;
    static constexpr int kKvFull = kQueryEmpty + kParts;
    static constexpr int kKvEmpty = kKvFull + kSlots;
    static constexpr int kScoreFull = kKvEmpty + kSlots;
    static constexpr int kProbabilityFull = kScoreFull + kBuffers;
    static constexpr int kOutputFull = kProbabilityFull + 1;
    static constexpr int kFirstOutputFull = kOutputFull + 1;
    static constexpr int kBarriers = kFirstOutputFull + 1;

    using Control = ControlWords<kSmemBarriers, kBarriers, kFmhaSm100PairControlBytes, kShape.shared_bytes>;
    static constexpr int kSmemTmemAddress = Control::kTmemAddress;
    static constexpr int kSmemEnd = Control::kEnd;
    static constexpr int kDynamicSharedBytes = Control::kDynamicSharedBytes;

    // ---- Operands, 128-byte swizzle: operands.cuh. ----
    static constexpr int kRowChunkBytes = kRows * kChunkRowBytes;     // of Q and P
    static constexpr int kKeyChunkBytes = kCtaKeys * kChunkRowBytes;  // of K and V, which a box brings
    static constexpr int kMnMajorLeadingBytes = kKeyChunkBytes;

    static constexpr uint32_t kScoreInstruction = instruction_descriptor(
        kRowTile, kKeys, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kK);
    static constexpr uint32_t kOutputInstruction = instruction_descriptor(
        kRowTile, kOutputN, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kMn);
};

}  // namespace fmha
