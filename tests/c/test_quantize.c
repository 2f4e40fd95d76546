/* quantize_sizes, amax, quantize, requantize: calls, shapes, pointers and buffers. Options: test_quantize_options.c */
#include "check.h"

enum { ROWS = 33, COLS = 48 };
static float x[ROWS * COLS];
static union {
    uint64_t align;
    unsigned char bytes[4096 * 8];
} workspace;

static nvfp4_quantize_desc with_workspace(void) {
    nvfp4_quantize_desc desc = quantize_desc();
    desc.workspace = workspace.bytes;
    desc.workspace_bytes = sizeof workspace;
    return desc;
}

static void good(nvfp4_context *ctx) {
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, ROWS, COLS);
    nvfp4_quantize_desc desc = with_workspace();
    nvfp4_sizes sizes;
    nvfp4_stats stats;
    float row_amax = -1, column_amax = -1, largest = 0;
    uint8_t codes[ROWS * COLS / 2];
    size_t i;

    WORKS(nvfp4_quantize_sizes(ctx, NULL, ROWS, COLS, NVFP4_F32, 3, &sizes));
    CHECK(sizes.rowwise_codes_bytes == ROWS * 24, "%lu", (unsigned long)sizes.rowwise_codes_bytes);
    CHECK(sizes.rowwise_scales_bytes == ROWS * 3, "%lu", (unsigned long)sizes.rowwise_scales_bytes);
    CHECK(sizes.columnwise_codes_bytes == COLS * 17, "%lu", (unsigned long)sizes.columnwise_codes_bytes);
    CHECK(sizes.columnwise_scales_bytes == COLS * 3, "%lu", (unsigned long)sizes.columnwise_scales_bytes);
    CHECK(sizes.rowwise_amax_count == 1 && sizes.columnwise_amax_count == 1, "amax counts");
    WORKS(nvfp4_quantize_sizes(ctx, &desc, ROWS, COLS, NVFP4_F32, 1, &sizes));
    CHECK(sizes.columnwise_codes_bytes == 0, "room for a copy that was not asked for");

    for (i = 0; i < ROWS * COLS; i++) largest = x[i] > largest ? x[i] : -x[i] > largest ? -x[i] : largest;
    WORKS(nvfp4_amax(ctx, NULL, &m, &row_amax, &column_amax, NULL));
    CHECK(row_amax == largest && column_amax == largest, "%g and %g, not %g", row_amax, column_amax, largest);
    WORKS(nvfp4_amax(ctx, &desc, &m, &row_amax, NULL, NULL));
    WORKS(nvfp4_amax(ctx, &desc, &m, NULL, &column_amax, NULL));

    memset(&stats, 0xFF, sizeof stats);
    desc.stats = &stats;
    views_reset();
    WORKS(nvfp4_quantize(ctx, &desc, &m, &row_view, &column_view, NULL));
    CHECK(row_view.rows == ROWS && row_view.cols == COLS && row_view.transposed == 0, "rowwise view");
    CHECK(column_view.rows == COLS && column_view.cols == ROWS && column_view.transposed == 1, "columnwise view");
    CHECK(row_view.amax[0] == largest, "%g", row_view.amax[0]);
    CHECK(stats.nonfinite == 0 && stats.sum_squares > 0 && stats.sum_squared_error > 0, "stats");
    CHECK(stats.sum_squared_error < 0.02 * stats.sum_squares, "error %g of %g", stats.sum_squared_error,
          stats.sum_squares);
    memcpy(codes, out.codes[0], sizeof codes);

    desc.stats = NULL;
    views_reset();
    memset(&out, 0xFF, sizeof out);
    WORKS(nvfp4_quantize(ctx, &desc, &m, &row_view, NULL, NULL));
    CHECK(memcmp(codes, out.codes[0], sizeof codes) == 0, "one copy differs from the same of two");
    CHECK(out.codes[0][sizeof codes] == 0xFF, "wrote past the codes");
    views_reset();
    WORKS(nvfp4_quantize(ctx, &desc, &m, NULL, &column_view, NULL));
    views_reset();
    if (sizes.workspace_bytes == 0) WORKS(nvfp4_quantize(ctx, NULL, &m, &row_view, NULL, NULL));

    /* Again from the quantized values: a rowwise copy of a rowwise copy. */
    {
        nvfp4_quantized source = row_view;
        static uint8_t source_codes[4096], source_scales[4096];
        static float source_amax[1];
        memcpy(source_codes, out.codes[0], sizeof source_codes);
        memcpy(source_scales, out.scales[0], sizeof source_scales);
        source_amax[0] = out.amax[0][0];
        source.codes = source_codes;
        source.scales = source_scales;
        source.amax = source_amax;
        views_reset();
        WORKS(nvfp4_requantize(ctx, &desc, &source, &row_view, &column_view, NULL));
        CHECK(row_view.rows == ROWS && column_view.rows == COLS, "requantized views");
        views_reset();
        FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_requantize(NULL, &desc, &source, &row_view, NULL, NULL));
        FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_requantize(ctx, &desc, NULL, &row_view, NULL, NULL));
        FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_requantize(ctx, &desc, &source, NULL, NULL, NULL));
        source.format = 9;
        FAILS(NVFP4_ERR_INVALID_ARGUMENT, "9", nvfp4_requantize(ctx, &desc, &source, &row_view, NULL, NULL));
        source.format = NVFP4_FORMAT_NVFP4;
        source.codes_bytes = 7;
        FAILS(NVFP4_ERR_BUFFER_SIZE, "7", nvfp4_requantize(ctx, &desc, &source, &row_view, NULL, NULL));
    }
}

static void bad_sizes(nvfp4_context *ctx) {
    const nvfp4_quantize_desc desc = quantize_desc();
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_quantize_sizes(NULL, &desc, 1, 16, NVFP4_F32, 1, &out.sizes));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_quantize_sizes(ctx, &desc, 1, 16, NVFP4_F32, 1, NULL));
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_quantize_sizes(ctx, &desc, -3, 16, NVFP4_F32, 1, &out.sizes));
    FAILS(NVFP4_ERR_SHAPE, "-5", nvfp4_quantize_sizes(ctx, &desc, 3, -5, NVFP4_F32, 1, &out.sizes));
    FAILS(NVFP4_ERR_SHAPE, "", nvfp4_quantize_sizes(ctx, &desc, INT64_MIN, 16, NVFP4_F32, 1, &out.sizes));
    FAILS(NVFP4_ERR_SHAPE, "9223372036854775807",
          nvfp4_quantize_sizes(ctx, &desc, INT64_MAX, INT64_MAX, NVFP4_F32, 3, &out.sizes));
    FAILS(NVFP4_ERR_SHAPE, "4611686018427387904",
          nvfp4_quantize_sizes(ctx, &desc, INT64_C(1) << 62, 64, NVFP4_BF16, 3, &out.sizes));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "77", nvfp4_quantize_sizes(ctx, &desc, 1, 16, 77, 1, &out.sizes));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "0", nvfp4_quantize_sizes(ctx, &desc, 1, 16, NVFP4_F32, 0, &out.sizes));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "4", nvfp4_quantize_sizes(ctx, &desc, 1, 16, NVFP4_F32, 4, &out.sizes));
    CHECK(nvfp4_supports_quantize(ctx, &desc, -3, 16, NVFP4_F32, 1) == NVFP4_ERR_SHAPE, "supports -3 rows");
    CHECK(strstr(nvfp4_last_error(), "-3") != NULL, "%s", nvfp4_last_error());
    WORKS(nvfp4_supports_quantize(ctx, &desc, 3, 16, NVFP4_F32, 3));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_supports_quantize(NULL, &desc, 3, 16, NVFP4_F32, 3));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "77", nvfp4_supports_quantize(ctx, &desc, 3, 16, 77, 3));
}

/* Each way in which the input matrix can be wrong, for every call that reads one. */
static void bad_matrix(nvfp4_context *ctx) {
    const nvfp4_quantize_desc desc = with_workspace();
    const nvfp4_matrix good_matrix = matrix_of(x, NVFP4_F32, ROWS, COLS);
    int call;
    views_reset();
    for (call = 0; call < 2; call++) {
        nvfp4_matrix m;
#define BOTH(status, words)                                                                     \
    FAILS(status, words,                                                                        \
          call == 0 ? nvfp4_quantize(ctx, &desc, &m, &row_view, &column_view, NULL)             \
                    : nvfp4_amax(ctx, &desc, &m, out.amax[0], out.amax[1], NULL));              \
    m = good_matrix
        m = good_matrix;
        m.struct_size = 5;
        BOTH(NVFP4_ERR_STRUCT_SIZE, "5");
        m.data = NULL;
        BOTH(NVFP4_ERR_NULL_POINTER, "");
        m.dtype = 77;
        BOTH(NVFP4_ERR_INVALID_ARGUMENT, "77");
        m.reserved = 1234;
        BOTH(NVFP4_ERR_INVALID_ARGUMENT, "1234");
        m.rows = -3;
        BOTH(NVFP4_ERR_SHAPE, "-3");
        m.cols = -5;
        BOTH(NVFP4_ERR_SHAPE, "-5");
        m.stride = 47;
        BOTH(NVFP4_ERR_SHAPE, "47");
        m.stride = -48;
        BOTH(NVFP4_ERR_SHAPE, "-48");
        m.stride = INT64_MAX;
        BOTH(NVFP4_ERR_SHAPE, "9223372036854775807");
        m.rows = INT64_MAX / 2;
        BOTH(NVFP4_ERR_SHAPE, "4611686018427387903");
        m.data = (char *)x + 2;
        BOTH(NVFP4_ERR_ALIGNMENT, "4");
#undef BOTH
    }
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_quantize(NULL, &desc, &good_matrix, &row_view, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_quantize(ctx, &desc, NULL, &row_view, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_quantize(ctx, &desc, &good_matrix, NULL, NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_amax(NULL, &desc, &good_matrix, out.amax[0], NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_amax(ctx, &desc, NULL, out.amax[0], NULL, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_amax(ctx, &desc, &good_matrix, NULL, NULL, NULL));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "stream",
          nvfp4_quantize(ctx, &desc, &good_matrix, &row_view, NULL, (void *)&desc));
}

/* Each way in which the view of the output can be wrong. */
static void bad_view(nvfp4_context *ctx) {
    const nvfp4_quantize_desc desc = with_workspace();
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, ROWS, COLS);
    int side;
    for (side = 0; side < 2; side++) {
        nvfp4_quantized *view = side == 0 ? &row_view : &column_view;
#define ROW_OR_COLUMN(status, words)                                                                       \
    FAILS(status, words, nvfp4_quantize(ctx, &desc, &m, &row_view, &column_view, NULL));                   \
    views_reset()
        views_reset();
        view->struct_size = 5;
        ROW_OR_COLUMN(NVFP4_ERR_STRUCT_SIZE, "5");
        view->codes = NULL;
        ROW_OR_COLUMN(NVFP4_ERR_NULL_POINTER, "codes");
        view->scales = NULL;
        ROW_OR_COLUMN(NVFP4_ERR_NULL_POINTER, "scales");
        view->amax = NULL;
        ROW_OR_COLUMN(NVFP4_ERR_NULL_POINTER, "amax");
        view->codes_bytes = 791; /* 33 * 24 = 792, 48 * 17 = 816 */
        ROW_OR_COLUMN(NVFP4_ERR_BUFFER_SIZE, "791");
        view->scales_bytes = 98; /* 33 * 3 = 99, 48 * 3 = 144 */
        ROW_OR_COLUMN(NVFP4_ERR_BUFFER_SIZE, "98");
        view->amax_count = 0;
        ROW_OR_COLUMN(NVFP4_ERR_BUFFER_SIZE, "0");
        view->code_stride = 16;
        ROW_OR_COLUMN(NVFP4_ERR_SHAPE, "16");
        view->code_stride = -24;
        ROW_OR_COLUMN(NVFP4_ERR_SHAPE, "-24");
        view->code_stride = INT64_MAX;
        ROW_OR_COLUMN(NVFP4_ERR_SHAPE, "9223372036854775807");
        view->scale_stride = 2;
        ROW_OR_COLUMN(NVFP4_ERR_SHAPE, "2");
        view->scale_stride = INT64_MAX / 4;
        ROW_OR_COLUMN(NVFP4_ERR_SHAPE, "2305843009213693951");
        view->amax = (float *)(void *)((char *)out.amax[side] + 1);
        ROW_OR_COLUMN(NVFP4_ERR_ALIGNMENT, "");
#undef ROW_OR_COLUMN
    }
}

/* Strided and unaligned buffers that are legal give the bytes of the plain ones, and nothing between rows is touched. */
static void strides(nvfp4_context *ctx) {
    static float wide[ROWS * 64];
    const nvfp4_quantize_desc desc = with_workspace();
    nvfp4_matrix m = matrix_of(x, NVFP4_F32, ROWS, COLS);
    uint8_t codes[ROWS * 24], scales[ROWS * 3];
    int r;
    views_reset();
    WORKS(nvfp4_quantize(ctx, &desc, &m, &row_view, NULL, NULL));
    memcpy(codes, out.codes[0], sizeof codes);
    memcpy(scales, out.scales[0], sizeof scales);
    for (r = 0; r < ROWS; r++) memcpy(wide + r * 64 + 5, x + r * COLS, COLS * sizeof(float));
    m = matrix_of(wide + 5, NVFP4_F32, ROWS, COLS);
    m.stride = 64;
    views_reset();
    row_view.codes = out.codes[0] + 3;
    row_view.codes_bytes = 4000;
    row_view.code_stride = 31;
    row_view.scales = out.scales[0] + 1;
    row_view.scales_bytes = 4000;
    row_view.scale_stride = 11;
    memset(&out, 0xAB, sizeof out);
    WORKS(nvfp4_quantize(ctx, &desc, &m, &row_view, NULL, NULL));
    for (r = 0; r < ROWS; r++) {
        const uint8_t *code_row = out.codes[0] + 3 + r * 31, *scale_row = out.scales[0] + 1 + r * 11;
        CHECK(memcmp(code_row, codes + r * 24, 24) == 0 && code_row[24] == 0xAB && code_row[30] == 0xAB, "codes of row %d", r);
        CHECK(memcmp(scale_row, scales + r * 3, 3) == 0 && scale_row[3] == 0xAB && scale_row[10] == 0xAB, "scales of row %d", r);
    }
    CHECK(out.codes[0][2] == 0xAB && out.scales[0][0] == 0xAB, "wrote before its buffer");
}

static void empty(nvfp4_context *ctx) {
    static const int64_t shapes[3][2] = {{0, 64}, {64, 0}, {0, 0}};
    const nvfp4_quantize_desc desc = with_workspace();
    int i;
    for (i = 0; i < 3; i++) {
        nvfp4_matrix m = matrix_of(NULL, NVFP4_BF16, shapes[i][0], shapes[i][1]);
        views_reset();
        row_view.codes = row_view.scales = column_view.codes = column_view.scales = NULL;
        row_view.codes_bytes = row_view.scales_bytes = column_view.codes_bytes = column_view.scales_bytes = 0;
        out.amax[0][0] = 5;
        WORKS(nvfp4_quantize(ctx, &desc, &m, &row_view, &column_view, NULL));
        CHECK(row_view.rows == shapes[i][0] && row_view.cols == shapes[i][1], "shape");
        CHECK(out.amax[0][0] == 0, "amax of nothing is %g", out.amax[0][0]);
    }
}

void test_quantize(nvfp4_context *ctx) {
    fill_values(x, ROWS * COLS, 1);
    good(ctx);
    bad_sizes(ctx);
    bad_matrix(ctx);
    bad_view(ctx);
    strides(ctx);
    empty(ctx);
}
