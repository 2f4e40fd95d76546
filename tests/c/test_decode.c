/* dequantize, transpose and hadamard. */
#include "check.h"

static float x[32 * 48];
static uint8_t codes[32 * 24], scales[32 * 3];
static float amax;

/* x quantized into this file's own buffers, which no test poisons. */
static nvfp4_quantized quantized(nvfp4_context *ctx, uint32_t block) {
    static unsigned char workspace[1 << 15];
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, 32, 48);
    nvfp4_quantize_desc desc = quantize_desc();
    nvfp4_quantized q;
    desc.rowwise.block = block;
    desc.workspace = workspace;
    desc.workspace_bytes = sizeof workspace;
    views_reset();
    q = row_view;
    q.codes = codes;
    q.codes_bytes = sizeof codes;
    q.scales = scales;
    q.scales_bytes = sizeof scales;
    q.amax = &amax;
    q.amax_count = 1;
    WORKS(nvfp4_quantize(ctx, &desc, &m, &q, NULL, NULL));
    return q;
}

static void dequantize(nvfp4_context *ctx) {
    const nvfp4_quantized good = quantized(ctx, NVFP4_BLOCK_1D);
    nvfp4_quantized q = good;
    nvfp4_matrix y = matrix_of(out.matrix, NVFP4_F32, 32, 48), turned = matrix_of(out.matrix, NVFP4_F32, 48, 32);
    float plain[32 * 48];
    int r, c, far = 0, unequal = 0;

    WORKS(nvfp4_dequantize(ctx, &q, 0, &y, NULL));
    memcpy(plain, out.matrix, sizeof plain);
    for (r = 0; r < 32 * 48; r++) {
        const float error = plain[r] - x[r];
        far += (error < 0 ? -error : error) > 0.75f; /* half the widest gap, 4..6, at the largest block scale */
    }
    CHECK(far == 0, "%d values are far off", far);
    WORKS(nvfp4_dequantize(ctx, &q, 1, &turned, NULL));
    for (r = 0; r < 32; r++)
        for (c = 0; c < 48; c++) unequal += out.matrix[c * 32 + r] != plain[r * 48 + c];
    CHECK(unequal == 0, "%d values differ in the transposed output", unequal);
    memset(&out, 0xAB, sizeof out);
    y.dtype = NVFP4_BF16;
    y.stride = 51;
    WORKS(nvfp4_dequantize(ctx, &q, 0, &y, NULL));
    CHECK(((uint8_t *)out.matrix)[96] == 0xAB && ((uint8_t *)out.matrix)[101] == 0xAB, "wrote between rows");
    y = matrix_of(out.matrix, NVFP4_F32, 32, 48);

    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_dequantize(NULL, &q, 0, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_dequantize(ctx, NULL, 0, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_dequantize(ctx, &q, 0, NULL, NULL));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "7", nvfp4_dequantize(ctx, &q, 7, &y, NULL));
    FAILS(NVFP4_ERR_SHAPE, "48", nvfp4_dequantize(ctx, &q, 1, &y, NULL));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "stream", nvfp4_dequantize(ctx, &q, 0, &y, out.bytes));
#define BAD(field, value, status, words)                                \
    q = good;                                                           \
    q.field = value;                                                    \
    FAILS(status, words, nvfp4_dequantize(ctx, &q, 0, &y, NULL))
    BAD(struct_size, 5, NVFP4_ERR_STRUCT_SIZE, "5");
    BAD(codes, NULL, NVFP4_ERR_NULL_POINTER, "codes");
    BAD(scales, NULL, NVFP4_ERR_NULL_POINTER, "scales");
    BAD(amax, NULL, NVFP4_ERR_NULL_POINTER, "amax");
    BAD(codes_bytes, 767, NVFP4_ERR_BUFFER_SIZE, "767");
    BAD(scales_bytes, 95, NVFP4_ERR_BUFFER_SIZE, "95");
    BAD(amax_count, 0, NVFP4_ERR_BUFFER_SIZE, "0");
    BAD(rows, -3, NVFP4_ERR_SHAPE, "-3");
    BAD(rows, INT64_MAX, NVFP4_ERR_SHAPE, "9223372036854775807");
    BAD(cols, -5, NVFP4_ERR_SHAPE, "-5");
    BAD(rows, 31, NVFP4_ERR_SHAPE, "31");
    BAD(cols, 47, NVFP4_ERR_SHAPE, "47");
    BAD(code_stride, 23, NVFP4_ERR_SHAPE, "23");
    BAD(code_stride, INT64_MAX, NVFP4_ERR_SHAPE, "9223372036854775807");
    BAD(scale_stride, 2, NVFP4_ERR_SHAPE, "2");
    BAD(format, 91, NVFP4_ERR_INVALID_ARGUMENT, "91");
    BAD(block, 92, NVFP4_ERR_INVALID_ARGUMENT, "92");
    BAD(chain, 93, NVFP4_ERR_INVALID_ARGUMENT, "93");
    BAD(scale_layout, 96, NVFP4_ERR_INVALID_ARGUMENT, "96");
    BAD(hadamard, 17, NVFP4_ERR_INVALID_ARGUMENT, "17");
    BAD(domain_rows, -7, NVFP4_ERR_INVALID_ARGUMENT, "-7");
    BAD(c, 1000, NVFP4_ERR_INVALID_ARGUMENT, "1000");
#undef BAD
    y.dtype = 77;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "77", nvfp4_dequantize(ctx, &good, 0, &y, NULL));
    y = matrix_of(NULL, NVFP4_F32, 32, 48);
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_dequantize(ctx, &good, 0, &y, NULL));
    y = matrix_of((char *)out.matrix + 1, NVFP4_F32, 32, 48);
    FAILS(NVFP4_ERR_ALIGNMENT, "", nvfp4_dequantize(ctx, &good, 0, &y, NULL));
}

static void transpose(nvfp4_context *ctx) {
    nvfp4_quantized tiles = quantized(ctx, NVFP4_BLOCK_2D), other;
    nvfp4_matrix y = matrix_of(out.matrix, NVFP4_F32, 32, 48), turned = matrix_of(out.matrix, NVFP4_F32, 48, 32);
    float plain[32 * 48];
    int r, c, unequal = 0;
    WORKS(nvfp4_dequantize(ctx, &tiles, 0, &y, NULL));
    memcpy(plain, out.matrix, sizeof plain);
    views_reset();
    WORKS(nvfp4_transpose(ctx, &tiles, &column_view, NULL));
    CHECK(column_view.rows == 48 && column_view.cols == 32 && column_view.block == NVFP4_BLOCK_2D, "view");
    other = column_view;
    WORKS(nvfp4_dequantize(ctx, &other, 0, &turned, NULL));
    for (r = 0; r < 32; r++)
        for (c = 0; c < 48; c++) unequal += out.matrix[c * 32 + r] != plain[r * 48 + c];
    CHECK(unequal == 0, "%d values differ", unequal);

    views_reset();
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_transpose(NULL, &tiles, &column_view, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_transpose(ctx, NULL, &column_view, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_transpose(ctx, &tiles, NULL, NULL));
    column_view.codes_bytes = 767; /* 48 * 16 */
    FAILS(NVFP4_ERR_BUFFER_SIZE, "767", nvfp4_transpose(ctx, &tiles, &column_view, NULL));
    views_reset();
    column_view.scales_bytes = 95; /* 48 * 2 */
    FAILS(NVFP4_ERR_BUFFER_SIZE, "95", nvfp4_transpose(ctx, &tiles, &column_view, NULL));
    views_reset();
    column_view.code_stride = 15;
    FAILS(NVFP4_ERR_SHAPE, "15", nvfp4_transpose(ctx, &tiles, &column_view, NULL));
    views_reset();
    other = quantized(ctx, NVFP4_BLOCK_1D);
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "NVFP4_BLOCK_2D", nvfp4_transpose(ctx, &other, &column_view, NULL));
}

static void hadamard(nvfp4_context *ctx) {
    nvfp4_hadamard_desc desc;
    nvfp4_matrix m = matrix_of(x, NVFP4_F32, 32, 48), y = matrix_of(out.matrix, NVFP4_F32, 32, 48);
    static float back[32 * 48];
    const nvfp4_matrix z = matrix_of(back, NVFP4_F32, 32, 48);
    int axis, i, far;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    for (axis = 0; axis < 2; axis++) {
        const nvfp4_matrix once = matrix_of(out.matrix, NVFP4_F32, 32, 48);
        desc.axis = (uint32_t)axis;
        desc.inverse = 0;
        WORKS(nvfp4_hadamard(ctx, &desc, &m, &y, NULL));
        CHECK(memcmp(out.matrix, x, sizeof x) != 0, "the transform changed nothing");
        desc.inverse = 1;
        WORKS(nvfp4_hadamard(ctx, &desc, &once, &z, NULL));
        for (i = far = 0; i < 32 * 48; i++) far += back[i] - x[i] > 1e-5f || x[i] - back[i] > 1e-5f;
        CHECK(far == 0, "axis %d: %d values are not restored", axis, far);
    }
    WORKS(nvfp4_hadamard(ctx, NULL, &m, &y, NULL));
    desc.inverse = desc.axis = 0;
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_hadamard(NULL, &desc, &m, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_hadamard(ctx, &desc, NULL, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_hadamard(ctx, &desc, &m, NULL, NULL));
#define BAD(field, value, status, words)                                  \
    {                                                                     \
        nvfp4_hadamard_desc bad = desc;                                   \
        bad.field = value;                                                \
        FAILS(status, words, nvfp4_hadamard(ctx, &bad, &m, &y, NULL));    \
    }
    BAD(struct_size, 5, NVFP4_ERR_STRUCT_SIZE, "5")
    BAD(n, 17, NVFP4_ERR_INVALID_ARGUMENT, "17")
    BAD(n, 256, NVFP4_ERR_INVALID_ARGUMENT, "256")
    BAD(axis, 2, NVFP4_ERR_INVALID_ARGUMENT, "2")
    BAD(inverse, 3, NVFP4_ERR_INVALID_ARGUMENT, "3")
    BAD(signs, 98, NVFP4_ERR_INVALID_ARGUMENT, "98")
#undef BAD
    m.rows = -3;
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_hadamard(ctx, &desc, &m, &y, NULL));
    m = matrix_of(x, NVFP4_F32, 32, 48);
    y.cols = 47;
    FAILS(NVFP4_ERR_SHAPE, "47", nvfp4_hadamard(ctx, &desc, &m, &y, NULL));
    y = matrix_of(out.matrix, NVFP4_F32, 32, 48);
    y.stride = 40;
    FAILS(NVFP4_ERR_SHAPE, "40", nvfp4_hadamard(ctx, &desc, &m, &y, NULL));
}

void test_decode(nvfp4_context *ctx) {
    fill_values(x, 32 * 48, 3);
    dequantize(ctx);
    transpose(ctx);
    hadamard(ctx);
}
