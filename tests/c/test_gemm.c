/* gemm, its workspace, pack_weight and supports_gemm. */
#include "check.h"

enum { M = 5, N = 7, K = 40 };
static float a_values[M * K], b_values[N * K];
static uint8_t codes[2][N * K], scales[2][N * 3];
static float amax[2];
static union {
    uint64_t align;
    unsigned char bytes[1 << 16];
} workspace, packed;

static nvfp4_quantized operand(nvfp4_context *ctx, int which, const nvfp4_options *options) {
    const nvfp4_matrix m = matrix_of(which == 0 ? a_values : b_values, NVFP4_F32, which == 0 ? M : N, K);
    nvfp4_quantize_desc desc = quantize_desc();
    nvfp4_quantized q;
    if (options != NULL) desc.rowwise = *options;
    desc.workspace = workspace.bytes;
    desc.workspace_bytes = sizeof workspace;
    views_reset();
    q = row_view;
    q.codes = codes[which];
    q.codes_bytes = sizeof codes[which];
    q.scales = scales[which];
    q.scales_bytes = sizeof scales[which];
    q.amax = &amax[which];
    q.amax_count = 1;
    WORKS(nvfp4_quantize(ctx, &desc, &m, &q, NULL, NULL));
    return q;
}

static nvfp4_gemm_desc gemm_desc(void) {
    nvfp4_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.workspace = workspace.bytes;
    desc.workspace_bytes = sizeof workspace;
    return desc;
}

static void good(nvfp4_context *ctx, const nvfp4_quantized *a, const nvfp4_quantized *b) {
    static float da[M * K], db[N * K], c_values[M * N];
    nvfp4_matrix y = matrix_of(da, NVFP4_F32, M, K), d = matrix_of(out.matrix, NVFP4_F32, M, N), c;
    nvfp4_gemm_desc desc = gemm_desc();
    float alpha = 0.5f, beta = 2.0f, bias[N];
    float plain[M * N];
    size_t bytes = 0;
    int i, j, k, far = 0;
    WORKS(nvfp4_dequantize(ctx, a, 0, &y, NULL));
    y = matrix_of(db, NVFP4_F32, N, K);
    WORKS(nvfp4_dequantize(ctx, b, 0, &y, NULL));
    WORKS(nvfp4_gemm_workspace(ctx, NULL, a, b, &d, &bytes));
    CHECK(bytes <= sizeof workspace, "%lu bytes of workspace", (unsigned long)bytes);
    if (bytes == 0) WORKS(nvfp4_gemm(ctx, NULL, a, b, NULL, &d, NULL));
    WORKS(nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    memcpy(plain, out.matrix, sizeof plain);
    for (i = 0; i < M; i++)
        for (j = 0; j < N; j++) {
            double sum = 0, magnitude = 0, error;
            for (k = 0; k < K; k++) {
                const double product = (double)da[i * K + k] * db[j * K + k];
                sum += product;
                magnitude += product < 0 ? -product : product;
            }
            error = plain[i * N + j] - sum;
            far += (error < 0 ? -error : error) > 1e-5 * magnitude || magnitude == 0;
        }
    CHECK(far == 0, "%d of %d values are off", far, M * N);

    for (j = 0; j < N; j++) bias[j] = (float)j + 1;
    for (i = 0; i < M * N; i++) c_values[i] = (float)i;
    c = matrix_of(c_values, NVFP4_F32, M, N);
    desc.alpha = &alpha;
    desc.beta = &beta;
    desc.bias = bias;
    desc.bias_dtype = NVFP4_F32;
    WORKS(nvfp4_gemm(ctx, &desc, a, b, &c, &d, NULL));
    for (i = far = 0; i < M * N; i++) {
        const double error = out.matrix[i] - (0.5 * plain[i] + 2.0 * i + i % N + 1);
        far += error > 1e-4 || error < -1e-4;
    }
    CHECK(far == 0, "%d values are off with alpha, beta, C and bias", far);
    FAILS(NVFP4_ERR_NULL_POINTER, "c", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL)); /* beta without C */
    c.rows = 6;
    FAILS(NVFP4_ERR_SHAPE, "6", nvfp4_gemm(ctx, &desc, a, b, &c, &d, NULL));

    desc = gemm_desc();
    WORKS(nvfp4_pack_weight_bytes(ctx, b, &bytes));
    CHECK(bytes > 64 && bytes < sizeof packed - 1, "%lu packed bytes", (unsigned long)bytes);
    packed.bytes[0] = packed.bytes[bytes + 1] = 0x5A; /* from an odd address on, and nothing beside it */
    WORKS(nvfp4_pack_weight(ctx, b, packed.bytes + 1, bytes, NULL));
    CHECK(packed.bytes[0] == 0x5A && packed.bytes[bytes + 1] == 0x5A, "written beside the packed weight");
    desc.b_packed = packed.bytes + 1;
    desc.b_packed_bytes = bytes;
    memset(out.matrix, 0xFF, sizeof plain);
    WORKS(nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    CHECK(memcmp(plain, out.matrix, sizeof plain) == 0, "the packed weight gives another product");
    WORKS(nvfp4_supports_gemm(ctx, &desc, M, N, K, a, b, NVFP4_F32));
    packed.bytes[20] ^= 1;
    FAILS(NVFP4_ERR_MISMATCH, "b_packed", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    packed.bytes[20] ^= 1;
    memset(workspace.bytes, 0xFF, sizeof workspace);
    desc.b_packed = workspace.bytes;
    FAILS(NVFP4_ERR_MISMATCH, "b_packed", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    desc.b_packed = packed.bytes + 1;
    codes[1][0] ^= 1; /* b after it was packed */
    FAILS(NVFP4_ERR_MISMATCH, "pack b again", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    codes[1][0] ^= 1;
    desc.b_packed_bytes = bytes - 1;
    FAILS(NVFP4_ERR_BUFFER_SIZE, "", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    FAILS(NVFP4_ERR_BUFFER_SIZE, "", nvfp4_pack_weight(ctx, b, out.bytes, bytes - 1, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_pack_weight(NULL, b, out.bytes, sizeof out.bytes, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_pack_weight(ctx, NULL, out.bytes, sizeof out.bytes, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_pack_weight(ctx, b, NULL, sizeof out.bytes, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_pack_weight_bytes(NULL, b, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_pack_weight_bytes(ctx, NULL, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_pack_weight_bytes(ctx, b, NULL));
}

static void bad_descriptor(nvfp4_context *ctx, const nvfp4_quantized *a, const nvfp4_quantized *b) {
    const nvfp4_matrix d = matrix_of(out.matrix, NVFP4_F32, M, N);
    const float one = 1;
    nvfp4_gemm_desc desc;
#define BAD(field, value, status, words)                                       \
    desc = gemm_desc();                                                        \
    desc.field = value;                                                        \
    FAILS(status, words, nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL))
    BAD(struct_size, 5, NVFP4_ERR_STRUCT_SIZE, "5");
    BAD(accumulate, 91, NVFP4_ERR_INVALID_ARGUMENT, "91");
    BAD(activation, 92, NVFP4_ERR_INVALID_ARGUMENT, "92");
    BAD(provider, 9999, NVFP4_ERR_NOT_SUPPORTED, "9999");
    BAD(batch, -3, NVFP4_ERR_SHAPE, "-3");
    BAD(alpha, (const float *)(const void *)((const char *)&one + 1), NVFP4_ERR_ALIGNMENT, "alpha");
    BAD(beta, (const float *)(const void *)((const char *)&one + 1), NVFP4_ERR_ALIGNMENT, "beta");
    desc = gemm_desc();
    desc.bias = &one;
    desc.bias_dtype = 93;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "93", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    desc = gemm_desc();
    desc.batch = 3;
    desc.d_batch_stride = INT64_MAX / 2;
    FAILS(NVFP4_ERR_SHAPE, "", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
    desc = gemm_desc();
    desc.batch = 3; /* the operands' buffers hold one */
    desc.a_codes_batch_stride = 1 << 20;
    desc.d_batch_stride = M * N;
    FAILS(NVFP4_ERR_BUFFER_SIZE, "", nvfp4_gemm(ctx, &desc, a, b, NULL, &d, NULL));
#undef BAD
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm_workspace(NULL, NULL, a, b, &d, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm_workspace(ctx, NULL, NULL, b, &d, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm_workspace(ctx, NULL, a, NULL, &d, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm_workspace(ctx, NULL, a, b, &d, NULL));
}

static void bad_operands(nvfp4_context *ctx, const nvfp4_quantized *good_a, const nvfp4_quantized *good_b) {
    const nvfp4_gemm_desc desc = gemm_desc();
    const nvfp4_matrix good_d = matrix_of(out.matrix, NVFP4_F32, M, N);
    nvfp4_quantized a = *good_a, b = *good_b;
    nvfp4_matrix d = good_d;
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm(NULL, &desc, &a, &b, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm(ctx, &desc, NULL, &b, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm(ctx, &desc, &a, NULL, NULL, &d, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_gemm(ctx, &desc, &a, &b, NULL, NULL, NULL));
#define BAD(object, field, value, status, words)                                \
    object.field = value;                                                       \
    FAILS(status, words, nvfp4_gemm(ctx, &desc, &a, &b, NULL, &d, NULL));       \
    a = *good_a;                                                                \
    b = *good_b;                                                                \
    d = good_d
    BAD(a, cols, 39, NVFP4_ERR_SHAPE, "39");
    BAD(a, rows, 4, NVFP4_ERR_SHAPE, "4");
    BAD(b, rows, 6, NVFP4_ERR_SHAPE, "6");
    BAD(a, rows, -3, NVFP4_ERR_SHAPE, "-3");
    BAD(a, rows, INT64_MAX, NVFP4_ERR_SHAPE, "9223372036854775807");
    BAD(b, codes, NULL, NVFP4_ERR_NULL_POINTER, "codes");
    BAD(b, scales, NULL, NVFP4_ERR_NULL_POINTER, "scales");
    BAD(a, amax, NULL, NVFP4_ERR_NULL_POINTER, "amax");
    BAD(a, codes_bytes, 99, NVFP4_ERR_BUFFER_SIZE, "99");
    BAD(b, scales_bytes, 20, NVFP4_ERR_BUFFER_SIZE, "20");
    BAD(a, format, 91, NVFP4_ERR_INVALID_ARGUMENT, "91");
    BAD(a, struct_size, 5, NVFP4_ERR_STRUCT_SIZE, "5");
    BAD(d, rows, 6, NVFP4_ERR_SHAPE, "6");
    BAD(d, cols, 8, NVFP4_ERR_SHAPE, "8");
    BAD(d, stride, 6, NVFP4_ERR_SHAPE, "6");
    BAD(d, data, NULL, NVFP4_ERR_NULL_POINTER, "");
    BAD(d, dtype, 77, NVFP4_ERR_INVALID_ARGUMENT, "77");
    BAD(d, data, (char *)out.matrix + 2, NVFP4_ERR_ALIGNMENT, "4");
#undef BAD
}

/* A transform on one side only, and two of one length with other signs, must not meet. */
static void bad_transforms(nvfp4_context *ctx) {
    const nvfp4_gemm_desc desc = gemm_desc();
    const nvfp4_matrix d = matrix_of(out.matrix, NVFP4_F32, M, N);
    nvfp4_options options = quantize_desc().rowwise;
    nvfp4_quantized a, b;
    options.hadamard = 16;
    a = operand(ctx, 0, &options);
    b = operand(ctx, 1, &options);
    WORKS(nvfp4_gemm(ctx, &desc, &a, &b, NULL, &d, NULL));
    options.signs = NVFP4_SIGNS_MASK16;
    options.sign_mask[0] = 0xD7E9;
    b = operand(ctx, 1, &options);
    FAILS(NVFP4_ERR_MISMATCH, "", nvfp4_gemm(ctx, &desc, &a, &b, NULL, &d, NULL));
    options.hadamard = 0;
    options.signs = 0;
    options.sign_mask[0] = 0;
    b = operand(ctx, 1, &options);
    b.cols = b.source_cols = a.cols; /* 40 and 48: within its buffers, so that only the transform differs */
    b.codes_bytes = sizeof codes[1];
    FAILS(NVFP4_ERR_MISMATCH, "16", nvfp4_gemm(ctx, &desc, &a, &b, NULL, &d, NULL));
}

static void supports(nvfp4_context *ctx, const nvfp4_quantized *a, const nvfp4_quantized *b) {
    nvfp4_quantized like_a = *a, like_b = *b;
    like_a.codes = like_a.scales = like_b.codes = like_b.scales = NULL; /* only the kind counts */
    WORKS(nvfp4_supports_gemm(ctx, NULL, 64, 64, 128, &like_a, &like_b, NVFP4_BF16));
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_supports_gemm(ctx, NULL, -3, 64, 128, &like_a, &like_b, NVFP4_BF16));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "77", nvfp4_supports_gemm(ctx, NULL, 64, 64, 128, &like_a, &like_b, 77));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_supports_gemm(NULL, NULL, 64, 64, 128, &like_a, &like_b, NVFP4_BF16));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_supports_gemm(ctx, NULL, 64, 64, 128, NULL, &like_b, NVFP4_BF16));
    like_a.hadamard = 16;
    FAILS(NVFP4_ERR_MISMATCH, "16", nvfp4_supports_gemm(ctx, NULL, 64, 64, 128, &like_a, &like_b, NVFP4_BF16));
}

void test_gemm(nvfp4_context *ctx) {
    nvfp4_quantized a, b;
    fill_values(a_values, M * K, 4);
    fill_values(b_values, N * K, 5);
    a = operand(ctx, 0, NULL);
    b = operand(ctx, 1, NULL);
    good(ctx, &a, &b);
    bad_descriptor(ctx, &a, &b);
    bad_operands(ctx, &a, &b);
    bad_transforms(ctx);
    a = operand(ctx, 0, NULL);
    b = operand(ctx, 1, NULL);
    supports(ctx, &a, &b);
}
