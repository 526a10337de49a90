// The shapes of the sm_90a kernels: head_dim, FMHA_ROWS by which a shape is asked for (0: the head_dim's own), figures.
//
// The one place that has them. launch.h, which says what each figure is, makes a switch of the rows;
// harness/kernel_side/params.py reads them as text, so that a row is one line of FIELD = VALUE. The initializers with
// names are C++20's, which nvcc, gcc and clang take in C++17 as well.
#pragma once

// clang-format off
#define FMHA_SM90_SHAPES(SHAPE) \
    SHAPE(64, 0, .rows = 64, .keys = 128, .row_groups = 1, .column_groups = 1, .boxes_per_unit = 1, .slots = 6, .dense_slots = 5, .overlap = true, .dense_overlap = true, .registers = 208, .heads_registers = 208, .ctas_per_sm = 2) \
    SHAPE(128, 0, .rows = 128, .keys = 128, .row_groups = 2, .column_groups = 1, .boxes_per_unit = 2, .slots = 5, .dense_slots = 5, .overlap = true, .dense_overlap = true, .registers = 224, .heads_registers = 224, .ctas_per_sm = 1) \
    SHAPE(256, 0, .rows = 128, .keys = 64, .row_groups = 2, .column_groups = 1, .boxes_per_unit = 2, .slots = 9, .dense_slots = 9, .overlap = true, .dense_overlap = true, .registers = 224, .heads_registers = 224, .ctas_per_sm = 1) \
    SHAPE(512, 0, .rows = 64, .keys = 48, .row_groups = 1, .column_groups = 2, .boxes_per_unit = 4, .slots = 6, .dense_slots = 6, .overlap = false, .dense_overlap = false, .registers = 224, .heads_registers = 224, .ctas_per_sm = 1) \
    SHAPE(64, 64, .rows = 64, .keys = 64, .row_groups = 1, .column_groups = 1, .boxes_per_unit = 1, .slots = 8, .dense_slots = 8, .overlap = false, .dense_overlap = false, .registers = 168, .heads_registers = 168, .ctas_per_sm = 2) \
    SHAPE(64, 192, .rows = 192, .keys = 128, .row_groups = 3, .column_groups = 1, .boxes_per_unit = 1, .slots = 11, .dense_slots = 10, .overlap = true, .dense_overlap = true, .registers = 160, .heads_registers = 160, .ctas_per_sm = 1) \
    SHAPE(128, 192, .rows = 192, .keys = 80, .row_groups = 3, .column_groups = 1, .boxes_per_unit = 2, .slots = 8, .dense_slots = 8, .overlap = true, .dense_overlap = true, .registers = 160, .heads_registers = 152, .ctas_per_sm = 1) \
    SHAPE(128, 64, .rows = 64, .keys = 64, .row_groups = 1, .column_groups = 1, .boxes_per_unit = 2, .slots = 5, .dense_slots = 5, .overlap = false, .dense_overlap = true, .registers = 168, .heads_registers = 168, .ctas_per_sm = 2) \
    SHAPE(256, 64, .rows = 64, .keys = 64, .row_groups = 1, .column_groups = 1, .boxes_per_unit = 1, .slots = 9, .dense_slots = 9, .overlap = false, .dense_overlap = true, .registers = 208, .heads_registers = 216, .ctas_per_sm = 2) \
    SHAPE(256, 128, .rows = 128, .keys = 80, .row_groups = 2, .column_groups = 1, .boxes_per_unit = 2, .slots = 7, .dense_slots = 8, .overlap = true, .dense_overlap = true, .registers = 224, .heads_registers = 224, .ctas_per_sm = 1)
// clang-format on
