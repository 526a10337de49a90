// Where the boxes of K and V of a batch entry lie whose keys are in pages, or packed. Plain C++17, as work.cuh.
#pragma once

#include <stdint.h>

#include "common/host_device.h"
#include "common/work.cuh"
#include "fmha_params.h"

namespace fmha {

// The last coordinates of a box, those of its first key: the row, and the page or what stands in its place.
struct BoxPlace {
    int32_t row;
    int32_t page;
};

// `seen` are the keys that some row of a CTA sees. The page of a box without one is not looked up: its entry of the
// table may hold anything, and the box reads as zero.
struct KeyBoxes {
    const FmhaParams& params;
    int32_t entry;
    KeyRange seen;

    // The page of the box at `key`, which is a multiple of its keys; -1, outside of every tensor, where nobody sees
    // one. `page_size` is that of the parameters, or what stands for it in a division.
    template <class Size>
    FMHA_HOST_DEVICE int32_t page_of(int32_t key, const Size& page_size) const {
        if (key + params.key_box <= seen.first || key >= seen.end) {
            return -1;
        }
        const int32_t pages = params.s_k / page_size;  // that an entry has at most
        return params.block_table[int64_t(entry) * pages + unsigned(key) / page_size];
    }

    FMHA_HOST_DEVICE int32_t page_of(int32_t key) const { return page_of(key, params.page_size); }

    FMHA_HOST_DEVICE int32_t row_of(int32_t key) const { return key & (params.page_size - 1); }

    template <class Size>
    FMHA_HOST_DEVICE BoxPlace place_of(int32_t key, const Size& page_size) const {
        if (in_pages(params)) {
            return {row_of(key), page_of(key, page_size)};
        }
        return packed_keys(params) ? BoxPlace{params.cu_seqlens_k[entry] + key, 0} : BoxPlace{key, entry};
    }
};

}  // namespace fmha
