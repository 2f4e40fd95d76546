/* scales_bytes, swizzle_scales and unswizzle_scales. */
#include "check.h"

static void sizes(void) {
    size_t bytes = 0;
    WORKS(nvfp4_scales_bytes(130, 2, NVFP4_SCALES_SWIZZLED, &bytes));
    CHECK(bytes == 1024, "%lu", (unsigned long)bytes);
    WORKS(nvfp4_scales_bytes(130, 2, NVFP4_SCALES_LINEAR, &bytes));
    CHECK(bytes == 260, "%lu", (unsigned long)bytes);
    WORKS(nvfp4_scales_bytes(0, 2, NVFP4_SCALES_SWIZZLED, &bytes));
    CHECK(bytes == 0, "%lu", (unsigned long)bytes);
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_scales_bytes(1, 1, NVFP4_SCALES_LINEAR, NULL));
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "96", nvfp4_scales_bytes(1, 1, 96, &out.size));
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_scales_bytes(-3, 1, NVFP4_SCALES_LINEAR, &out.size));
    FAILS(NVFP4_ERR_SHAPE, "-5", nvfp4_scales_bytes(1, -5, NVFP4_SCALES_SWIZZLED, &out.size));
    FAILS(NVFP4_ERR_SHAPE, "9223372036854775807",
          nvfp4_scales_bytes(INT64_MAX, 2, NVFP4_SCALES_SWIZZLED, &out.size));
    FAILS(NVFP4_ERR_SHAPE, "9223372036854775807", nvfp4_scales_bytes(INT64_MAX, INT64_MAX, NVFP4_SCALES_LINEAR, &out.size));
}

static void orders(nvfp4_context *ctx) {
    uint8_t linear[130 * 3], back[130 * 3];
    size_t i;
    int r, c, unequal = 0;
    for (i = 0; i < sizeof linear; i++) linear[i] = (uint8_t)(i * 7 % 127 + 1);
    memset(&out, 0xFF, sizeof out);
    WORKS(nvfp4_swizzle_scales(ctx, 130, 2, linear, 3, out.bytes, 1024, NULL));
    for (r = 0; r < 130; r++)
        for (c = 0; c < 2; c++)
            unequal += out.bytes[(r / 128) * 512 + (r % 32) * 16 + (r % 128) / 32 * 4 + c % 4] != linear[r * 3 + c];
    CHECK(unequal == 0, "%d bytes are not in their place", unequal);
    CHECK(out.bytes[2] == 0 && out.bytes[1023] == 0 && out.bytes[1024] == 0xFF, "padding or end");
    memset(back, 0xAB, sizeof back);
    WORKS(nvfp4_unswizzle_scales(ctx, 130, 2, out.bytes, 1024, back, 3, NULL));
    for (r = unequal = 0; r < 130; r++)
        unequal += memcmp(back + r * 3, linear + r * 3, 2) != 0 || back[r * 3 + 2] != 0xAB;
    CHECK(unequal == 0, "%d rows differ after the way back", unequal);

    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_swizzle_scales(NULL, 130, 2, linear, 0, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_swizzle_scales(ctx, 130, 2, NULL, 0, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_swizzle_scales(ctx, 130, 2, linear, 0, NULL, 1024, NULL));
    FAILS(NVFP4_ERR_BUFFER_SIZE, "1023", nvfp4_swizzle_scales(ctx, 130, 2, linear, 0, out.bytes, 1023, NULL));
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_swizzle_scales(ctx, -3, 2, linear, 0, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_SHAPE, "-5", nvfp4_swizzle_scales(ctx, 130, -5, linear, 0, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_SHAPE, "1", nvfp4_swizzle_scales(ctx, 130, 2, linear, 1, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_SHAPE, "-2", nvfp4_swizzle_scales(ctx, 130, 2, linear, -2, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_SHAPE, "9223372036854775807",
          nvfp4_swizzle_scales(ctx, 130, 2, linear, INT64_MAX, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_SHAPE, "", nvfp4_swizzle_scales(ctx, INT64_MAX, INT64_MAX, linear, 0, out.bytes, 1024, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_unswizzle_scales(NULL, 130, 2, linear, 1024, out.bytes, 0, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_unswizzle_scales(ctx, 130, 2, NULL, 1024, out.bytes, 0, NULL));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_unswizzle_scales(ctx, 130, 2, linear, 1024, NULL, 0, NULL));
    FAILS(NVFP4_ERR_BUFFER_SIZE, "390", nvfp4_unswizzle_scales(ctx, 130, 2, linear, sizeof linear, out.bytes, 0, NULL));
    FAILS(NVFP4_ERR_SHAPE, "-3", nvfp4_unswizzle_scales(ctx, -3, 2, linear, 1024, out.bytes, 0, NULL));
    FAILS(NVFP4_ERR_SHAPE, "1", nvfp4_unswizzle_scales(ctx, 130, 2, linear, 1024, out.bytes, 1, NULL));
}

void test_layout(nvfp4_context *ctx) {
    sizes();
    orders(ctx);
}
