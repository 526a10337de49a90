// A sparse A: the positions in K of the elements that a row stores (PTX ISA 9.7.14.6.1). Four bits of metadata describe
// a chunk of K.
#pragma once

#include "ptx/mma/matrix.hpp"

namespace ptxm {

enum class Sparsity : u8 { one_of_two, two_of_four, pairs_of_eight };  // elements of a chunk that are stored

inline u32 chunk_elements(Sparsity s) { return 2u << static_cast<u32>(s); }

inline Sparsity sparsity_of(ElementType a) {
    if (a == ElementType::tf32) return Sparsity::one_of_two;
    return container_bits(a) == 4 ? Sparsity::pairs_of_eight : Sparsity::two_of_four;
}

// Writes the positions of the elements that chunk `chunk` stores; where those of the next chunk go.
inline u16* chunk_positions(Sparsity s, u32 chunk, u32 code, u16* k) {
    const u32 first = chunk * chunk_elements(s), low = code & 3, high = code >> 2;
    switch (s) {
        case Sparsity::one_of_two: *k++ = static_cast<u16>(first + high / 2); break;
        case Sparsity::two_of_four:
            *k++ = static_cast<u16>(first + low);
            *k++ = static_cast<u16>(first + high);
            break;
        case Sparsity::pairs_of_eight:
            for (u32 pair : {low, high})
                for (u32 e = 0; e < 2; ++e) *k++ = static_cast<u16>(first + 2 * pair + e);
    }
    return k;
}

// The same for a row of mma.sp or of a warp's part of wgmma.sp, from the metadata of the warp's lanes. Groups of four
// lanes hold that of two rows, eight apart; the ISA draws how (9.7.14.6.2), in text it is CuTe's ELayout. With four
// chunks a row, lane `selector` of the group has both rows; with eight, two lanes have them, for half of K each, or, of
// elements of up to eight bits (`row_a_lane`), one row each; with sixteen, a lane has half of one row.
inline void sparse_positions(Sparsity s, u32 chunks, u32 selector, const u32* metadata, u32 row, u16* k,
                             bool row_a_lane) {
    const u32 group = 4 * (row % 8), upper = row / 8;
    const auto code_of = [&](u32 j) {
        if (chunks == 16) return metadata[group + 2 * (j / 8) + upper] >> 4 * (j % 8);
        if (chunks == 8 && row_a_lane) return metadata[group + 2 * selector + upper] >> 4 * j;
        return metadata[group + selector * chunks / 4 + j / 4] >> (16 * upper + 4 * (j % 4));
    };
    for (u32 j = 0; j < chunks; ++j) {
        const u32 code = code_of(j);
        k = chunk_positions(s, j, code & 0xF, k);
    }
}

}  // namespace ptxm
