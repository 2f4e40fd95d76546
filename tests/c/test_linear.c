/* Recipes and the three products of a linear layer. */
#include "check.h"

enum { TOKENS = 19, IN = 40, OUT = 24 };
static float x[TOKENS * IN], w[OUT * IN], dy[TOKENS * OUT], bias[OUT];
static union {
    uint64_t align;
    unsigned char bytes[1 << 18];
} workspace;

static void recipes(void) {
    static const char *const names[] = {"nvfp4", "te_nvfp4", "nvfp4_no_rht", "te_nvfp4_no_rht", "mxfp4", "bf16"};
    nvfp4_recipe recipe;
    nvfp4_quantize_desc desc;
    struct {
        nvfp4_recipe recipe;
        nvfp4_quantize_desc desc;
    } kept, before;
    size_t i;
    uint32_t operand;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        memset(&recipe, 0, sizeof recipe);
        recipe.struct_size = sizeof recipe;
        WORKS(nvfp4_recipe_init(names[i], &recipe));
        CHECK(recipe.struct_size == sizeof recipe, "%s: struct_size %lu", names[i], (unsigned long)recipe.struct_size);
        for (operand = 0; operand <= NVFP4_OPERAND_GRADIENT; operand++) {
            desc = quantize_desc();
            WORKS(nvfp4_recipe_quantize_desc(&recipe, operand, &desc));
        }
    }
    WORKS(nvfp4_recipe_init("nvfp4", &recipe));
    CHECK(recipe.gradient_rowwise.rounding == NVFP4_ROUND_STOCHASTIC && recipe.weight_rowwise.block == NVFP4_BLOCK_2D &&
              recipe.activation_columnwise.hadamard == 16 && recipe.gradient_columnwise.hadamard == 16,
          "nvfp4 is not what it says");
    /* These two outputs bring their struct_size, so they can't lie in the poisoned ones. */
    memset(&kept, 0xAB, sizeof kept);
    kept.recipe.struct_size = sizeof kept.recipe;
    kept.desc.struct_size = sizeof kept.desc;
    before = kept;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "nvfp5", nvfp4_recipe_init("nvfp5", &kept.recipe));
    FAILS(NVFP4_ERR_NULL_POINTER, "name", nvfp4_recipe_init(NULL, &kept.recipe));
    FAILS(NVFP4_ERR_NULL_POINTER, "out", nvfp4_recipe_init("nvfp4", NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_recipe_quantize_desc(NULL, 0, &kept.desc));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_recipe_quantize_desc(&recipe, 0, NULL));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "9", nvfp4_recipe_quantize_desc(&recipe, 9, &kept.desc));
    recipe.struct_size = 5;
    FAILS(NVFP4_ERR_STRUCT_SIZE, "5", nvfp4_recipe_quantize_desc(&recipe, 0, &kept.desc));
    CHECK(memcmp(&kept, &before, sizeof kept) == 0, "a failed call wrote its output");
    kept.recipe.struct_size = 5;
    before = kept;
    FAILS(NVFP4_ERR_STRUCT_SIZE, "5", nvfp4_recipe_init("nvfp4", &kept.recipe));
    CHECK(memcmp(&kept, &before, sizeof kept) == 0, "a failed call wrote its output");
}

static void close_to(const float *got, const float *left, int left_row, int left_step, const float *right, int right_row,
                     int right_step, int rows, int cols, int inner, const float *add, const char *what) {
    double error = 0, size = 0;
    int i, j, k;
    for (i = 0; i < rows; i++)
        for (j = 0; j < cols; j++) {
            double sum = add == NULL ? 0 : add[j];
            for (k = 0; k < inner; k++)
                sum += (double)left[i * left_row + k * left_step] * right[j * right_row + k * right_step];
            error += (got[i * cols + j] - sum) * (got[i * cols + j] - sum);
            size += sum * sum;
        }
    /* Two operands of about 9e-3 (nearest) or 19e-3 (stochastic) relative error each. */
    CHECK(size > 0 && error < 0.08 * size, "%s: relative square error %g", what, error / size);
    CHECK(error > 0, "%s is exact: nothing was quantized", what);
}

static void layer(nvfp4_context *ctx) {
    nvfp4_matrix mx = matrix_of(x, NVFP4_F32, TOKENS, IN), mw = matrix_of(w, NVFP4_F32, OUT, IN),
                 mdy = matrix_of(dy, NVFP4_F32, TOKENS, OUT), mbias = matrix_of(bias, NVFP4_F32, 1, OUT),
                 y = matrix_of(out.matrix, NVFP4_F32, TOKENS, OUT), dx = matrix_of(out.matrix, NVFP4_F32, TOKENS, IN),
                 dw = matrix_of(out.matrix, NVFP4_F32, OUT, IN);
    float once[OUT * IN];
    nvfp4_recipe recipe;
    nvfp4_linear_desc desc;
    size_t bytes = 0;
    int i, wrong = 0;
    memset(&recipe, 0, sizeof recipe);
    recipe.struct_size = sizeof recipe;
    WORKS(nvfp4_recipe_init("nvfp4", &recipe));
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.recipe = &recipe;
    desc.seed = 7;
    WORKS(nvfp4_linear_workspace(ctx, &desc, TOKENS, IN, OUT, NVFP4_F32, &bytes));
    CHECK(bytes > 0 && bytes <= sizeof workspace, "%lu bytes of workspace", (unsigned long)bytes);
    desc.workspace = workspace.bytes;
    desc.workspace_bytes = sizeof workspace;

    WORKS(nvfp4_linear_fprop(ctx, &desc, &mx, &mw, &mbias, &y, NULL));
    close_to(out.matrix, x, IN, 1, w, IN, 1, TOKENS, OUT, IN, bias, "fprop");
    WORKS(nvfp4_linear_fprop(ctx, &desc, &mx, &mw, NULL, &y, NULL));
    WORKS(nvfp4_linear_dgrad(ctx, &desc, &mdy, &mw, &dx, NULL));
    close_to(out.matrix, dy, OUT, 1, w, 1, IN, TOKENS, IN, OUT, NULL, "dgrad");
    WORKS(nvfp4_linear_wgrad(ctx, &desc, &mdy, &mx, &dw, NULL));
    close_to(out.matrix, dy, 1, OUT, x, 1, IN, OUT, IN, TOKENS, NULL, "wgrad");
    memcpy(once, out.matrix, sizeof once);
    desc.accumulate_wgrad = 1;
    WORKS(nvfp4_linear_wgrad(ctx, &desc, &mdy, &mx, &dw, NULL));
    for (i = 0; i < OUT * IN; i++) wrong += out.matrix[i] != once[i] + once[i];
    CHECK(wrong == 0, "%d gradients did not accumulate", wrong);
    desc.accumulate_wgrad = 0;

#define NULLS(name, a, b, c)                                                                    \
    FAILS(NVFP4_ERR_NULL_POINTER, "", name(NULL, &desc, a, b, c, NULL));                        \
    FAILS(NVFP4_ERR_NULL_POINTER, "", name(ctx, NULL, a, b, c, NULL));                          \
    FAILS(NVFP4_ERR_NULL_POINTER, "", name(ctx, &desc, NULL, b, c, NULL));                      \
    FAILS(NVFP4_ERR_NULL_POINTER, "", name(ctx, &desc, a, NULL, c, NULL));                      \
    FAILS(NVFP4_ERR_NULL_POINTER, "", name(ctx, &desc, a, b, NULL, NULL))
    NULLS(nvfp4_linear_dgrad, &mdy, &mw, &dx);
    NULLS(nvfp4_linear_wgrad, &mdy, &mx, &dw);
#undef NULLS
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_fprop(NULL, &desc, &mx, &mw, NULL, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_fprop(ctx, NULL, &mx, &mw, NULL, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_fprop(ctx, &desc, NULL, &mw, NULL, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_fprop(ctx, &desc, &mx, NULL, NULL, &y, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_fprop(ctx, &desc, &mx, &mw, NULL, NULL, NULL));

#define BAD(object, field, value, status, words)                                               \
    {                                                                                          \
        const nvfp4_matrix kx = mx, kw = mw, ky = y, kb = mbias;                               \
        const nvfp4_linear_desc kd = desc;                                                     \
        const nvfp4_recipe kr = recipe;                                                        \
        object.field = value;                                                                  \
        FAILS(status, words, nvfp4_linear_fprop(ctx, &desc, &mx, &mw, &mbias, &y, NULL));      \
        mx = kx, mw = kw, y = ky, mbias = kb, desc = kd, recipe = kr;                          \
    }
    BAD(desc, struct_size, 5, NVFP4_ERR_STRUCT_SIZE, "5")
    BAD(desc, recipe, NULL, NVFP4_ERR_NULL_POINTER, "recipe")
    BAD(desc, workspace, NULL, NVFP4_ERR_NULL_POINTER, "workspace")
    BAD(desc, workspace_bytes, 3, NVFP4_ERR_BUFFER_SIZE, "3")
    BAD(desc, reserved, 1234, NVFP4_ERR_INVALID_ARGUMENT, "1234")
    BAD(desc, offset, UINT64_C(1) << 62, NVFP4_ERR_INVALID_ARGUMENT, "4611686018427387904")
    BAD(recipe, struct_size, 5, NVFP4_ERR_STRUCT_SIZE, "5")
    BAD(recipe, accumulate, 91, NVFP4_ERR_INVALID_ARGUMENT, "91")
    BAD(recipe, activation_rowwise.format, 92, NVFP4_ERR_INVALID_ARGUMENT, "92")
    BAD(mx, cols, 39, NVFP4_ERR_SHAPE, "39")
    BAD(mx, rows, -3, NVFP4_ERR_SHAPE, "-3")
    BAD(mw, rows, 23, NVFP4_ERR_SHAPE, "23")
    BAD(y, rows, 18, NVFP4_ERR_SHAPE, "18")
    BAD(mbias, cols, 23, NVFP4_ERR_SHAPE, "23")
    BAD(mbias, rows, 2, NVFP4_ERR_SHAPE, "2")
    BAD(y, data, NULL, NVFP4_ERR_NULL_POINTER, "")
    BAD(mw, dtype, 77, NVFP4_ERR_INVALID_ARGUMENT, "77")
#undef BAD
    desc.workspace = NULL;
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_linear_workspace(ctx, &desc, -3, IN, OUT, NVFP4_F32, &out.size));
    FAILS(NVFP4_ERR_SHAPE, "9223372036854775807",
          nvfp4_linear_workspace(ctx, &desc, INT64_MAX, IN, OUT, NVFP4_F32, &out.size));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "77", nvfp4_linear_workspace(ctx, &desc, TOKENS, IN, OUT, 77, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_workspace(NULL, &desc, TOKENS, IN, OUT, NVFP4_F32, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_workspace(ctx, NULL, TOKENS, IN, OUT, NVFP4_F32, &out.size));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_linear_workspace(ctx, &desc, TOKENS, IN, OUT, NVFP4_F32, NULL));
}

void test_linear(nvfp4_context *ctx) {
    fill_values(x, TOKENS * IN, 6);
    fill_values(w, OUT * IN, 7);
    fill_values(dy, TOKENS * OUT, 8);
    fill_values(bias, OUT, 9);
    recipes();
    layer(ctx);
}
