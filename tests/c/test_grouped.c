/* grouped_quantize(_sizes), grouped_gemm(_workspace) and their supports queries. */
#include "check.h"

#define TOKENS 40
#define COLS 32
#define GROUPS 3

static float x[TOKENS * COLS], w[GROUPS * 8 * COLS];
static const int64_t offsets[GROUPS + 1] = {2, 19, 19, 40};
static uint8_t b_codes[GROUPS][8 * COLS / 2], b_scales[GROUPS][8 * COLS / 16];
static float b_amax[GROUPS];

static nvfp4_grouped_quantize_desc grouped_desc(void) {
    nvfp4_grouped_quantize_desc d = {sizeof d, NULL, GROUPS, offsets, 0, 0};
    return d;
}

static nvfp4_grouped_gemm_desc product_desc(uint32_t ragged) {
    nvfp4_grouped_gemm_desc d;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.ragged = ragged;
    d.groups = GROUPS;
    d.offsets = offsets;
    if (ragged == NVFP4_RAGGED_M) {
        d.b_codes_stride = sizeof b_codes[0];
        d.b_scales_stride = sizeof b_scales[0];
        d.b_amax_stride = 1;
    }
    return d;
}

/* G weights [8, COLS], one after the other; the view is of the first. */
static nvfp4_quantized weights(nvfp4_context *ctx) {
    nvfp4_quantized q[GROUPS];
    int g;
    for (g = 0; g < GROUPS; g++) {
        nvfp4_matrix m = matrix_of(w + g * 8 * COLS, NVFP4_F32, 8, COLS);
        memset(&q[g], 0, sizeof q[g]);
        q[g].struct_size = sizeof q[g];
        q[g].codes = b_codes[g];
        q[g].codes_bytes = sizeof b_codes[g];
        q[g].scales = b_scales[g];
        q[g].scales_bytes = sizeof b_scales[g];
        q[g].amax = &b_amax[g];
        q[g].amax_count = 1;
        WORKS(nvfp4_quantize(ctx, NULL, &m, &q[g], NULL, NULL));
    }
    q[0].codes_bytes = sizeof b_codes;
    q[0].scales_bytes = sizeof b_scales;
    q[0].amax_count = GROUPS;
    return q[0];
}

static void quantize(nvfp4_context *ctx) {
    nvfp4_grouped_quantize_desc d = grouped_desc(), bad = grouped_desc();
    nvfp4_matrix m = matrix_of(x, NVFP4_F32, TOKENS, COLS), part = matrix_of(x + 2 * COLS, NVFP4_F32, 17, COLS);
    static const int64_t descending[GROUPS + 1] = {0, 20, 19, 40}, beyond[GROUPS + 1] = {0, 20, 30, 41};
    nvfp4_quantized row, column;
    uint8_t codes[2][17 * COLS / 2 + COLS];

    views_reset();
    memset(&out, 0xFF, sizeof out);
    WORKS(nvfp4_grouped_quantize_sizes(ctx, &d, TOKENS, COLS, NVFP4_F32, 3, &out.sizes));
    CHECK(out.sizes.rowwise_amax_count == GROUPS && out.sizes.columnwise_codes_bytes == COLS * 80 / 2, "%lu, %lu",
          (unsigned long)out.sizes.rowwise_amax_count, (unsigned long)out.sizes.columnwise_codes_bytes);
    WORKS(nvfp4_supports_grouped_quantize(ctx, &d, TOKENS, COLS, NVFP4_BF16, 3));
    WORKS(nvfp4_grouped_quantize(ctx, &d, &m, &row_view, &column_view, NULL));
    CHECK(row_view.groups == GROUPS && row_view.rows == TOKENS && column_view.rows == COLS && column_view.cols == 80,
          "%ld, %ld, %ld", (long)row_view.groups, (long)row_view.rows, (long)column_view.cols);
    CHECK(out.codes[0][0] == 0xFF && out.codes[0][2 * COLS / 2 - 1] == 0xFF, "rows of no group");
    row = row_view, column = column_view;
    CHECK(out.amax[0][1] == 0 && out.amax[1][1] == 0, "amax of a group without tokens");

    /* The first group alone. */
    row.codes = codes[0], column.codes = codes[1];
    row.codes_bytes = column.codes_bytes = sizeof codes[0];
    row.scales = out.bytes, column.scales = out.bytes + 1000;
    row.scales_bytes = column.scales_bytes = 1000;
    row.amax = out.matrix, column.amax = out.matrix + 1;
    row.amax_count = column.amax_count = 1;
    WORKS(nvfp4_quantize(ctx, NULL, &part, &row, &column, NULL));
    CHECK(memcmp(codes[0], out.codes[0] + 2 * COLS / 2, 17 * COLS / 2) == 0, "codes of group 0");
    CHECK(out.amax[0][0] == out.matrix[0] && out.amax[1][0] == out.matrix[1], "amax of group 0");
    {
        int r, unequal = 0;
        for (r = 0; r < COLS; r++) unequal += memcmp(codes[1] + r * 9, out.codes[1] + r * 40, 9) != 0;
        CHECK(unequal == 0, "%d rows of the columnwise copy of group 0", unequal);
    }

    FAILS(NVFP4_ERR_NULL_POINTER, "ctx", nvfp4_grouped_quantize(NULL, &d, &m, &row_view, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "desc", nvfp4_grouped_quantize(ctx, NULL, &m, &row_view, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "x", nvfp4_grouped_quantize(ctx, &d, NULL, &row_view, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "rowwise", nvfp4_grouped_quantize(ctx, &d, &m, NULL, NULL, NULL));
    bad.offsets = NULL;
    FAILS(NVFP4_ERR_NULL_POINTER, "offsets", nvfp4_grouped_quantize(ctx, &bad, &m, &row_view, NULL, NULL));
    bad.offsets = descending;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "offsets[2] is 19", nvfp4_grouped_quantize(ctx, &bad, &m, &row_view, NULL, NULL));
    bad.offsets = beyond;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "offsets[3] is 41", nvfp4_grouped_quantize(ctx, &bad, &m, &row_view, NULL, NULL));
    bad = grouped_desc();
    bad.groups = -1;
    FAILS(NVFP4_ERR_SHAPE, "-1", nvfp4_grouped_quantize(ctx, &bad, &m, &row_view, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "out", nvfp4_grouped_quantize_sizes(ctx, &d, TOKENS, COLS, NVFP4_F32, 3, NULL));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "copies is 4",
          nvfp4_grouped_quantize_sizes(ctx, &d, TOKENS, COLS, NVFP4_F32, 4, &out.sizes));
    FAILS(NVFP4_ERR_SHAPE, "-7", nvfp4_supports_grouped_quantize(ctx, &d, -7, COLS, NVFP4_F32, 1));
}

static void products(nvfp4_context *ctx) {
    nvfp4_grouped_quantize_desc q = grouped_desc();
    nvfp4_grouped_gemm_desc m = product_desc(NVFP4_RAGGED_M), k = product_desc(NVFP4_RAGGED_K);
    nvfp4_matrix xm = matrix_of(x, NVFP4_F32, TOKENS, COLS), d = matrix_of(out.matrix, NVFP4_F32, TOKENS, 8);
    nvfp4_matrix wgrad = matrix_of(out.matrix, NVFP4_F32, COLS, COLS), one, plain;
    nvfp4_quantized a = row_view, column = column_view, b = weights(ctx), alone, own;
    static uint8_t codes[4096], scales[4096], codes2[4096], scales2[4096];
    static float amax[8], amax2[8], want[TOKENS * 8];
    size_t i;

    a.codes = codes, a.scales = scales, a.amax = amax;
    column.codes = codes2, column.scales = scales2, column.amax = amax2;
    WORKS(nvfp4_grouped_quantize(ctx, &q, &xm, &a, &column, NULL));
    memset(&out, 0xFF, sizeof out);
    WORKS(nvfp4_grouped_gemm_workspace(ctx, &m, &a, &b, &d, &out.size));
    CHECK(out.size == 0, "%lu", (unsigned long)out.size);
    WORKS(nvfp4_supports_grouped_gemm(ctx, &m, TOKENS, 8, COLS, &a, &b, NVFP4_F32));
    WORKS(nvfp4_supports_grouped_gemm(ctx, &k, COLS, COLS, TOKENS, &column, &column, NVFP4_F32));
    WORKS(nvfp4_grouped_gemm(ctx, &m, &a, &b, NULL, &d, NULL));
    /* The last group alone: rows 19 to 40 with the third weight. */
    alone = a, own = b;
    alone.groups = 0, alone.rows = 21, alone.amax = amax + 2, alone.amax_count = 1;
    alone.codes = codes + 19 * COLS / 2, alone.scales = scales + 19 * COLS / 16;
    alone.codes_bytes = alone.scales_bytes = 1000;
    own.codes = b_codes[2], own.scales = b_scales[2], own.amax = &b_amax[2];
    own.codes_bytes = sizeof b_codes[2], own.scales_bytes = sizeof b_scales[2], own.amax_count = 1;
    one = matrix_of(want, NVFP4_F32, 21, 8);
    WORKS(nvfp4_gemm(ctx, NULL, &alone, &own, NULL, &one, NULL));
    CHECK(memcmp(want, out.matrix + 19 * 8, 21 * 8 * sizeof(float)) == 0, "rows of group 2");
    for (i = 0; i < 2 * 8 * sizeof(float) && ((uint8_t *)out.matrix)[i] == 0xFF; i++) {}
    CHECK(i == 2 * 8 * sizeof(float), "row of no group, byte %lu", (unsigned long)i);

    memset(&out, 0xFF, sizeof out);
    WORKS(nvfp4_grouped_gemm(ctx, &k, &column, &column, NULL, &wgrad, NULL));
    for (i = 0; i < COLS * COLS && out.matrix[COLS * COLS + i] == 0; i++) {}
    CHECK(i == COLS * COLS, "the product of a group without tokens: element %lu", (unsigned long)i);
    CHECK(out.matrix[0] > 0 && out.matrix[2 * COLS * COLS] > 0, "diagonals %g and %g", (double)out.matrix[0],
          (double)out.matrix[2 * COLS * COLS]);

    FAILS(NVFP4_ERR_MISMATCH, "groups is 3", nvfp4_gemm(ctx, NULL, &a, &own, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "ctx", nvfp4_grouped_gemm(NULL, &m, &a, &b, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "desc", nvfp4_grouped_gemm(ctx, NULL, &a, &b, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "a", nvfp4_grouped_gemm(ctx, &m, NULL, &b, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "b", nvfp4_grouped_gemm(ctx, &m, &a, NULL, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "d", nvfp4_grouped_gemm(ctx, &m, &a, &b, NULL, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "bytes", nvfp4_grouped_gemm_workspace(ctx, &m, &a, &b, &d, NULL));
    plain = matrix_of(out.matrix, NVFP4_F32, TOKENS, 9);
    FAILS(NVFP4_ERR_SHAPE, "[40, 9]", nvfp4_grouped_gemm(ctx, &m, &a, &b, NULL, &plain, NULL));
    m.ragged = 7;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "ragged is 7", nvfp4_grouped_gemm(ctx, &m, &a, &b, NULL, &d, NULL));
}

void test_grouped(nvfp4_context *ctx) {
    fill_values(x, TOKENS * COLS, 3);
    fill_values(w, GROUPS * 8 * COLS, 4);
    quantize(ctx);
    products(ctx);
}
