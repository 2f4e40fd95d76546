/* Every field of the quantize descriptor and its options, out of range, through each call that reads it. */
#include "check.h"

static float x[32 * 64];
static const uint64_t some_seed[2] = {1, 2};
static const float given_amax = 4;
static union {
    uint64_t align;
    unsigned char bytes[4096 * 8];
} workspace;

struct bad {
    const char *words;
    nvfp4_status status;
    void (*spoil)(nvfp4_quantize_desc *desc);
};

static nvfp4_quantize_desc *d; /* the descriptor being spoiled, to keep the table short */

#define SPOIL(name, statement)                        \
    static void name(nvfp4_quantize_desc *desc) {     \
        d = desc;                                     \
        statement;                                    \
    }
SPOIL(struct_size, d->struct_size = 6)
SPOIL(row_struct_size, d->rowwise.struct_size = 6)
SPOIL(format, d->rowwise.format = 91)
SPOIL(block, d->rowwise.block = 92)
SPOIL(chain, d->rowwise.chain = 93)
SPOIL(rule, (d->rowwise.format = NVFP4_FORMAT_MXFP4, d->rowwise.scale_rule = 94))
SPOIL(rounding, d->rowwise.rounding = 95)
SPOIL(layout, d->rowwise.scale_layout = 96)
SPOIL(select_mode, d->rowwise.select = 97)
SPOIL(hadamard, d->rowwise.hadamard = 17)
SPOIL(signs, (d->rowwise.hadamard = 16, d->rowwise.signs = 98))
SPOIL(flags, d->rowwise.flags = 1u << 20)
SPOIL(domain_negative, d->rowwise.domain_rows = -7)
SPOIL(domain_tiles, (d->rowwise.block = NVFP4_BLOCK_2D, d->rowwise.domain_rows = 24))
SPOIL(c_value, d->rowwise.c = 1000)
SPOIL(options_reserved, d->rowwise.reserved = 4321)
SPOIL(nonfinite, d->nonfinite = 99)
SPOIL(reserved, d->reserved = 1234)
SPOIL(offset, d->offset = UINT64_C(1) << 62)
SPOIL(origin_row, d->origin_row = -16)
SPOIL(origin_col, d->origin_col = -16)
SPOIL(origin_col_block, d->origin_col = 8)
SPOIL(seed_misaligned, d->seed_offset = (const uint64_t *)(const void *)((const char *)some_seed + 1))
SPOIL(amax_misaligned, d->rowwise_amax = (const float *)(const void *)((const char *)&given_amax + 1))

static const struct bad table[] = {
    {"6", NVFP4_ERR_STRUCT_SIZE, struct_size},
    {"6", NVFP4_ERR_STRUCT_SIZE, row_struct_size},
    {"91", NVFP4_ERR_INVALID_ARGUMENT, format},
    {"92", NVFP4_ERR_INVALID_ARGUMENT, block},
    {"93", NVFP4_ERR_INVALID_ARGUMENT, chain},
    {"94", NVFP4_ERR_INVALID_ARGUMENT, rule},
    {"95", NVFP4_ERR_INVALID_ARGUMENT, rounding},
    {"96", NVFP4_ERR_INVALID_ARGUMENT, layout},
    {"97", NVFP4_ERR_INVALID_ARGUMENT, select_mode},
    {"17", NVFP4_ERR_INVALID_ARGUMENT, hadamard},
    {"98", NVFP4_ERR_INVALID_ARGUMENT, signs},
    {"flags", NVFP4_ERR_INVALID_ARGUMENT, flags},
    {"-7", NVFP4_ERR_INVALID_ARGUMENT, domain_negative},
    {"24", NVFP4_ERR_INVALID_ARGUMENT, domain_tiles},
    {"1000", NVFP4_ERR_INVALID_ARGUMENT, c_value},
    {"4321", NVFP4_ERR_INVALID_ARGUMENT, options_reserved},
    {"99", NVFP4_ERR_INVALID_ARGUMENT, nonfinite},
    {"1234", NVFP4_ERR_INVALID_ARGUMENT, reserved},
    {"4611686018427387904", NVFP4_ERR_INVALID_ARGUMENT, offset},
    {"-16", NVFP4_ERR_SHAPE, origin_row},
    {"-16", NVFP4_ERR_SHAPE, origin_col},
    {"8", NVFP4_ERR_SHAPE, origin_col_block},
    {"seed_offset", NVFP4_ERR_ALIGNMENT, seed_misaligned},
    {"amax", NVFP4_ERR_ALIGNMENT, amax_misaligned},
};

static void every_field(nvfp4_context *ctx) {
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, 32, 64);
    size_t i;
    views_reset();
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        nvfp4_quantize_desc desc = quantize_desc();
        desc.workspace = workspace.bytes;
        desc.workspace_bytes = sizeof workspace;
        table[i].spoil(&desc);
        FAILS(table[i].status, table[i].words, nvfp4_quantize(ctx, &desc, &m, &row_view, NULL, NULL));
        if (table[i].status == NVFP4_ERR_ALIGNMENT) continue; /* pointers that the size query does not look at */
        FAILS(table[i].status, table[i].words, nvfp4_quantize_sizes(ctx, &desc, 32, 64, NVFP4_F32, 1, &out.sizes));
        FAILS(table[i].status, table[i].words, nvfp4_supports_quantize(ctx, &desc, 32, 64, NVFP4_F32, 1));
    }
}

/* A given amax that is no scale: the sentence names it. */
static void bad_amax(nvfp4_context *ctx) {
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, 32, 64);
    const float zero = 0;
    float values[3];
    int i;
    values[0] = -2;
    values[1] = 1 / zero;
    values[2] = zero / zero;
    views_reset();
    for (i = 0; i < 3; i++) {
        nvfp4_quantize_desc desc = quantize_desc();
        desc.workspace = workspace.bytes;
        desc.workspace_bytes = sizeof workspace;
        desc.rowwise_amax = &values[i];
        FAILS(NVFP4_ERR_INVALID_ARGUMENT, "amax", nvfp4_quantize(ctx, &desc, &m, &row_view, NULL, NULL));
        desc.rowwise_amax = NULL;
        desc.columnwise_amax = &values[i];
        FAILS(NVFP4_ERR_INVALID_ARGUMENT, "amax", nvfp4_quantize(ctx, &desc, &m, &row_view, &column_view, NULL));
    }
}

/* A descriptor from an older header, shorter than ours, means zero for what it lacks; one from a newer header is
 * fine while the tail is zero. */
static void versions(nvfp4_context *ctx) {
    struct {
        nvfp4_quantize_desc desc;
        uint64_t tail[3];
    } longer;
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, 32, 64);
    uint8_t codes[32 * 32];
    views_reset();
    longer.desc = quantize_desc();
    memset(longer.tail, 0, sizeof longer.tail);
    WORKS(nvfp4_quantize(ctx, &longer.desc, &m, &row_view, NULL, NULL));
    memcpy(codes, out.codes[0], sizeof codes);
    longer.desc.struct_size = sizeof longer;
    views_reset();
    WORKS(nvfp4_quantize(ctx, &longer.desc, &m, &row_view, NULL, NULL));
    CHECK(memcmp(codes, out.codes[0], sizeof codes) == 0, "a longer descriptor changed the result");
    views_reset();
    longer.tail[2] = 1;
    FAILS(NVFP4_ERR_STRUCT_SIZE, "", nvfp4_quantize(ctx, &longer.desc, &m, &row_view, NULL, NULL));
    longer.tail[2] = 0;
    longer.desc.struct_size = (size_t)((const char *)&longer.desc.workspace - (const char *)&longer.desc);
    longer.desc.workspace_bytes = 99999; /* past the end of what the caller says it has */
    WORKS(nvfp4_quantize(ctx, &longer.desc, &m, &row_view, NULL, NULL));
    CHECK(memcmp(codes, out.codes[0], sizeof codes) == 0, "a shorter descriptor changed the result");
}

/* Every legal value of every option is taken by the size query; what it takes, quantize takes. */
static void legal(nvfp4_context *ctx) {
    static const uint32_t lengths[] = {0, 16, 32, 64, 128};
    const nvfp4_matrix m = matrix_of(x, NVFP4_F32, 32, 64);
    uint32_t format, block, rounding, layout, length, taken = 0;
    for (format = 0; format <= NVFP4_FORMAT_BF16; format++)
        for (block = 0; block <= NVFP4_BLOCK_2D; block++)
            for (rounding = 0; rounding <= NVFP4_ROUND_STOCHASTIC; rounding++)
                for (layout = 0; layout <= NVFP4_SCALES_SWIZZLED; layout++)
                    for (length = 0; length < 5; length++) {
                        nvfp4_quantize_desc desc = quantize_desc();
                        nvfp4_status asked, got;
                        desc.rowwise.format = format;
                        desc.rowwise.block = block;
                        desc.rowwise.rounding = rounding;
                        desc.rowwise.scale_layout = layout;
                        desc.rowwise.hadamard = lengths[length];
                        desc.columnwise = desc.rowwise;
                        desc.workspace = workspace.bytes;
                        desc.workspace_bytes = sizeof workspace;
                        asked = nvfp4_supports_quantize(ctx, &desc, 32, 64, NVFP4_F32, 3);
                        views_reset();
                        row_view.codes = out.bytes; /* 32 x 128 and 64 x 128 values of 2 bytes at most */
                        row_view.codes_bytes = sizeof out.bytes;
                        column_view.codes = out.matrix;
                        column_view.codes_bytes = sizeof out.matrix;
                        got = nvfp4_quantize(ctx, &desc, &m, &row_view, &column_view, NULL);
                        CHECK(asked == got, "supports says %s, quantize %s (format %u block %u rounding %u layout %u n %u)",
                              nvfp4_status_name(asked), nvfp4_status_name(got), (unsigned)format, (unsigned)block,
                              (unsigned)rounding, (unsigned)layout, (unsigned)lengths[length]);
                        taken += got == NVFP4_OK;
                        if (format != NVFP4_FORMAT_BF16 && block == NVFP4_BLOCK_1D) CHECK(got == NVFP4_OK, "%s", nvfp4_last_error());
                    }
    CHECK(taken >= 50, "only %u combinations work", (unsigned)taken);
}

void test_quantize_options(nvfp4_context *ctx) {
    fill_values(x, 32 * 64, 2);
    every_field(ctx);
    bad_amax(ctx);
    versions(ctx);
    legal(ctx);
}
